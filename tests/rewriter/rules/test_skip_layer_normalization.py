"""SkipLayerNormalization lowered, against ONNX Runtime's kernel, all four outputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import Target, target
from rewriter.lowering import Stuck, lower
from tests import htp, ort
from tests.contrib.skip_layer_normalization import ALL, OUTPUTS, WEIGHTS, feeds, node

F32, F16 = ir.DataType.FLOAT, ir.DataType.FLOAT16
STANDARD, QNN = target("onnx-standard"), target("qnn", "2.7.0")


@pytest.mark.parametrize("ep", [STANDARD, QNN], ids=str)
@pytest.mark.parametrize("outputs", OUTPUTS, ids=str)
@pytest.mark.parametrize("weights", WEIGHTS, ids=str)
def test_equals_the_kernel(ep: Target, outputs: tuple[str, ...], weights: tuple[str, ...]) -> None:
    model = node(outputs, weights=weights, epsilon=1e-3)
    given = feeds(model)
    expected = ort.run(model, given)
    lower(model, ep)
    actual = ort.run(model, given)
    assert list(actual) == [name for name in outputs if name]
    for name, reference in expected.items():
        assert ort.worst(reference, actual[name]) < 2e-6


@pytest.mark.parametrize("skip_shape", [(1, 3, 8), (3, 8)], ids=str)
def test_a_skip_for_the_whole_batch(skip_shape: tuple[int, ...]) -> None:
    model = node(ALL, skip_shape=skip_shape)
    given = feeds(model)
    expected = ort.run(model, given)
    lower(model, QNN)
    actual = ort.run(model, given)
    assert all(ort.worst(expected[name], actual[name]) < 2e-6 for name in ALL)


@pytest.mark.parametrize("skip_shape", [(8,), (1, 1, 8), (2, 1, 8), (4, 8)], ids=str)
def test_refuses_a_skip_that_does_not_fit(skip_shape: tuple[int, ...]) -> None:
    model = node(skip_shape=skip_shape)
    with pytest.raises(Stuck, match=r"skip .* does not fit input"):
        lower(model, QNN)


def test_dims_need_not_be_fixed() -> None:
    model = node(ALL, weights=WEIGHTS[3])
    for value in (*model.graph.inputs, *model.graph.outputs):
        assert value.shape is not None
        value.shape = ir.Shape(["batch", "tokens", value.shape[2]])
    given = feeds(node(ALL))
    expected = ort.run(model, given)
    lower(model, STANDARD)
    actual = ort.run(model, given)
    assert all(ort.worst(expected[name], actual[name]) < 2e-6 for name in ALL)


def test_rank_2_and_the_default_epsilon() -> None:
    model = node(shape=(5, 8), skip_shape=(5, 8))
    given = {name: 1e-6 * array for name, array in feeds(model).items()}
    expected = ort.run(model, given)["y"]
    lower(model, QNN)
    assert ort.worst(expected, ort.run(model, given)["y"]) < 2e-6


def test_half_precision() -> None:
    half, wide = (node(("y", "", "", "sum"), dtype=dtype) for dtype in (F16, F32))
    stored = half.graph.initializers["gamma"].const_value
    assert stored is not None
    wide.graph.initializers["gamma"].const_value = ir.tensor(
        stored.numpy().astype(np.float32), name="gamma"
    )
    given = feeds(half)
    exact = ort.run(wide, {k: v.astype(np.float32) for k, v in given.items()})
    lower(half, QNN)
    actual = ort.run(half, given)
    for name, reference in exact.items():
        assert ort.worst(reference, actual[name].astype(np.float32)) < 4e-3


@htp.needs_qnn
@pytest.mark.parametrize("outputs", [OUTPUTS[1], ALL], ids=str)
def test_placed_whole_on_htp(outputs: tuple[str, ...], tmp_path: Path) -> None:
    model = node(outputs, weights=WEIGHTS[3])
    given = feeds(model)
    expected = ort.run(model, given)
    lower(model, QNN)
    htp.check(model, given, expected, tmp_path)
