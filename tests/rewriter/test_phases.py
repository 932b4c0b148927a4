"""Which graphs a run writes, with which dims, and what cannot have a cache of fixed size."""

from __future__ import annotations

import json
from pathlib import Path

import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.cli import main
from rewriter.errors import BadInput
from rewriter.genai import check
from rewriter.passes.dim_fit import rotary_rows
from rewriter.passes.fix_dims import fix_dims, places_and_roles
from rewriter.phases import phases
from rewriter.settings import Settings
from rewriter.source import CONTEXT
from tests import toys
from tests.decoders import Decoder, decoder

DECODER = Decoder(weights="fp32", layers=1)


def _settings(ep: str = "qnn", **more: object) -> Settings:
    return Settings(Path("m.onnx"), target(ep), None, **more)  # type: ignore[arg-type]  # loosely typed in tests


def _dims(model: ir.Model, *, built: bool = False, **more: object) -> dict[str, dict[str, int]]:
    found, _ = phases(_settings(**more), model, built=built)  # type: ignore[arg-type]  # loosely typed in tests
    return {phase.file: dict(phase.dims) for phase in found}


def test_both_phases_have_the_same_buffer() -> None:
    found = _dims(decoder(DECODER), static="both", seq=8, max_seq_len=32)
    assert found == {
        "prefill.onnx": {"batch": 1, "seq": 8, "past": 32, "total": 32},
        "decode.onnx": {"batch": 1, "seq": 1, "past": 32, "total": 32},
    }


def test_dims_that_are_given_win() -> None:
    found = _dims(decoder(DECODER), static="decode", max_seq_len=32, dims={"batch": 2})
    assert found["decode.onnx"]["batch"] == 2


def test_an_onnx_file_is_one_graph_unless_asked() -> None:
    assert _dims(decoder(DECODER), dims={"seq": 1}) == {"model.onnx": {"seq": 1}}


def test_a_checkpoint_gets_both_where_shapes_are_fixed() -> None:
    model = decoder(DECODER)
    model.metadata_props[CONTEXT] = "100"
    found, notes = phases(_settings(), model, built=True)
    assert [phase.name for phase in found] == ["prefill", "decode"]
    assert found[0].dims == {"batch": 1, "seq": 64, "past": 100, "total": 100}
    assert len(notes) == 3
    assert notes[-1].startswith("caches are aligned left")
    assert list(_dims(model, built=True, ep="ort-cpu")) == ["model.onnx"]


def test_a_prompt_larger_than_the_cache() -> None:
    with pytest.raises(BadInput, match="--seq 64 does not fit into a cache of 32 rows"):
        phases(_settings(static="both", seq=64, max_seq_len=32), decoder(DECODER), built=False)


def test_models_without_a_buffer_are_named() -> None:
    with pytest.raises(BadInput, match="no inputs for new tokens"):
        phases(_settings(static="both"), toys.chain(["Relu"], shape=(1, 4)), built=False)
    model = decoder(DECODER)
    past = next(v for v in model.graph.inputs if (v.name or "").startswith("past_key_values"))
    grown = ir.node("Concat", [past, past], {"axis": 2}, name="grow")
    model.graph.append(grown)
    with pytest.raises(BadInput, match=f"'{past.name}' is read by Concat 'grow', which is not"):
        phases(_settings(static="both"), model, built=False)


def test_the_command_writes_both_with_one_weight_file(tmp_path: Path) -> None:
    path, out, report = tmp_path / "m.onnx", tmp_path / "out", tmp_path / "r.json"
    ir.save(decoder(DECODER), path)
    words = ["--static", "both", "--seq", "4", "--max-seq-len", "16", "--report", str(report)]
    assert main([str(path), "--ep", "qnn", "-o", str(out), *words]) == 0
    graphs = json.loads(report.read_text(encoding="utf-8"))["graphs"]
    assert [graph["file"] for graph in graphs] == ["prefill.onnx", "decode.onnx"]
    assert all(graph["placement"]["on_cpu"] == 0 for graph in graphs)
    weights = (out / "model.onnx.data").stat().st_size
    assert sum(p.stat().st_size for p in out.glob("*.data")) < 1.1 * weights


