"""How far each layer is from the original's: a plot on a logarithmic scale."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rewriter.audit.profile import layer_of
from rewriter.outcome import Parity
from rewriter.parity.outputs import OutputParity

WIDTH, HEIGHT = 760, 220
"""Of the plot, in pixels."""
_SMALLEST = 1e-9
_MARKS = 12
"""Words below the plot, at most; more would run into each other."""


@dataclass(frozen=True, slots=True)
class Dot:
    """One value of one series; ``error`` as a fraction of the reference's standard deviation."""

    x: float
    y: float
    name: str
    error: float


@dataclass(frozen=True, slots=True)
class Series:
    """What is compared with what.

    Attributes:
        name: of it.
        dots: in the order of the layers.
        line: through the worst of each layer, as the path of an SVG.
    """

    name: str
    dots: tuple[Dot, ...]
    line: str

    @property
    def worst(self) -> Dot:
        """The largest error."""
        return max(self.dots, key=lambda dot: dot.error)


@dataclass(frozen=True, slots=True)
class Drift:
    """What is plotted.

    Attributes:
        series: one or two.
        ticks: (y, words) of the lines across.
        marks: (x, words) below: the number of a layer, or what has none.
    """

    series: tuple[Series, ...]
    ticks: tuple[tuple[float, str], ...]
    marks: tuple[tuple[float, str], ...]


def drift(parity: Parity) -> Drift | None:
    """The plot of a graph, over its layers; ``None`` where nothing has a figure.

    What a layer gives are its caches, or inner values where there are none; the outputs that
    belong to no layer stand at the right.
    """
    steps = tuple(one.output for one in parity.steps or ())
    found = {
        "rewritten (CPU, exact)": _errors(
            (*parity.inner, *(parity.model.outputs if parity.model else ()))
        ),
        "device": _errors(parity.device or steps),
    }
    found = {name: errors for name, errors in found.items() if errors}
    every = [error for errors in found.values() for _, error in errors]
    if not every:
        return None
    low = math.floor(math.log10(max(min(every), _SMALLEST)))
    high = max(math.ceil(math.log10(max(*every, _SMALLEST))), low + 1)
    columns = _columns([name for errors in found.values() for name, _ in errors])
    step = WIDTH / len(set(columns.values()))

    def series(name: str, errors: Sequence[tuple[str, float]]) -> Series:
        dots = sorted(
            (
                Dot(round((columns[one] + 0.5) * step, 1), _height(error, low, high), one, error)
                for one, error in errors
            ),
            key=lambda dot: dot.x,
        )
        top: dict[float, float] = {}
        for dot in dots:
            top[dot.x] = min(dot.y, top.get(dot.x, dot.y))
        return Series(name, tuple(dots), "M" + "L".join(f"{x},{y}" for x, y in top.items()))

    ticks = tuple((_height(10.0**power, low, high), f"1e{power}") for power in range(low, high + 1))
    return Drift(
        tuple(series(name, errors) for name, errors in found.items()), ticks, _marks(columns, step)
    )


def _columns(names: Sequence[str]) -> dict[str, int]:
    """The column of each name: one for each layer, and behind them one for each other name."""
    numbers = {name: at for name in names if (at := layer_of(name)) is not None}
    layers = {number: at for at, number in enumerate(sorted(set(numbers.values())))}
    others = [name for name in dict.fromkeys(names) if name not in numbers]
    places = {name: layers[number] for name, number in numbers.items()}
    return places | {name: len(layers) + at for at, name in enumerate(others)}


def _marks(columns: dict[str, int], step: float) -> tuple[tuple[float, str], ...]:
    words: dict[int, str] = {}
    for name, column in columns.items():
        layer = layer_of(name)
        words.setdefault(column, name if layer is None else str(layer))
    count = len(words)
    every = math.ceil(count / _MARKS)
    last = {column for column in words if not words[column].isdigit()}
    shown = [c for c in sorted(words) if c in last or (c % every == 0 and c + every / 2 < count)]
    if len(last) > _MARKS:
        shown = shown[:: math.ceil(len(shown) / _MARKS)]
    return tuple((round((column + 0.5) * step, 1), words[column]) for column in shown)


def _errors(outputs: Iterable[OutputParity]) -> list[tuple[str, float]]:
    return [
        (output.name, output.error.max_std)
        for output in outputs
        if output.error is not None and math.isfinite(output.error.max_std)
    ]


def _height(error: float, low: int, high: int) -> float:
    share = (math.log10(max(error, 10.0**low)) - low) / (high - low)
    return round(HEIGHT * (1 - share), 1)
