"""Elementwise ops of rank 5 at rank 4: the same numbers, and whole on HTP."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.lowering import lower
from rewriter.rules.lower.elementwise import OPS
from tests import htp, ort
from tests.graphs import Builder

SHAPE = (2, 1, 3, 2, 4)
QNN = target("qnn", "2.7.0")
ALPHA = {"alpha": 0.5}
ATTRIBUTES = {"Elu": ALPHA, "HardSigmoid": {"alpha": 0.3, "beta": 0.4}, "Selu": ALPHA}


def node(op: str) -> tuple[ir.Model, ort.Arrays]:
    b = Builder()
    dtype = ir.DataType.BOOL if op == "Not" else ir.DataType.FLOAT
    x = b.input("x", dtype, SHAPE)
    numbers = np.linspace(0.1, 2.9, 48) if op in {"Log", "Sqrt"} else np.linspace(-3.1, 3.2, 48)
    values = numbers > 0 if op == "Not" else numbers.astype(np.float32)
    y = b.op(op, x, name="y", **ATTRIBUTES.get(op, {}))
    return b.model([(y, dtype, SHAPE)]), {"x": values.reshape(SHAPE)}


@pytest.mark.parametrize("op", OPS)
def test_equals_the_kernel(op: str) -> None:
    model, given = node(op)
    expected = ort.run(model, given)["y"].astype(np.float32)
    assert lower(model, QNN).sites() == {(f"{op.lower()}_at_rank_4", op): 1}
    assert ort.worst(expected, ort.run(model, given)["y"].astype(np.float32)) == pytest.approx(0)


@htp.needs_qnn
@pytest.mark.parametrize("op", OPS)
def test_placed_whole_on_htp(op: str, tmp_path: Path) -> None:
    model, given = node(op)
    expected = ort.run(model, given)
    lower(model, QNN)
    htp.check(model, given, expected, tmp_path, least=0)
