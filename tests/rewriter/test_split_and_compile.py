"""The command with ``--split`` and ``--compile``: files, report, and what is proven of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest

from rewriter.chain import on_cpu, place_chain, require_equal, run_chain
from rewriter.cli import main
from rewriter.errors import RewriteError
from rewriter.parity.trial import trial
from rewriter.placement import Placement
from rewriter.split import write_parts
from tests.decoders import Decoder, decoder
from tests.htp import needs_qnn

SPEC = Decoder(weights="int4", layers=2)
STATIC = ("--static", "both", "--seq", "4", "--max-seq-len", "16")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "m.onnx"
    ir.save(decoder(SPEC), path)
    return path


def _run(model: Path, out: Path, *words: str) -> tuple[int, list[dict[str, Any]]]:
    report = out.with_suffix(".json")
    code = main([str(model), "--ep", "qnn@2.7.0", "-o", str(out), "--report", str(report), *words])
    return code, json.loads(report.read_text())["graphs"] if report.exists() else []


def test_parts_stand_for_the_whole(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, graphs = _run(model, out, *STATIC, "--split", "2", "--no-place")
    assert code == 0
    names = ["1-embedding", "2-layers", "3-layers", "4-head"]
    assert sorted(p.name for p in out.glob("*.onnx")) == sorted(
        f"{phase}-{name}.onnx" for phase in ("prefill", "decode") for name in names
    )
    assert (out / "model.onnx.data").is_file()
    for graph in graphs:
        assert graph["parity"]["model"]["ok"]
        assert [part["name"] for part in graph["parts"]] == [n[2:] for n in names]
        assert all(part["hands"] for part in graph["parts"][:-1])
        assert sum(part["nodes"] for part in graph["parts"]) >= sum(graph["ops_after"].values())


def test_more_parts_than_layers(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _ = _run(model, tmp_path / "out", *STATIC, "--split", "3", "--no-place")
    assert code == 2
    assert "2 layers" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def _parts(model: Path, tmp_path: Path) -> tuple[Path, list[Path]]:
    _run(model, tmp_path / "out", *STATIC, "--no-place", "--parity", "none")
    whole = tmp_path / "out" / "decode.onnx"
    return whole, [part.path for part in write_parts(whole, 2)]


def test_parts_that_compute_something_else_are_found(model: Path, tmp_path: Path) -> None:
    whole, parts = _parts(model, tmp_path)
    feeds = trial(ir.load(whole), seed=0).feeds[:1]
    require_equal(whole, parts, feeds, 60)
    part = ir.load(parts[1])
    divisor = next(node for node in part.graph if node.op_type == "Softmax")
    kind = ir.Node("", "Sigmoid", divisor.inputs, num_outputs=1)
    part.graph.insert_after(divisor, kind)
    ir.convenience.replace_all_uses_with(divisor.outputs, kind.outputs)
    ir.save(part, parts[1])
    with pytest.raises(RewriteError, match="its parts compute another"):
        require_equal(whole, parts, feeds, 60)


def test_a_part_is_placed_on_what_those_before_it_computed(model: Path, tmp_path: Path) -> None:
    whole, parts = _parts(model, tmp_path)
    feeds = trial(ir.load(whole), seed=0).feeds[:1]
    known = run_chain(parts, feeds, on_cpu(60))[0]

    def place(file: Path, given: Any) -> Placement:
        assert {value.name for value in ir.load(file).graph.inputs} == set(given[0])
        outputs = [dict(one) for one in on_cpu(60)(file, given)]
        return Placement("", 3, 1, {"Add": 1}, [("n", "Add")], {}, 1, outputs, 0.5, full=False)

    placed = place_chain(parts, feeds, place)
    assert len(placed) == len(parts)
    assert (placed[-1].outputs[0]["logits"] == known["logits"]).all()
    assert set(feeds[0]).isdisjoint(placed[-1].outputs[0])


@needs_qnn
def test_compiled_parts(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ("--static", "decode", "--max-seq-len", "16", "--split", "auto", "--compile")
    code, graphs = _run(model, out, *words, "--soc", "SM8750")
    assert code == 0
    made = graphs[0]["compiled"]
    assert [m["context"] for m in made] == [
        f"decode-{name}_ctx.onnx" for name in ("1-embedding", "2-layers", "3-head")
    ]
    assert all(m["equal"] is True and "SM8750" in m["soc"] for m in made)
    assert all((out / m["binary"]).stat().st_size == m["bytes"] for m in made)
    assert graphs[0]["placement"]["on_cpu"] == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--ep", "openvino", "--compile"], "--compile is for qnn only"),
        (["--ep", "openvino", "--soc", "60"], "--soc 60: is for qnn"),
        (["--ep", "qnn@2.7.0", "--soc", "9999"], "qnn knows no SoC '9999'"),
        (["--ep", "qnn@2.7.0", "--split", "0"], "'0' is no whole number from 1"),
    ],
)
def test_what_cannot_be_asked(
    model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    said: str,
) -> None:
    try:
        code = main([str(model), "-o", str(tmp_path / "out"), *STATIC, *words])
    except SystemExit as stop:
        code = int(str(stop.code))
    assert code == 2
    assert said in capsys.readouterr().err
