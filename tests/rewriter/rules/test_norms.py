"""SkipSimplifiedLayerNormalization and SimplifiedLayerNormalization, lowered, against ORT."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.lowering import Stuck, lower
from tests import ort
from tests.graphs import Builder

F32 = ir.DataType.FLOAT
STANDARD, QNN = target("onnx-standard"), target("qnn", "2.7.0")


def skip_norm(*, bias: bool, names: list[str], shape: tuple[int, ...] = (2, 3, 8)) -> ir.Model:
    b = Builder()
    x, skip = b.input("x", F32, shape), b.input("skip", F32, shape)
    weights = [b.const("gamma", b.rng.standard_normal(8).astype(np.float32))]
    if bias:
        weights.append(b.const("bias", b.rng.standard_normal(8).astype(np.float32)))
    outputs = b.node("com.microsoft::SkipSimplifiedLayerNormalization", [x, skip, *weights],
                     names, epsilon=1e-3)  # fmt: skip
    return b.model([(value, F32, shape) for value in outputs if value.name])


@pytest.mark.parametrize("ep", [STANDARD, QNN], ids=str)
@pytest.mark.parametrize("shape", [(2, 3, 8), (5, 8)], ids=["rank 3", "rank 2"])
@pytest.mark.parametrize("names", [["y"], ["y", "", "", "sum"]], ids=["norm", "norm and sum"])
@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
def test_skip_norm(ep: object, shape: tuple[int, ...], names: list[str], bias: bool) -> None:
    """D33: the bias joins the sum, the norm sees the sum, the fourth output is the sum."""
    model = skip_norm(bias=bias, names=names, shape=shape)
    rng = np.random.default_rng(1)
    given = {n: rng.standard_normal(shape).astype(np.float32) for n in ("x", "skip")}
    expected = ort.run(model, given)
    lower(model, ep)  # type: ignore[arg-type]  # loosely typed in tests
    actual = ort.run(model, given)
    assert list(actual) == [name for name in names if name]
    for name, reference in expected.items():
        assert ort.worst(reference, actual[name]) < 1e-6


def norm(
    x_type: ir.DataType = F32,
    opset: int = 22,
    outputs: int = 1,
    more: dict[str, float] | None = None,
) -> ir.Model:
    b = Builder()
    x = b.input("x", x_type, (2, 3, 8))
    scale = b.const("scale", b.rng.standard_normal(8).astype(x_type.numpy()))
    found = b.node(
        "SimplifiedLayerNormalization", [x, scale], ["y", "inverse"][:outputs], **(more or {})
    )
    shapes = [(2, 3, 8), (2, 3, 1)]
    return b.model([(v, F32 if i else x_type, shapes[i]) for i, v in enumerate(found)], opset)


@pytest.mark.parametrize("opset", [18, 22, 23])
@pytest.mark.parametrize("more", [{}, {"epsilon": 1e-2}, {"axis": 2}], ids=str)
def test_norm(opset: int, more: dict[str, float]) -> None:
    model = norm(opset=opset, more=more)
    x = {"x": np.random.default_rng(1).standard_normal((2, 3, 8)).astype(np.float32)}
    expected = ort.run(model, x)["y"]
    report = lower(model, STANDARD)
    assert model.opset_imports[""] == opset
    assert report.ops_after["RMSNormalization"] == int(opset >= 23)
    assert ort.worst(expected, ort.run(model, x)["y"]) < 1e-6


def test_norm_multiplies_by_the_weight_last() -> None:
    """Trap 3 of lowering.md: HTP fails to finalize Mul(weight, n)."""
    model = norm()
    lower(model, STANDARD)
    product = model.graph.outputs[0].producer()
    assert product is not None
    assert product.op_type == "Mul"
    assert product.inputs[1] is not None
    assert product.inputs[1].is_initializer()


def test_norm_of_large_halves_does_not_overflow() -> None:
    """stash_type 1 computes in float32: x² of 300 is out of range in float16."""
    model = norm(ir.DataType.FLOAT16)
    x = {"x": (300 * np.random.default_rng(1).standard_normal((2, 3, 8))).astype(np.float16)}
    expected = ort.run(model, x)["y"].astype(np.float32)
    lower(model, STANDARD)
    actual = ort.run(model, x)["y"].astype(np.float32)
    assert np.isfinite(actual).all()
    assert ort.worst(expected, actual) < 2e-3


def test_norm_gives_its_second_output_where_it_can() -> None:
    model = norm(outputs=2)
    x = {"x": np.random.default_rng(1).standard_normal((2, 3, 8)).astype(np.float32)}
    exact = 1 / np.sqrt((x["x"].astype(np.float64) ** 2).mean(-1, keepdims=True) + 1e-5)
    lower(model, STANDARD)
    assert ort.worst(exact, ort.run(model, x)["inverse"]) < 1e-5


def test_skip_norm_refuses_its_middle_outputs() -> None:
    with pytest.raises(Stuck, match="output mean is used and not produced"):
        lower(skip_norm(bias=False, names=["y", "mean"]), QNN)


@pytest.mark.parametrize("name", ["RMSNormalization", "SimplifiedLayerNormalization"])
@pytest.mark.parametrize(("version", "rows"), [("2.4.0", True), ("2.7.0", False)])
def test_a_form_in_doubt_is_replaced_where_that_is_free(
    name: str, version: str, rows: bool
) -> None:
    """D32: wrong at rank 4 on a device at 2.4, right in the emulator; rank 3 costs nothing."""
    b = Builder()
    x = b.input("x", F32, (1, 3, 4, 8))
    scale = b.const("scale", b.rng.standard_normal(8).astype(np.float32))
    y = b.op(name, x, scale, name="y", axis=-1)
    model = b.model([(y, F32, (1, 3, 4, 8))], 23)
    given = {"x": np.random.default_rng(1).standard_normal((1, 3, 4, 8)).astype(np.float32)}
    expected = ort.run(model, given)["y"]
    lower(model, target("qnn", version))
    ops = [n.op_type for n in model.graph]
    assert ops == (["Reshape", name, "Reshape"] if rows else [name])
    assert np.array_equal(expected, ort.run(model, given)["y"])


def test_a_doubt_that_costs_something_is_only_said() -> None:
    """MatMulNBits: reported on the CPU at 2.4.0, measured on HTP."""
    from rewriter.passes.fix_dims import fix_dims
    from tests.decoders import decoder

    model = decoder()
    fix_dims(model, {"batch": 1, "seq": 1, "past": 8})
    report = lower(model, target("qnn", "2.4.0"))
    assert report.ops_after["com.microsoft::MatMulNBits"] == 11
    (doubt,) = [note for note in report.notes if note.startswith("doubt:")]
    assert "MatMulNBits" in doubt
    assert "x 11" in doubt
