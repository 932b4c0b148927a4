"""A ranking of graphs by their cost, on the terminal and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from rewriter.audit.costs import GraphCost, Ranking
from rewriter.report.clean import printable


def show_costs(found: Ranking, console: Console) -> None:
    """Print what each graph costs, the cheapest first."""
    for at, cost in enumerate(found.costs, 1):
        style = "bold green" if at == 1 else "bold"
        console.print(Text(printable(f"{at}. {cost.file}"), style=style))
        for line in _lines(cost):
            console.print(Text(f"   {printable(line)}"))
    console.print(Text(f"ranked by {found.by}"))
    for line in found.missing:
        console.print(Text(f"  missing: {line}", style="yellow"))


def _lines(cost: GraphCost) -> Iterator[str]:
    yield f"{cost.nodes} nodes, {cost.stored:,} bytes stored"
    if cost.fault:
        yield f"the runtime failed: {cost.fault}"
    placed = cost.placement
    if placed is not None:
        left = f"{placed.on_ep} nodes on the EP, {placed.on_cpu} on the CPU"
        yield f"{left}, {placed.partitions} partition(s); {placed.runtime}"
    if cost.counted is not None:
        sizes = ", ".join(f"{name} {size:,}" for name, size in cost.ddr.items())
        yield f"{cost.counted:,} bytes moved in a run, by the runtime's count: {sizes}"
    parts = f"weights {cost.traffic.weights:,}, inputs and outputs {cost.traffic.interface:,}"
    yield f"about {cost.moved:,} bytes moved in a run, by what the graph stores: {parts}"


def cost_data(found: Ranking, same: dict[Path, bool]) -> dict[str, Any]:
    """A ranking for JSON.

    Args:
        found: the ranking.
        same: whether each graph computes what the first one does.
    """
    return {
        "ranking": [_graph(cost) | {"same_function": same[cost.file]} for cost in found.costs],
        "by": found.by,
        "missing": list(found.missing),
    }


def _graph(cost: GraphCost) -> dict[str, Any]:
    placed = cost.placement
    return {
        "file": str(cost.file),
        "nodes": cost.nodes,
        "bytes_stored": cost.stored,
        "bytes_moved_estimated": cost.moved,
        "traffic": asdict(cost.traffic),
        "bytes_moved_counted": cost.counted,
        "ddr": dict(cost.ddr) or None,
        "placement": placed
        and {
            "runtime": placed.runtime,
            "on_ep": placed.on_ep,
            "on_cpu": placed.on_cpu,
            "partitions": placed.partitions,
        },
        "fault": cost.fault or None,
    }
