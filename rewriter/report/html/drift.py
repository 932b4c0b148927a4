"""How far each output of a graph is from the original's: a plot on a logarithmic scale."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rewriter.outcome import Parity
from rewriter.parity.outputs import OutputParity

WIDTH, HEIGHT = 760, 220
"""Of the plot, in pixels."""
_SMALLEST = 1e-9


@dataclass(frozen=True, slots=True)
class Dot:
    """One output of one series; ``error`` as a fraction of the reference's standard deviation."""

    x: float
    y: float
    name: str
    error: float


@dataclass(frozen=True, slots=True)
class Drift:
    """What is plotted.

    Attributes:
        series: name -> dots, in the order of the outputs.
        ticks: (y, words) of the lines across.
    """

    series: dict[str, tuple[Dot, ...]]
    ticks: tuple[tuple[float, str], ...]


def drift(parity: Parity) -> Drift | None:
    """The plot of a graph's outputs; ``None`` where nothing has a figure."""
    found = {
        "rewritten (CPU, exact)": _errors(parity.model.outputs if parity.model else ()),
        "device": _errors(parity.device or ()),
    }
    found = {name: errors for name, errors in found.items() if errors}
    every = [error for errors in found.values() for _, error in errors]
    if not every:
        return None
    low = math.floor(math.log10(max(min(every), _SMALLEST)))
    high = max(math.ceil(math.log10(max(*every, _SMALLEST))), low + 1)
    names = list(dict.fromkeys(name for errors in found.values() for name, _ in errors))

    def dots(errors: Sequence[tuple[str, float]]) -> tuple[Dot, ...]:
        step = WIDTH / max(len(names), 1)
        return tuple(
            Dot((names.index(name) + 0.5) * step, _height(error, low, high), name, error)
            for name, error in errors
        )

    ticks = tuple((_height(10.0**power, low, high), f"1e{power}") for power in range(low, high + 1))
    return Drift({name: dots(errors) for name, errors in found.items()}, ticks)


def _errors(outputs: Iterable[OutputParity]) -> list[tuple[str, float]]:
    return [
        (output.name, output.error.max_std)
        for output in outputs
        if output.error is not None and math.isfinite(output.error.max_std)
    ]


def _height(error: float, low: int, high: int) -> float:
    share = (math.log10(max(error, 10.0**low)) - low) / (high - low)
    return round(HEIGHT * (1 - share), 1)
