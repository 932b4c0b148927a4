"""What is written out before activations are quantized, and tables that become integers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter import lower
from rewriter.activations import Calibration, quantize_activations
from rewriter.activations.integers import in_integers
from rewriter.nodes import constant
from rewriter.shapes import infer_model
from tests import ort
from tests.graphs import Builder

F32 = ir.DataType.FLOAT
ROWS, SIZE = 8, 16


def turned(approximate: str = "tanh") -> ir.Model:
    """Gelu of what was turned by its position."""
    b = Builder()
    angles = np.outer(np.arange(ROWS), 1e2 ** -(np.arange(SIZE // 2) / SIZE)).astype(np.float32)
    tables = [b.const(name, f(angles)) for name, f in (("cos", np.cos), ("sin", np.sin))]
    x = b.input("x", F32, (1, 2, ROWS, SIZE))
    positions = b.const("positions", np.arange(ROWS)[None])
    y = b.op("RotaryEmbedding", x, *tables, positions, name="turned")
    y = b.op("Gelu", y, name="y", approximate=approximate)
    model = b.model([(y, F32, (1, 2, ROWS, SIZE))], 24)
    infer_model(model)
    return model


@pytest.mark.parametrize(("approximate", "left"), [("tanh", 0), ("none", 1)])
def test_ops_in_halves_are_written_out(approximate: str, left: int) -> None:
    """Gelu by erf has no other form: HTP has no Erf."""
    model = turned(approximate)
    x = np.random.default_rng(0).normal(0, 2, (1, 2, ROWS, SIZE)).astype(np.float32)
    before = ort.run(model, {"x": x})["y"]
    lower(model, in_integers(target("qnn", "2.7.0")))
    ops = Counter(node.op_type for node in model.graph)
    assert (ops["RotaryEmbedding"], ops["Gelu"]) == (0, left)
    assert np.abs(ort.run(model, {"x": x})["y"] - before).max() < 2e-6


def test_what_a_person_said_stands() -> None:
    model, said = turned(), target("qnn", "2.7.0", legal=["RotaryEmbedding"])
    lower(model, in_integers(said))
    ops = {node.op_type for node in model.graph}
    assert "RotaryEmbedding" in ops
    assert "Gelu" not in ops


def test_rows_of_a_table_that_were_never_looked_up_keep_their_numbers(tmp_path: Path) -> None:
    b, rng = Builder(), np.random.default_rng(0)
    table = rng.uniform(-1, 1, (32, 4)).astype(np.float32)
    table[20] = 50, -50, 25, -25
    ids = b.input("ids", ir.DataType.INT64, (1, 4))
    rows = b.op("Gather", b.const("table", table), ids, name="rows")
    y = b.op("Mul", rows, rows, name="y")
    model = b.model([(rows, F32, (1, 4, 4)), (y, F32, (1, 4, 4))], 24)
    infer_model(model)
    file = tmp_path / "floats.onnx"
    ir.save(model, file)
    seen = Calibration("given", feeds=({"ids": np.arange(4)[None]},))
    made = quantize_activations(model, file, target("qnn", "2.7.0"), 16, seen)
    assert made.units == {16: 2}
    gather = next(node for node in model.graph if node.op_type == "Gather")
    read, after = gather.inputs[0], gather.outputs[0].consumers()[0]
    assert read is not None
    stored = read.producer()
    assert stored is not None
    codes = constant(stored.inputs[0])
    assert codes is not None
    assert codes.dtype == ir.DataType.UINT16
    assert list(stored.inputs[1:]) == list(after.inputs[1:])  # one scale: codes pass as they are
    found = ort.run(model, {"ids": np.array([[20, 0, 1, 2]])})["rows"]
    assert np.abs(found - table[[20, 0, 1, 2]]).max() <= 100 / 65535 / 2 + 1e-5
