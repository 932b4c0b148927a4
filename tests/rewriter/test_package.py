"""A folder of several ONNX files is one model: each file is rewritten, with one report."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from rewriter.cli import main
from tests.decoders import Decoder, decoder
from tests.graphs import Builder

SPEC = Decoder(weights="fp32", layers=1)
F32 = ir.DataType.FLOAT


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Embedding, decoder and vision encoder, as onnxruntime-genai has them."""
    folder = tmp_path_factory.mktemp("package")
    ir.save(_embedding(), folder / "embedding.onnx")
    ir.save(_decoder(), folder / "text.onnx", external_data="text.onnx.data")
    ir.save(_vision(), folder / "vision.onnx")
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    return folder


def _embedding() -> ir.Model:
    b = Builder(2)
    ids = b.input("input_ids", ir.DataType.INT64, ("batch_size", "sequence_length"))
    table = b.rng.standard_normal((SPEC.vocabulary, SPEC.hidden)).astype(np.float32)
    rows = b.op("Gather", b.const("embed.weight", table), ids, name="inputs_embeds")
    return b.model([(rows, F32, ("batch_size", "sequence_length", SPEC.hidden))], 22)


def _decoder() -> ir.Model:
    model = decoder(SPEC)
    lookup = next(node for node in model.graph if node.name == "embed/Gather")
    rows = ir.Value(name="inputs_embeds", shape=_tokens(SPEC.hidden), type=ir.TensorType(F32))
    ir.convenience.replace_all_uses_with(lookup.outputs[0], rows)
    model.graph.remove(lookup, safe=True)
    del model.graph.inputs[0]
    model.graph.inputs.insert(0, rows)
    del model.graph.initializers["embed.weight"]
    return model


def _tokens(width: int) -> ir.Shape:
    return ir.Shape(["batch_size", "sequence_length", width])


def _vision() -> ir.Model:
    b = Builder(1)
    pixels = b.input("pixel_values", F32, ("patches", 48))
    weight = b.const("patch.weight", b.rng.standard_normal((48, 64)).astype(np.float32))
    features = b.op("MatMul", pixels, weight, name="image_features")
    return b.model([(features, F32, ("patches", 64))], 22)


def _run(folder: Path, out: Path, *words: str) -> tuple[int, list[dict[str, object]]]:
    report = out.with_suffix(".json")
    code = main([str(folder), "-o", str(out), "--report", str(report), *words])
    return code, json.loads(report.read_text())["graphs"] if report.exists() else []


STATIC = ("--static", "both", "--seq", "4", "--max-seq-len", "16", "--dim", "patches=6")


def test_each_file_is_rewritten(package: Path, tmp_path: Path) -> None:
    dims = [word for dim in ("batch=1", "seq=4", "past=8") for word in ("--dim", dim)]
    code, graphs = _run(package, tmp_path / "out", "--ep", "onnx-standard", *dims)
    assert code == 0
    assert [(g["file"], g["role"]) for g in graphs] == [
        ("embedding.onnx", "embedding"),
        ("text.onnx", "decoder"),
        ("vision.onnx", "vision encoder"),
    ]
    assert all(g["parity"]["model"]["ok"] for g in graphs)  # type: ignore[index]  # JSON
    assert (tmp_path / "out" / "tokenizer.json").is_file()
    weights = ir.load(tmp_path / "out" / "text.onnx").graph.initializers.values()
    places = {
        v.const_value.location for v in weights if isinstance(v.const_value, ir.ExternalTensor)
    }
    assert places == {"text.onnx.data"}


def test_a_folder_of_ours_again_keeps_one_weight_file(package: Path, tmp_path: Path) -> None:
    words = ("--ep", "qnn@2.7.0", "--no-place", "--parity", "none")
    _run(package / "text.onnx", tmp_path / "one", *words, *STATIC[:-2])
    code, graphs = _run(tmp_path / "one", tmp_path / "two", *words)
    assert code == 0
    assert [g["rules"] for g in graphs] == [[], []]
    files = [{p.name for p in (tmp_path / out).iterdir()} for out in ("one", "two")]
    assert files[0] == files[1]
    weights = {name for name in files[0] if name.endswith(".data")}
    assert weights == {"model.onnx.data"}


