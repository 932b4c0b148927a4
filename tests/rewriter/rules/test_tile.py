"""Tile as Concat, bit by bit against ONNX Runtime's kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.lowering import Stuck, lower
from tests import htp, ort, toys
from tests.graphs import Builder

TYPES = {
    name: ir.DataType[name]
    for name in ("FLOAT", "FLOAT16", "INT64", "INT32", "INT8", "UINT8", "BOOL")
}
NONE = toys.target("Tile | any | illegal")
QNN = target("qnn", "2.7.0")


def node(
    dtype: ir.DataType, shape: tuple[int, ...], repeats: tuple[int, ...], *, const: bool = True
) -> ir.Model:
    b = Builder()
    x = b.input("x", dtype, shape)
    times = np.array(repeats, np.int64)
    given = (
        b.const("repeats", times)
        if const
        else b.input("repeats", ir.DataType.INT64, (len(repeats),))
    )
    result = [size * count for size, count in zip(shape, repeats, strict=True)]
    return b.model([(b.op("Tile", x, given, name="y"), dtype, result)])


def values(dtype: ir.DataType, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    drawn = np.random.default_rng(1).integers(0, 2 if dtype == ir.DataType.BOOL else 100, shape)
    return np.asarray(drawn.astype(dtype.numpy()))


SIZES = [
    ((1, 3, 2, 1), (2, 1, 3, 1)),
    ((1, 3, 1, 2, 2), (1, 1, 4, 1, 2)),
    ((2, 3), (1, 1)),
    ((1, 1), (3, 2)),
    ((4,), (3,)),
]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_equals_the_kernel(sizes: tuple[tuple[int, ...], tuple[int, ...]], dtype: str) -> None:
    model = node(TYPES[dtype], *sizes)
    given = {"x": values(TYPES[dtype], sizes[0])}
    expected = ort.run(model, given)["y"]
    lower(model, NONE)
    assert not any(n.op_type == "Tile" for n in model.graph)
    assert np.array_equal(expected, ort.run(model, given)["y"])


@pytest.mark.parametrize(
    ("repeats", "const", "reason"),
    [
        ((1, 2), False, "repeats is not a constant"),
        ((1, 65), True, "more than 64 copies along an axis"),
        ((1, 0), True, "a repeat of 0 leaves nothing"),
    ],
)
def test_refuses(repeats: tuple[int, ...], const: bool, reason: str) -> None:
    with pytest.raises(Stuck, match=reason):
        lower(node(ir.DataType.FLOAT, (2, 3), repeats, const=const), NONE)


@htp.needs_qnn
@pytest.mark.parametrize("dtype", ["INT32", "BOOL", "UINT8"])
def test_placed_whole_on_htp(dtype: str, tmp_path: Path) -> None:
    model = node(TYPES[dtype], *SIZES[1])
    given = {"x": values(TYPES[dtype], SIZES[1][0])}
    expected = ort.run(model, given)
    lower(model, QNN)
    assert np.array_equal(expected["y"], htp.run(model, given, tmp_path)["y"])
