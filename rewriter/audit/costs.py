"""What equivalent graphs cost, as far as their runtime tells, and which costs least."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnx_ir as ir

from rewriter.cost import weight_bytes
from rewriter.errors import RuntimeFault
from rewriter.parity.trial import Side
from rewriter.placement import Placement, place
from rewriter.placement.qnn import default_options
from rewriter.runtime import child
from rewriter.traffic import Traffic, traffic


@dataclass(frozen=True, slots=True)
class GraphCost:
    """What one graph costs.

    Attributes:
        file: of the graph.
        nodes: in it.
        stored: bytes of its constants.
        traffic: bytes that one run moves, estimated from what the graph stores.
        placement: what its runtime did with it; ``None`` if none was asked, or if it failed.
        ddr: memory traffic in bytes by what the runtime calls it, summed over partitions; empty
            where it does not say.
        fault: how the runtime failed; empty if it did not.
    """

    file: Path
    nodes: int
    stored: int
    traffic: Traffic
    placement: Placement | None = None
    ddr: Mapping[str, int] = field(default_factory=dict)
    fault: str = ""

    @property
    def counted(self) -> int | None:
        """Bytes that a run moves by the runtime's own count, spills among them."""
        return sum(self.ddr.values()) if self.ddr else None

    @property
    def moved(self) -> int:
        """The estimate of the same."""
        return self.traffic.weights + self.traffic.interface


@dataclass(frozen=True, slots=True)
class Ranking:
    """Graphs, the cheapest first.

    Attributes:
        costs: of each.
        by: what the order rests on, in words.
        missing: what would have told more, and is not there.
    """

    costs: tuple[GraphCost, ...]
    by: str
    missing: tuple[str, ...]


def cost_of(side: Side, ep: str | None, python: Path | None, time_limit: float) -> GraphCost:
    """Ask everything about one graph.

    Args:
        side: the graph and its file.
        ep: whose runtime is asked; none if ``None``.
        python: the interpreter that has it; this one when None.
        time_limit: seconds for the runtime.

    Raises:
        RuntimeFault: the runtime is missing.
    """
    placement, ddr, fault = None, dict[str, int](), ""
    if ep is not None:
        try:
            placement = place(side.file, ep=ep, options={}, python=python, time_limit=time_limit)
            ddr = _ddr(side.file, ep, python, time_limit)
        except RuntimeFault as error:
            if error.kind == "missing":
                raise
            fault = str(error)
    nodes = sum(1 for _ in ir.traversal.RecursiveGraphIterator(side.model.graph))
    found, stored = traffic(side.model), weight_bytes(side.model)
    return GraphCost(side.file, nodes, stored, found, placement, ddr, fault)


def _ddr(file: Path, ep: str, python: Path | None, time_limit: float) -> dict[str, int]:
    """What QNN prints when it finalizes a graph; 2.6 and later only while it says everything."""
    total: Counter[str] = Counter()
    if ep == "qnn":
        settings = default_options()
        job = child.Job(file, ep=ep, provider_options=settings, optimize=True, verbose=True)
        for part in child.run(job, python=python, time_limit=time_limit).ddr:
            total.update(part)
    return dict(total)


def ranked(costs: Sequence[GraphCost], ep: str | None) -> Ranking:
    """Order graphs by what is known of all of them.

    One that its runtime fails on comes last; nodes on the CPU, which cost a way out of the NPU and
    back, count before bytes; partitions and nodes decide where bytes are equal.

    Args:
        costs: of each graph.
        ep: whose runtime was asked.
    """
    counted = all(cost.counted is not None for cost in costs if not cost.fault)
    placed = [cost.placement for cost in costs if cost.placement is not None]
    counted = counted and bool(placed)

    def key(cost: GraphCost) -> tuple[bool, int, int, int, int]:
        on_cpu, partitions = 0, 0
        if cost.placement is not None:
            on_cpu, partitions = cost.placement.on_cpu, cost.placement.partitions
        size = cost.counted if counted and cost.counted is not None else cost.moved
        return bool(cost.fault), on_cpu, size, partitions, cost.nodes

    order = tuple(sorted(costs, key=key))
    told = "bytes that the runtime counts" if counted else "bytes estimated from what is stored"
    first = "nodes left to the CPU, then " if placed else ""
    last = ", partitions, nodes" if placed else ", then nodes"
    return Ranking(order, f"{first}{told}{last}", tuple(_missing(placed, ep, counted=counted)))


def _missing(placed: Sequence[Placement], ep: str | None, *, counted: bool) -> list[str]:
    if ep is None:
        return ["no runtime was asked for placement and partitions: --ep qnn"]
    found = []
    if not counted:
        runtimes = ", ".join(Counter(one.runtime for one in placed)) or f"the runtime of {ep}"
        found.append(f"{runtimes} does not say of every graph how many bytes a run moves")
    return [*found, "cycles: no runtime gives a figure of them that two runs agree on"]
