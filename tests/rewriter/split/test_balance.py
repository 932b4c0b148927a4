"""How layers are shared out among parts."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import onnx_ir as ir
import pytest

from rewriter.errors import BadInput
from rewriter.split import balance as module
from rewriter.split.balance import LIMIT, balance


def _layers(*sizes: int) -> list[frozenset[ir.Value]]:
    return [frozenset({_value(size)}) for size in sizes]


def _value(size: int, dtype: ir.DataType = ir.DataType.UINT8) -> ir.Value:
    shape = ir.Shape([size])
    tensor = ir.LazyTensor(lambda: ir.tensor(np.zeros(size, np.uint8)), dtype, shape)
    return ir.Value(name="w", type=ir.TensorType(dtype), shape=shape, const_value=tensor)


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1, 1), (5, 1, 1, 1), (1, 1, 1, 9), (3, 1, 4, 1, 5, 9)])
@pytest.mark.parametrize("parts", [1, 2, 3, 4])
def test_the_largest_is_as_small_as_can_be(sizes: tuple[int, ...], parts: int) -> None:
    runs = balance(_layers(*sizes), parts)
    assert [i for run in runs for i in run] == list(range(len(sizes)))
    assert len(runs) == parts
    assert all(runs)
    best = min(
        max(sum(sizes[i:j]) for i, j in zip((0, *cuts), (*cuts, len(sizes)), strict=True))
        for cuts in combinations(range(1, len(sizes)), parts - 1)
    )
    assert max(sum(sizes[i] for i in run) for run in runs) == best


def test_what_layers_share_counts_once() -> None:
    shared = _value(10)
    layers = [one | {shared} for one in _layers(1, 1, 12)]
    assert balance(layers, 2) == [range(2), range(2, 3)]


def test_shapes_do_not_count() -> None:
    """Graphs for a prompt and for one token have other shapes, and are to be cut alike."""
    layers = [*_layers(4, 4, 4), frozenset({_value(4), _value(100, ir.DataType.INT64)})]
    assert balance(layers, 2) == [range(2), range(2, 4)]


def test_auto_keeps_parts_within_the_limit() -> None:
    assert LIMIT == 2**30
    third = LIMIT // 3
    assert balance(_layers(third, third, third), None) == [range(3)]
    assert balance(_layers(third, third, third, 2), None) == [range(2), range(2, 4)]
    assert balance(_layers(*[third + 1] * 3), None) == [range(1), range(1, 3)]


def test_a_layer_beyond_the_limit_is_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LIMIT", 4)
    assert balance(_layers(1, 9, 1), None) == [range(1), range(1, 2), range(2, 3)]


@pytest.mark.parametrize(("count", "parts"), [(3, 4), (3, 0), (3, -1)])
def test_more_parts_than_layers(count: int, parts: int) -> None:
    with pytest.raises(BadInput, match=rf"--split {parts}: the model has 3 layers; .* 1 to 3"):
        balance(_layers(*[1] * count), parts)


def test_one_layer_is_called_so() -> None:
    with pytest.raises(BadInput, match="the model has 1 layer; give a number from 1 to 1"):
        balance(_layers(1), 2)
