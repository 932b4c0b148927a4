"""What the long runs found, each as the smallest example of its kind."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from frontends.decoder.config import Rope
from frontends.decoder.rope import tables
from rewriter.cli import main
from rewriter.errors import BadInput, of_memory
from rewriter.source import CONTEXT
from rewriter.tape import Tape, Workspace
from tests.command_line import FAST, Capture, failure
from tests.graphs import Builder
from tests.robust.kinds import FIXTURES, STATED

F32 = ir.DataType.FLOAT
TO = ("--ep", "onnx-standard")


# -- checkpoints -----------------------------------------------------------------------------


def _no_list(config: dict[str, Any]) -> None:
    config["architectures"] = [["GemmaForCausalLM"]]


def _unknown(config: dict[str, Any]) -> None:
    config["architectures"] = [".."]


def _no_heads(config: dict[str, Any]) -> None:
    del config["num_attention_heads"]


@pytest.mark.parametrize("change", [_no_list, _unknown, _no_heads])
def test_companions_of_what_cannot_be_built(
    change: Callable[[dict[str, Any]], None], tmp_path: Path, capsys: Capture
) -> None:
    """They are asked for before the model is read."""
    folder = shutil.copytree(FIXTURES / "safetensors" / "gemma", tmp_path / "m")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    change(config)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    failure(capsys, str(folder), *TO, *FAST, "-o", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("divisor", [0.0, float("nan"), -1.0])
def test_rotary_divisors_that_are_none(divisor: float) -> None:
    graph = ir.Graph([], [], nodes=[], opset_imports={"": 23}, name="g")
    op = Tape(Workspace(graph, set()), "n", {"": 23})
    with pytest.raises(BadInput, match="rotary embedding has a divisor"):
        tables(op, Rope(4, 1e4, (1.0, divisor)), 8)


# -- what lies beside an ONNX file -----------------------------------------------------------


def _decoder(folder: Path) -> Path:
    folder.mkdir()
    for path in (FIXTURES / "decoder").iterdir():
        shutil.copyfile(path, folder / path.name)
    return folder


@pytest.mark.parametrize("layers", [[2], {"": None}, "2", None, 1.5])
def test_layers_that_are_no_number(layers: Any, tmp_path: Path, capsys: Capture) -> None:
    config = json.loads(json.dumps(STATED))
    config["model"]["decoder"]["num_hidden_layers"] = layers
    folder = _decoder(tmp_path / "m")
    (folder / "genai_config.json").write_text(json.dumps(config), encoding="utf-8")
    line = failure(capsys, str(folder), *TO, *FAST, "-o", str(tmp_path / "out"))
    assert "num_hidden_layers' is not a whole number" in line


def test_a_configuration_that_is_nested_without_end(tmp_path: Path, capsys: Capture) -> None:
    folder = _decoder(tmp_path / "m")
    (folder / "genai_config.json").write_text("[" * 100_000, encoding="utf-8")
    failure(capsys, "run", str(folder), "--ids", "1")
    failure(capsys, "plan", str(folder / "model.onnx"), "--ep", "qnn@none")
    failure(capsys, str(folder), *TO, *FAST, "-o", str(tmp_path / "out"))


@pytest.mark.parametrize("location", ["../secret.bin", "/etc/passwd", "link.bin", "a/../../x"])
def test_run_reads_nothing_outside_its_folder(
    location: str, tmp_path: Path, capsys: Capture
) -> None:
    folder = _decoder(tmp_path / "m")
    (tmp_path / "secret.bin").write_bytes(bytes(1 << 18))
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    model = onnx.load(folder / "model.onnx", load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = location
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    line = failure(capsys, "run", str(folder), "--ids", "1")
    assert "external data" in line


# -- ONNX files ------------------------------------------------------------------------------


def _written(folder: Path, model: ir.Model) -> str:
    ir.save(model, folder / "model.onnx")
    return str(folder / "model.onnx")


def _norm(declared: ir.DataType = F32, **attributes: Any) -> ir.Model:
    b = Builder()
    x, w = b.input("x", F32, (1, 8)), b.const("w", np.ones(8, np.float32))
    y = b.op("SimplifiedLayerNormalization", x, w, name="y", **attributes)
    return b.model([(y, declared, (1, 8))])


@pytest.mark.parametrize("trained", ["many", "", "-1", "9" * 5000])
def test_positions_that_are_no_number(trained: str, tmp_path: Path, capsys: Capture) -> None:
    model = _norm()
    model.metadata_props[CONTEXT] = trained
    line = failure(capsys, "plan", _written(tmp_path, model), *TO, "--static", "both")
    assert "no number of positions" in line


def test_an_attribute_of_another_type(tmp_path: Path, capsys: Capture) -> None:
    line = failure(capsys, "plan", _written(tmp_path, _norm(epsilon=[1, 2])), *TO)
    assert "the attribute epsilon" in line
    assert "has the type INTS" in line


def test_an_output_declared_as_what_it_is_not(tmp_path: Path, capsys: Capture) -> None:
    """Of one op it is a contradiction; inside, of an op with four outputs, a node that stays."""
    failure(capsys, "plan", _written(tmp_path, _norm(ir.DataType.COMPLEX128)), *TO)
    b = Builder()
    x, w = b.input("x", F32, (1, 8)), b.const("w", np.ones(8, np.float32))
    op = "com.microsoft::SkipSimplifiedLayerNormalization"
    y, _, _, total = b.node(op, (x, x, w), ["y", "", "", "sum"])
    total.type = ir.TensorType(ir.DataType.COMPLEX128)
    z = b.op("Identity", total, name="z")
    model = b.model([(y, F32, (1, 8)), (z, ir.DataType.COMPLEX128, (1, 8))])
    assert main(["plan", _written(tmp_path, model), *TO]) in {2, 3}


# -- memory ----------------------------------------------------------------------------------


def test_memory_that_ran_out_inside_of_another_error() -> None:
    """A library turns it into an error of its own, and we into one of ours."""

    def exhaust() -> None:
        raise MemoryError

    def infer() -> None:
        try:
            exhaust()
        except MemoryError as error:
            raise ValueError("shape inference failed") from error

    def refuse() -> None:
        try:
            infer()
        except ValueError:
            raise BadInput("shapes do not fit together") from None

    with pytest.raises(BadInput) as caught:
        refuse()
    assert of_memory(caught.value)
    assert not of_memory(BadInput("shapes do not fit together"))
