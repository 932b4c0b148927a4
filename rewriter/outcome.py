"""The outcome of rewriting a file: everything a report shows, and the exit code it means."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import IntEnum

from capabilities import Target
from rewriter.activations.device import InSteps
from rewriter.activations.model import QuantizedActivations
from rewriter.compiling.model import Compiled
from rewriter.node_states import NodeState
from rewriter.parity.model import ModelParity
from rewriter.parity.outputs import OutputParity
from rewriter.parity.sites import SiteParity
from rewriter.passes.fix_dims import Dims
from rewriter.placement import Placement
from rewriter.quantization import QuantizedWeight
from rewriter.quantize.spec import WeightError
from rewriter.record import Report
from rewriter.slices import Slice
from rewriter.source import WeightKind
from rewriter.split import Cut
from rewriter.traffic import Traffic


class Exit(IntEnum):
    """Exit codes of the command."""

    GOOD = 0
    INTERNAL = 1
    BAD_INPUT = 2
    STUCK = 3
    PARITY = 4
    DISAGREE = 5
    RESOURCES = 6


@dataclass
class Parity:
    """What was compared; a level that was not asked for is empty.

    Attributes:
        sites: kinds of sites.
        model: the whole model.
        device: the target's runtime.
        steps: the same where activations are quantized, and the reference is so too.
        missing: what was asked for and could not be compared; empty if nothing.
        inner: inner values of the whole model, for a plot; they decide nothing.
    """

    sites: list[SiteParity] = field(default_factory=list)
    model: ModelParity | None = None
    device: tuple[OutputParity, ...] | None = None
    steps: tuple[InSteps, ...] | None = None
    missing: str = ""
    inner: tuple[OutputParity, ...] = ()

    @property
    def wrong(self) -> bool:
        """Something that could be compared is beyond its tolerance."""
        compared: list[SiteParity | OutputParity] = [*self.sites, *(self.device or ())]
        compared += [one.output for one in self.steps or ()]
        compared += self.model.outputs if self.model is not None else ()
        return any(one.error is not None and not one.ok for one in compared)

    @property
    def ok(self) -> bool:
        """Everything compared is within its tolerance."""
        return (
            not self.missing
            and all(site.ok for site in self.sites)
            and (self.model is None or self.model.ok)
            and (self.device is None or all(output.ok for output in self.device))
            and (self.steps is None or all(one.output.ok for one in self.steps))
        )


@dataclass
class PartOutcome:
    """One of the files that a graph was split into.

    Attributes:
        file: its name in the output folder.
        cut: what is in it.
        placement: ``None`` where it was not placed by itself.
    """

    file: str
    cut: Cut
    placement: Placement | None = None


@dataclass
class GraphOutcome:
    """One graph that was written.

    Attributes:
        phase: ``model``, or the part of a decoder's work it does.
        file: its name in the output folder.
        report: what the engine did.
        dims: what became of the dims.
        parity: ``None`` if none was asked for or possible.
        placement: ``None`` where it did not run; ``notes`` says why.
        part: the slice that was placed, where the whole was too much.
        notes: what a person should know.
        allow_stuck: stuck nodes were accepted.
        quantized: weights that are stored as integers.
        traffic: bytes that one run moves from and to memory, estimated.
        activations: what became of activations, where they were to be quantized.
        parts: the files that stand for it, in the order they run, where it was split.
        compiled: what an NPU loads, one for each file.
        role: what the graph does in a model of several; see :mod:`rewriter.roles`.
        fault: how the runtime failed on a graph that the table calls legal; empty if it did not.
        nodes: where each node runs, if the graph is to be drawn.
    """

    phase: str
    file: str
    report: Report
    dims: Dims
    parity: Parity | None = None
    placement: Placement | None = None
    part: Slice | None = None
    notes: list[str] = field(default_factory=list)
    allow_stuck: bool = False
    quantized: list[QuantizedWeight] = field(default_factory=list)
    traffic: Traffic | None = None
    activations: QuantizedActivations | None = None
    parts: list[PartOutcome] = field(default_factory=list)
    compiled: list[Compiled] = field(default_factory=list)
    role: str = ""
    fault: str = ""
    nodes: list[NodeState] = field(default_factory=list)

    def unplaced(self) -> list[tuple[str, str]]:
        """Nodes that the table does not know, and no runtime took."""
        if self.placement is None:
            return self.report.unknown
        left = Counter(self.placement.cpu_ops)
        return [(name, op) for name, op in self.report.unknown if left[op]]

    def surprises(self) -> Counter[str]:
        """Ops the runtime left on the CPU though the table calls them legal."""
        if self.placement is None:
            return Counter()
        known = [(node.node, node.op) for node in self.report.stuck] + self.report.unknown
        expected = Counter(op for name, op in known if self.part is None or name in self.part.names)
        return Counter(self.placement.cpu_ops) - expected

    @property
    def kept(self) -> bool:
        """Whether nothing speaks against writing it."""
        stuck = bool(self.report.stuck) and not self.allow_stuck
        return not stuck and (self.parity is None or self.parity.ok)

    def exit(self) -> Exit:
        """The first exit code that applies."""
        if (self.report.stuck or self.unplaced()) and not self.allow_stuck:
            return Exit.STUCK
        if self.parity is not None and not self.parity.ok:
            return Exit.PARITY
        if self.surprises() or self.fault:
            return Exit.DISAGREE
        return Exit.GOOD


@dataclass
class Outcome:
    """A run of the command over one model.

    Attributes:
        model: the file that was read.
        target: what it was rewritten for.
        output: the folder that was written, if it was.
        seconds: time per stage.
        weights_before: bytes of the initializers that were read.
        weights_after: bytes of those that were written.
        graphs: one per file.
        weights: what became of a checkpoint's weights, by type.
        weight_errors: what became of float weights that were to be quantized.
    """

    model: str
    target: Target
    output: str | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    weights_before: int = 0
    weights_after: int = 0
    graphs: list[GraphOutcome] = field(default_factory=list)
    weights: list[WeightKind] = field(default_factory=list)
    weight_errors: list[WeightError] = field(default_factory=list)

    def exit(self) -> Exit:
        """The worst of the graphs, in the order of the contract."""
        order = [Exit.STUCK, Exit.PARITY, Exit.DISAGREE, Exit.GOOD]
        return min((graph.exit() for graph in self.graphs), key=order.index, default=Exit.GOOD)
