"""A run in one sentence, for someone who does not know what an op is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rewriter.outcome import Exit, GraphOutcome, Outcome
from rewriter.parity.outputs import OutputParity

_BEGINS = {
    Exit.GOOD: "Ready",
    Exit.STUCK: "Not ready: parts of the model cannot be shown to run there",
    Exit.PARITY: "Not ready: it could not be shown that the result computes what the original does",
    Exit.DISAGREE: "Not as expected: the runtime did something else than was measured before",
}


def headline(outcome: Outcome) -> str:
    """What came out, where it runs, and how it was checked; nothing that was not seen."""
    graphs, code = outcome.graphs, outcome.exit()
    begin = _BEGINS.get(code, f"Exit {int(code)}")
    return f"{begin}. {_where(graphs, outcome.target.ep)} {_checked(graphs)}"


def _where(graphs: Sequence[GraphOutcome], ep: str) -> str:
    nodes = sum(graph.report.ops_after.total() for graph in graphs)
    placed = [graph.placement for graph in graphs if graph.placement is not None]
    left = sum(len(graph.report.stuck) for graph in graphs)
    if len(placed) < len(graphs):
        if left:
            return f"Of {nodes:,} steps {left:,} cannot run on {ep}."
        return f"By what was measured, all {nodes:,} steps can run on {ep}; it was not tried here."
    on_cpu = sum(one.on_cpu for one in placed)
    part = " of the part that was tried" if any(graph.part for graph in graphs) else ""
    if on_cpu:
        on_ep = sum(one.on_ep for one in placed)
        return f"{on_ep:,} steps{part} run on {ep}, {on_cpu:,} fall back to the processor."
    return f"Every step{part} runs on {ep}, none falls back to the processor."


def _checked(graphs: Sequence[GraphOutcome]) -> str:
    compared = [graph.parity for graph in graphs if graph.parity is not None]
    models = [parity.model for parity in compared if parity.model is not None]
    largest = _largest(one for model in models for one in model.outputs)
    if largest is None:
        return "The answers were not compared with the original's."
    share = f"{largest:.1g} of their usual spread"
    if not all(model.ok for model in models):
        return f"The answers differ from the original's, by up to {share}."
    device = [one for parity in compared for one in parity.device or ()]
    device += [one.output for parity in compared for one in parity.steps or ()]
    there = _largest(device)
    if there is None:
        return f"The answers are the original's (largest difference {share})."
    word = "there" if all(one.ok for one in device) else "there, more than its arithmetic explains"
    return f"The answers are the original's (largest difference {share}; {there:.1g} {word})."


def _largest(outputs: Iterable[OutputParity]) -> float | None:
    return max((one.error.max_std for one in outputs if one.error is not None), default=None)
