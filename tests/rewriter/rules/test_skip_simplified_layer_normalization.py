"""SkipSimplifiedLayerNormalization lowered, against ONNX Runtime's kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from capabilities import Target, target
from rewriter.lowering import Stuck, lower
from tests import htp, ort
from tests.contrib.skip_simplified_layer_normalization import OUTPUTS, feeds, node

TARGETS = [target("onnx-standard"), target("qnn", "2.7.0"), target("qnn", "2.3.0")]


@pytest.mark.parametrize("ep", TARGETS, ids=str)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("outputs", OUTPUTS, ids=str)
def test_equals_the_kernel(outputs: tuple[str, ...], bias: bool, ep: Target) -> None:
    model = node(outputs, bias=bias, epsilon=1e-3)
    given = feeds(model)
    expected = ort.run(model, given)
    lower(model, ep)
    actual = ort.run(model, given)
    assert list(actual) == [name for name in outputs if name]
    for name, reference in expected.items():
        assert ort.worst(reference, actual[name]) < 2e-6


@pytest.mark.parametrize("changed", [{"bias": True}, {"epsilon": 0.5}], ids=str)
def test_each_input_and_attribute_changes_the_result(changed: dict[str, float]) -> None:
    model, plain = node(**changed), node()  # type: ignore[arg-type]  # loosely typed in tests
    given = feeds(model)
    expected = ort.run(model, given)["y"]
    lower(model, TARGETS[1])
    actual = ort.run(model, given)["y"]
    assert ort.worst(expected, actual) < 2e-6
    assert ort.worst(ort.run(plain, given)["y"], actual) > 1e-3  # the kernel without it


@pytest.mark.parametrize("skip_shape", [(1, 3, 8), (3, 8)], ids=str)
def test_a_skip_for_the_whole_batch(skip_shape: tuple[int, ...]) -> None:
    model = node(OUTPUTS[1], skip_shape=skip_shape)
    given = feeds(model)
    expected = ort.run(model, given)
    lower(model, TARGETS[1])
    actual = ort.run(model, given)
    assert all(ort.worst(expected[name], actual[name]) < 2e-6 for name in expected)


def test_refuses_by_name() -> None:
    with pytest.raises(Stuck, match="output mean is used and not produced"):
        lower(node(("y", "mean")), TARGETS[1])
    with pytest.raises(Stuck, match=r"skip .* does not fit input"):
        lower(node(skip_shape=(1, 1, 8)), TARGETS[1])


@htp.needs_qnn
@pytest.mark.parametrize("outputs", [OUTPUTS[1], OUTPUTS[3]], ids=str)
def test_placed_whole_on_htp(outputs: tuple[str, ...], tmp_path: Path) -> None:
    model = node(outputs, bias=True)
    given = feeds(model)
    expected = ort.run(model, given)
    lower(model, TARGETS[1])
    htp.check(model, given, expected, tmp_path)
