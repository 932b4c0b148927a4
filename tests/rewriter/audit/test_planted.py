"""A fault planted in one layer of twelve is found, named, and written as models that show it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest

from capabilities import target
from rewriter import lower
from rewriter.cli import main
from rewriter.passes.fix_dims import fix_dims
from tests.decoders import Decoder, decoder

LAYER = "layers.6/attn/mixed"
NODE = f"{LAYER}/GroupQueryAttention"


@dataclass(frozen=True)
class Twelve:
    """A decoder of twelve layers, as it was and lowered for HTP."""

    original: Path
    lowered: Path


@pytest.fixture(scope="module")
def twelve(tmp_path_factory: pytest.TempPathFactory) -> Twelve:
    folder = tmp_path_factory.mktemp("twelve")
    original, lowered = folder / "original.onnx", folder / "lowered.onnx"
    model = decoder(Decoder(layers=12))
    ir.save(model, original)
    fix_dims(model, {"batch": 1, "seq": 4, "past": 8})
    lower(model, target("qnn", "2.7.0"))
    ir.save(model, lowered)
    return Twelve(original, lowered)


def through(model: ir.Model, node: str, position: int, op: str, constant: object) -> None:
    """Let an input of a node go through another one first."""
    found = next(n for n in model.graph if n.name == f"{NODE}/{node}")
    value = found.inputs[position]
    assert value is not None
    tensor = ir.tensor(np.asarray(constant))
    stored = ir.Value(name="planted", const_value=tensor, type=ir.TensorType(tensor.dtype))
    stored.shape = ir.Shape(tensor.shape.numpy())
    model.graph.register_initializer(stored)
    axis = [ir.AttrInt64("axis", 1 if node == "Mul_8" else 3)] if op == "Gather" else []
    planted = ir.Node("", op, [value, stored], axis, num_outputs=1, name="planted node")
    model.graph.insert_before(found, planted)
    found.replace_input_with(position, planted.outputs[0])


def swapped_heads(model: ir.Model) -> None:
    through(model, "Mul_8", 0, "Gather", np.array([1, 0, 2, 3]))


def wrong_scale(model: ir.Model) -> None:
    through(model, "Mul_8", 1, "Mul", np.float32(1.01))


def shifted_mask(model: ir.Model) -> None:
    through(model, "Add_2", 1, "Gather", np.roll(np.arange(12), 1))


@pytest.mark.parametrize("plant", [swapped_heads, wrong_scale, shifted_mask])
def test_the_node_is_named_and_the_dump_shows_it(
    plant: Callable[[ir.Model], None],
    twelve: Twelve,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = ir.load(twelve.lowered)
    plant(model)
    wrong, dumped = tmp_path / "wrong.onnx", tmp_path / "dump"
    ir.save(model, wrong)
    assert main(["audit", str(twelve.original), str(wrong), "--json", "--dump", str(dumped)]) == 4
    told = json.loads(capsys.readouterr().out)
    drift = told["drift"]
    assert not told["ok"]
    assert (drift["node"], drift["op"]) == (NODE, "com.microsoft::GroupQueryAttention")
    assert (drift["value"], drift["rule"]) == (LAYER, "attention_primitives")
    assert drift["source"] == NODE
    assert told["dump"]["nodes"][0] == 4  # and three that make its lengths of the mask
    assert told["dump"]["nodes"][1] < 60
    one, other = (run(dumped, name, LAYER) for name in ("original.onnx", "result.onnx"))
    assert np.isfinite(one).all()
    assert one.std() > 0
    assert np.abs(one - other).max() > 1e-4 * one.std()
    with np.load(dumped / "expected.npz") as stored:
        np.testing.assert_allclose(stored[LAYER], one, atol=1e-5)


def run(folder: Path, name: str, output: str) -> np.ndarray:
    """A dumped model on its inputs, by nothing but ONNX Runtime."""
    session = ort.InferenceSession(folder / name, providers=["CPUExecutionProvider"])
    with np.load(folder / "inputs.npz") as stored:
        feed = {value.name: stored[value.name] for value in session.get_inputs()}
    result = session.run([output], feed)[0]
    assert isinstance(result, np.ndarray)
    return result


def test_a_right_result_is_one_function(
    twelve: Twelve, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["audit", str(twelve.original), str(twelve.lowered), "--dump", str(tmp_path / "dump")]
    assert main(words) == 0
    assert "the two models are one function" in capsys.readouterr().out
    assert not (tmp_path / "dump").exists()


def test_the_terminal_names_what_json_does(
    twelve: Twelve, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = ir.load(twelve.lowered)
    wrong_scale(model)
    ir.save(model, tmp_path / "wrong.onnx")
    assert main(["audit", str(twelve.original), str(tmp_path / "wrong.onnx")]) == 4
    said = capsys.readouterr().out
    assert f"first drift: the value '{LAYER}' is off by" in said
    assert f"original: com.microsoft::GroupQueryAttention '{NODE}'" in said
    assert "the result is not the same function" in said


def test_other_outputs_are_another_function(
    twelve: Twelve, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = ir.load(twelve.lowered)
    model.graph.outputs.pop()
    ir.save(model, tmp_path / "less.onnx")
    assert main(["audit", str(twelve.original), str(tmp_path / "less.onnx")]) == 2
    assert "only the original has the output 'present.11.value'" in capsys.readouterr().err


def test_an_input_that_only_the_original_has(
    twelve: Twelve, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = ir.load(twelve.original)
    kind = ir.TensorType(ir.DataType.INT64)
    model.graph.inputs.append(ir.Value(name="position_ids", shape=ir.Shape([1]), type=kind))
    ir.save(model, tmp_path / "more.onnx")
    assert main(["audit", str(tmp_path / "more.onnx"), str(twelve.lowered)]) == 2
    said = capsys.readouterr().err
    assert f"{twelve.lowered} has no input 'position_ids', which " in said
