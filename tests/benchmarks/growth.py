"""Whether cost grows as the nodes do: 1,000, 10,000 and 50,000 of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from capabilities import target
from rewriter.lowering import lower, plan
from tests.benchmarks.cost import Cost, Line, Measured, cpu, in_process, line
from tests.benchmarks.rewriting import chain

_SIZES = (1_000, 10_000, 50_000)
_SLACK = 1.5
"""Of the cost of a node: caches of the processor hold the small model, and not the large ones."""


def lines(_folder: Path, runs: int) -> Iterator[Line]:
    """CPU time for a node, in models of more of them than the smallest."""
    to = target("onnx-standard")
    ways: dict[str, Callable[[int], Measured]] = {
        "lower": lambda size: in_process(lambda: _work(size, lambda m: lower(m, to))),
        "plan": lambda size: in_process(lambda: _work(size, lambda m: plan(m, to))),
    }
    for name, way in ways.items():
        way(100)()
        small = [_of_node(way(_SIZES[0])(), _SIZES[0]) for _ in range(2 * runs + 1)]
        for size in _SIZES[1:]:
            pairs = [(_of_node(way(size)(), size), one) for one in small[:runs]]
            work, against = f"{name} {size:,} nodes", f"{name} {_SIZES[0]:,} nodes"
            yield line(f"{work}, each", against, _SLACK, pairs, cpu, "CPU us")


def _work(size: int, do: Callable[..., object]) -> Callable[[], object]:
    model = chain(size)
    return lambda: do(model)


def _of_node(cost: Cost, size: int) -> Cost:
    return Cost(cpu=cost.cpu / size * 1e6)
