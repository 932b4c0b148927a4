"""Everything of a run on one page; the words are in ``page.html.jinja`` beside this file."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from rewriter.node_states import Place
from rewriter.outcome import Exit, GraphOutcome, Outcome
from rewriter.report.html.drift import HEIGHT as PLOT_HEIGHT
from rewriter.report.html.drift import WIDTH as PLOT_WIDTH
from rewriter.report.html.drift import Drift, drift
from rewriter.report.html.headline import headline
from rewriter.report.html.layout import HEIGHT, WIDTH
from rewriter.report.html.picture import Picture, picture
from rewriter.report.html.template import rendered
from rewriter.report.text import meaning

_ROWS = 200
"""Lines of a table that are shown; the JSON report has them all."""


@dataclass(frozen=True, slots=True)
class OpCount:
    """How often an op occurs, and the share of the most frequent one."""

    op: str
    before: int
    after: int
    share_before: float
    share_after: float


@dataclass(frozen=True, slots=True)
class Section:
    """A graph, ready for the page.

    Attributes:
        graph: what was found out.
        ops: before and after.
        picture: of the graph.
        drift: the plot; ``None`` where nothing was compared.
        places: how many nodes are where.
        quantized: how weights are stored and computed -> how many, and bytes read of them.
    """

    graph: GraphOutcome
    ops: tuple[OpCount, ...]
    picture: Picture
    drift: Drift | None
    places: Counter[Place]
    quantized: dict[tuple[str, str], tuple[int, int]]


def html_page(outcome: Outcome) -> str:
    """The page, as text.

    Args:
        outcome: of the run; its graphs carry their :attr:`~rewriter.outcome.GraphOutcome.nodes`.
    """
    return rendered(
        "page.html.jinja",
        outcome=outcome,
        headline=headline(outcome),
        meaning=meaning(outcome),
        good=outcome.exit() is Exit.GOOD,
        sections=[_section(graph) for graph in outcome.graphs],
        box=(WIDTH, HEIGHT),
        plot=(PLOT_WIDTH, PLOT_HEIGHT),
        most=_ROWS,
    )


def _section(graph: GraphOutcome) -> Section:
    return Section(
        graph,
        _ops(graph.report.ops_before, graph.report.ops_after),
        picture(graph.nodes),
        drift(graph.parity) if graph.parity else None,
        Counter(state.place for state in graph.nodes),
        _quantized(graph),
    )


def _quantized(graph: GraphOutcome) -> dict[tuple[str, str], tuple[int, int]]:
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for weight in graph.quantized:
        key = weight.stored, weight.computed
        count, size = found.get(key, (0, 0))
        found[key] = count + 1, size + weight.bytes
    return found


def _ops(before: Counter[str], after: Counter[str]) -> tuple[OpCount, ...]:
    most = max([*before.values(), *after.values()], default=1)
    return tuple(
        OpCount(op, before[op], after[op], before[op] / most, after[op] / most)
        for op in sorted({*before, *after})
    )