def test_the_embedding_follows_the_phases_of_the_decoder(package: Path, tmp_path: Path) -> None:
    code, graphs = _run(package, tmp_path / "out", "--ep", "qnn@2.7.0", "--no-place", *STATIC)
    assert code == 0
    shapes = {str(g["file"]): _shape(tmp_path / "out" / str(g["file"])) for g in graphs}
    assert shapes == {
        "embedding-prefill.onnx": [1, 4],
        "embedding-decode.onnx": [1, 1],
        "text-prefill.onnx": [1, 4, 64],
        "text-decode.onnx": [1, 1, 64],
        "vision.onnx": [6, 48],
    }


def test_the_decoder_alone_is_split(package: Path, tmp_path: Path) -> None:
    words = ("--ep", "qnn@2.7.0", "--no-place", *STATIC, "--split", "1")
    code, graphs = _run(package, tmp_path / "out", *words)
    assert code == 0
    parts = {str(g["phase"]): len(g["parts"]) for g in graphs}  # type: ignore[arg-type]  # JSON
    assert parts == {
        "embedding-prefill": 0,
        "embedding-decode": 0,
        "text-prefill": 2,
        "text-decode": 2,
        "vision": 0,
    }
    files = {p.name for p in (tmp_path / "out").glob("*.onnx")}
    assert {"text-prefill-1-layers.onnx", "text-prefill-2-head.onnx", "vision.onnx"} <= files
    assert "text-prefill.onnx" not in files


@pytest.mark.parametrize("words", [(), ("--split", "1")], ids=["whole", "parts"])
def test_what_is_written_generates_what_the_package_does(
    words: tuple[str, ...], package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The decoder is driven with its embedding; ``rewrite run`` has no use for the encoder."""
    fast = ("--ep", "qnn@2.7.0", "--no-place", "--parity", "none")
    assert _run(package, tmp_path / "out", *fast, *STATIC, *words)[0] == 0
    found = []
    for folder in (package, tmp_path / "out"):
        capsys.readouterr()
        assert main(["run", str(folder), "--ids", "3,1,4,1,5", "--max-new-tokens", "6"]) == 0
        found.append(capsys.readouterr().out.split(","))
    assert found[0] == found[1]
    assert len(set(found[0])) > 2


def _shape(file: Path) -> Sequence[object]:
    first = ir.load(file).graph.inputs[0]
    assert first.shape is not None
    return list(first.shape)


def test_a_dim_that_no_file_has(
    package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _ = _run(package, tmp_path / "out", "--ep", "qnn@2.7.0", "--dim", "patch=6")
    assert code == 2
    assert "--dim patch: none of the 3 files (embedding, text, vision)" in capsys.readouterr().err


def test_static_without_a_decoder(
    package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "encoders"
    folder.mkdir()
    for name in ("vision", "embedding"):
        shutil.copy(package / f"{name}.onnx", folder)
    code, _ = _run(folder, tmp_path / "out", "--ep", "qnn@2.7.0", *STATIC)
    assert code == 2
    assert "none of embedding, vision has one" in capsys.readouterr().err


def test_the_plan_names_each_file(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(package), "--ep", "qnn@2.7.0", *STATIC]) == 0
    out = capsys.readouterr().out
    assert "embedding-prefill:" in out
    assert "text-decode:" in out
    assert "vision:" in out


def test_explain_finds_the_file_of_a_node(
    package: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", f"{package}:matmul", "--ep", "qnn@2.7.0", *STATIC]) == 2
    assert "the model has no node 'matmul'; near: " in capsys.readouterr().err
    assert main(["explain", f"{package}:image_features/MatMul", "--ep", "qnn@2.7.0", *STATIC]) == 0
    assert "MatMul" in capsys.readouterr().out
