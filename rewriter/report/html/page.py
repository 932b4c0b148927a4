"""Everything of a run on one page; the words are in ``page.html.jinja`` beside this file."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from rewriter.node_states import Place
from rewriter.outcome import Exit, GraphOutcome, Outcome
from rewriter.report.clean import printable
from rewriter.report.html.drift import HEIGHT as PLOT_HEIGHT
from rewriter.report.html.drift import WIDTH as PLOT_WIDTH
from rewriter.report.html.drift import Drift, drift
from rewriter.report.html.layout import HEIGHT, WIDTH
from rewriter.report.html.picture import Picture, picture
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
    """A graph, ready for the page."""

    graph: GraphOutcome
    ops: tuple[OpCount, ...]
    picture: Picture
    drift: Drift | None
    places: Counter[Place]
    quantized: Counter[tuple[str, str]]


def html_page(outcome: Outcome) -> str:
    """The page, as text.

    Args:
        outcome: of the run; its graphs carry their :attr:`~rewriter.outcome.GraphOutcome.nodes`.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined  # for this page only

    environment = Environment(
        loader=PackageLoader("rewriter.report", "html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["words"] = printable
    page = environment.get_template("page.html.jinja")
    return page.render(
        outcome=outcome,
        meaning=meaning(outcome),
        good=outcome.exit() is Exit.GOOD,
        sections=[_section(graph) for graph in outcome.graphs],
        box=(WIDTH, HEIGHT),
        plot=(PLOT_WIDTH, PLOT_HEIGHT),
        most=_ROWS,
        style=environment.get_template("page.css").render(),
    )


def _section(graph: GraphOutcome) -> Section:
    return Section(
        graph,
        _ops(graph.report.ops_before, graph.report.ops_after),
        picture(graph.nodes),
        drift(graph.parity) if graph.parity else None,
        Counter(state.place for state in graph.nodes),
        Counter((weight.stored, weight.computed) for weight in graph.quantized),
    )


def _ops(before: Counter[str], after: Counter[str]) -> tuple[OpCount, ...]:
    most = max([*before.values(), *after.values()], default=1)
    return tuple(
        OpCount(op, before[op], after[op], before[op] / most, after[op] / most)
        for op in sorted({*before, *after})
    )
