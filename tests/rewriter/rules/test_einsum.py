"""Einsum as products of pairs, against ONNX Runtime's kernel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.lowering import Stuck, lower
from tests import htp, ort, toys
from tests.graphs import Builder

F32, F16 = ir.DataType.FLOAT, ir.DataType.FLOAT16
NONE = toys.target("Einsum | any | illegal")
QNN = target("qnn", "2.7.0")


def node(equation: str, *shapes: tuple[int, ...], dtype: ir.DataType = F32) -> ir.Model:
    b = Builder()
    inputs = [b.input(f"x{i}", dtype, shape) for i, shape in enumerate(shapes)]
    result = np.einsum(equation.replace(" ", ""), *(np.zeros(shape) for shape in shapes))
    return b.model([(b.op("Einsum", *inputs, name="y", equation=equation), dtype, result.shape)])


def feeds(model: ir.Model) -> ort.Arrays:
    rng = np.random.default_rng(1)
    return {
        v.name or "": rng.standard_normal(v.shape.numpy()).astype(v.dtype.numpy())  # type: ignore[union-attr]  # it has a shape
        for v in model.graph.inputs
    }


SHAPES: dict[str, list[tuple[int, ...]]] = {
    "bhqd,bhkd->bhqk": [(2, 3, 4, 5), (2, 3, 6, 5)],
    "bhqk,bhkd->bhqd": [(2, 3, 4, 6), (2, 3, 6, 5)],
    "bqhd,bkhd->bhqk": [(2, 4, 3, 5), (2, 6, 3, 5)],
    "bhqk,bkhd->bqhd": [(2, 3, 4, 6), (2, 6, 3, 5)],
    "bghqd,bgkd->bghqk": [(1, 2, 3, 4, 5), (1, 2, 6, 5)],
    "bhwqc,hkc->bhwqk": [(1, 3, 2, 4, 5), (3, 6, 5)],
    "bsh,hd->bsd": [(2, 3, 4), (4, 5)],
    "bsd,hde->bshe": [(2, 3, 4), (5, 4, 6)],
    "bshe,hed->bsd": [(2, 3, 4, 5), (4, 5, 6)],
    "abc,cde->abde": [(2, 3, 4), (4, 5, 6)],
    "abcd,efcd->abef": [(2, 3, 4, 5), (2, 6, 4, 5)],
    "bld,d->bl": [(2, 3, 4), (4,)],
    "d,bld->bl": [(4,), (2, 3, 4)],
    "bij,bij->b": [(2, 3, 4), (2, 3, 4)],
    "bd,bd->bd": [(2, 3), (2, 3)],
    "i,j->ij": [(3,), (4,)],
    "i , d -> i d": [(3,), (4,)],
    "bi,c->cb": [(2, 3), (4,)],
    "...ij,...jk->...ik": [(2, 3, 4), (2, 4, 5)],
    "...d,d->...": [(2, 3, 4), (4,)],
    "ij,jk,kl->il": [(2, 3), (3, 4), (4, 5)],
    "ij,kj": [(2, 3), (4, 3)],
    "bij->bji": [(2, 3, 4)],
    "bij->bi": [(2, 3, 4)],
    "ij->": [(2, 3)],
    "i->i": [(3,)],
}


@pytest.mark.parametrize("equation", SHAPES)
def test_equals_the_kernel(equation: str) -> None:
    model = node(equation, *SHAPES[equation])
    given = feeds(model)
    expected = ort.run(model, given)["y"]
    lower(model, NONE)
    assert not any(n.op_type == "Einsum" for n in model.graph)
    assert ort.worst(expected, ort.run(model, given)["y"]) < 1e-5


@pytest.mark.parametrize(
    ("equation", "ops"),
    [
        ("bhqk,bhkd->bhqd", ["MatMul"]),
        ("bhqd,bhkd->bhqk", ["Transpose", "MatMul"]),
        ("bsh,hd->bsd", ["MatMul"]),
        ("i,j->ij", ["Reshape", "Reshape", "Mul"]),
    ],
)
def test_no_more_ops_than_needed(equation: str, ops: list[str]) -> None:
    model = node(equation, *SHAPES[equation])
    lower(model, NONE)
    assert [n.op_type for n in model.graph] == ops


@pytest.mark.parametrize(
    ("equation", "shapes", "reason"),
    [
        ("ii->i", [(3, 3)], "ii->i takes a diagonal"),
        ("bij,bjk->bik", [(1, 3, 4), (2, 4, 5)], "a dim of 2 against 1 broadcasts"),
    ],
)
def test_refuses(equation: str, shapes: list[tuple[int, ...]], reason: str) -> None:
    with pytest.raises(Stuck, match=reason):
        lower(node(equation, *shapes), NONE)


def test_refuses_integers_and_dims_that_are_not_fixed() -> None:
    b = Builder()
    x = b.input("x", ir.DataType.INT32, (2, 3))
    y = b.op("Einsum", x, name="y", equation="ij->ji")
    with pytest.raises(Stuck, match="products of INT32 are not handled"):
        lower(b.model([(y, ir.DataType.INT32, (3, 2))]), NONE)
    b = Builder()
    y = b.op("Einsum", b.input("x", F32, ("n", 3)), name="y", equation="ij->ji")
    with pytest.raises(Stuck, match="an operand has a dim that is not fixed"):
        lower(b.model([(y, F32, (3, "n"))]), NONE)


@htp.needs_qnn
@pytest.mark.parametrize("dtype", [F32, F16], ids=["fp32", "fp16"])
@pytest.mark.parametrize(
    "equation",
    ["bqhd,bkhd->bhqk", "bhqk,bkhd->bqhd", "bghqd,bgkd->bghqk", "bsd,hde->bshe", "bshe,hed->bsd"],
)
def test_placed_whole_on_htp(equation: str, dtype: ir.DataType, tmp_path: Path) -> None:
    model = node(equation, *SHAPES[equation], dtype=dtype)
    given = feeds(model)
    wide = node(equation, *SHAPES[equation])
    expected = ort.run(wide, {k: v.astype(np.float32) for k, v in given.items()})
    lower(model, QNN)
    assert not any(n.op_type == "Einsum" for n in model.graph)
    htp.check(model, given, expected, tmp_path)


def test_openvino_before_2025_2_compiles_no_ellipsis() -> None:
    equation = "...ij,...jk->...ik"
    for version, taken in (("2025.0.0", False), ("2025.2.0", True)):
        model = node(equation, *SHAPES[equation])
        assert lower(model, target("openvino", version)).changed is not taken