def test_sizes_without_static_are_bad_usage(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    ir.save(decoder(DECODER), path)
    assert main([str(path), "--ep", "qnn", "--seq", "4", "-o", str(tmp_path / "o")]) == 2
    assert main([str(path), "--ep", "qnn", "--weights", "int4", "-o", str(tmp_path / "o")]) == 2


def test_no_cache_is_larger_than_what_the_model_was_trained_for() -> None:
    model = decoder(DECODER)
    model.metadata_props[CONTEXT] = "100"
    for static in ("both", ""):
        with pytest.raises(BadInput, match="--max-seq-len 101: the model was trained for 100"):
            phases(_settings("ort-cpu", static=static, max_seq_len=101), model, built=True)
    assert _dims(model, static="decode", max_seq_len=100)["decode.onnx"]["past"] == 100


def test_the_default_cache_fits_the_rotary_table() -> None:
    rows = rotary_rows(decoder(DECODER))
    assert rows is not None
    assert rows[0] < 1024
    assert _dims(decoder(DECODER), static="decode")["decode.onnx"]["past"] == rows[0]


@pytest.mark.parametrize("static", ["", "decode"])
def test_a_prompt_size_without_a_graph_that_reads_prompts(static: str) -> None:
    with pytest.raises(BadInput, match=r"--seq 8: .* none is made here"):
        phases(_settings("ort-cpu", static=static, seq=8), decoder(DECODER), built=True)


@pytest.mark.parametrize("dim", ["seq", "past", "total"])
def test_dims_that_static_sets(dim: str) -> None:
    settings = _settings(static="both", seq=8, max_seq_len=32, dims={dim: 8})
    with pytest.raises(BadInput, match="--static sets it, by --seq and --max-seq-len"):
        phases(settings, decoder(DECODER), built=False)


def test_the_models_own_name_of_the_batch() -> None:
    model = decoder(DECODER)
    name = next(s for s, role in places_and_roles(model)[1].items() if role == "batch")
    found = _dims(model, static="decode", max_seq_len=32, dims={name: 2})["decode.onnx"]
    assert found == {name: 2, "seq": 1, "past": 32, "total": 32}
    assert list(_dims(model, built=True, dims={name: 1})) == ["prefill.onnx", "decode.onnx"]
    assert list(_dims(model, built=True, dims={"seq": 1})) == ["model.onnx"]


def test_phases_make_a_pipeline_of_the_runtimes_configuration(tmp_path: Path) -> None:
    """It named ``model.onnx``, which is not written."""
    path, out, report = tmp_path / "m.onnx", tmp_path / "out", tmp_path / "r.json"
    ir.save(decoder(DECODER), path)
    stated = {"model": {"pad_token_id": 7, "decoder": {"filename": "m.onnx"}}}
    (tmp_path / "genai_config.json").write_text(json.dumps(stated), encoding="utf-8")
    words = [str(path), "--ep", "qnn", "-o", str(out), "--parity", "none", "--no-place"]
    words += ["--static", "both", "--seq", "4", "--max-seq-len", "16", "--report", str(report)]
    assert main(words) == 0
    config = json.loads((out / "genai_config.json").read_text(encoding="utf-8"))
    check(config, out)
    assert config["model"]["type"] == "decoder-pipeline"
    assert config["model"]["decoder"]["sliding_window"]["window_size"] == 4
    notes = json.loads(report.read_text(encoding="utf-8"))["graphs"][0]["notes"]
    assert any("7 (pad_token_id)" in note for note in notes)


def test_explain_speaks_of_each_phase(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.onnx"
    ir.save(decoder(DECODER), path)
    node = next(n.name for n in decoder(DECODER).graph if n.op_type == "GroupQueryAttention")
    words = ["--ep", "qnn", "--static", "both", "--seq", "4", "--max-seq-len", "16"]
    assert main(["explain", f"{path}:{node}", *words]) == 0
    shown = capsys.readouterr().out
    assert "prefill:" in shown
    assert "decode:" in shown
    assert "not fixed" not in shown


def test_phases_do_not_replace_their_own_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.onnx"
    ir.save(decoder(DECODER), path)
    words = ["--static", "both", "--seq", "4", "--max-seq-len", "16", "--overwrite"]
    assert main([str(path), "--ep", "qnn@2.7.0", "-o", str(tmp_path), *words]) == 2
    assert "would delete the model" in capsys.readouterr().err
    assert path.is_file()


def test_a_cache_of_a_fixed_size_is_named() -> None:
    model = decoder(DECODER)
    fix_dims(model, {"batch": 1, "seq": 1, "past": 16, "total": 16})
    with pytest.raises(BadInput, match="have a fixed size already"):
        phases(_settings(static="decode"), model, built=False)
