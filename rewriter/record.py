"""What a run leaves behind: the record that reports, parity and exit codes are made from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import onnx_ir as ir

from capabilities import Target


@dataclass(frozen=True, slots=True)
class Tried:
    """A rule that was tried on a node, and why it left it alone."""

    rule: str
    reason: str


@dataclass(frozen=True, slots=True)
class StuckNode:
    """An illegal node that no rule took."""

    node: str
    op: str
    form: str
    why: str
    tried: tuple[Tried, ...]

    def __str__(self) -> str:
        tried = "; ".join(f"{t.rule} refused: {t.reason}" for t in self.tried)
        return f"{self.op} '{self.node}' [{self.form}]: {self.why} ({tried or 'no rule lowers it'})"


@dataclass(frozen=True, slots=True)
class Fired:
    """One site: the rule, the node it replaced, and both sides as small models.

    Attributes:
        rule: name of the rule.
        op: op that was replaced.
        node: name of the node that was replaced.
        form: form that made it illegal.
        signature: equal for sites that parity need not check twice.
        before: the original node(s) alone; ``None`` where an equal signature has it already.
        after: what the rule built, with the same inputs and outputs.
        tolerance: the rule's.
        others: names of the other nodes that went with it, where a pattern of several was fused.
        tried: rules that came first and left the node alone.
    """

    rule: str
    op: str
    node: str
    form: str
    signature: str
    before: ir.Model | None
    after: ir.Model | None
    tolerance: float
    others: tuple[str, ...] = ()
    tried: tuple[Tried, ...] = ()


@dataclass(frozen=True, slots=True)
class MaskChange:
    """A constant that hides keys, and holds another number now.

    Attributes:
        value: its name, as it was read.
        old: the number it held.
        new: the number it holds.
        sites: names of the nodes that mix it with scores.
    """

    value: str
    old: float
    new: float
    sites: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MaskKept:
    """A constant that hides keys and was left as it is, and why."""

    value: str
    old: float
    why: str


@dataclass
class Report:
    """What a run of the engine did to one model.

    Attributes:
        target: what it was lowered for.
        folded: how many nodes of the model were constant, and became weights.
        ops_before: how often each op occurred after that.
        ops_after: how often each op occurs now.
        fired: every site, in the order of the graph.
        stuck: illegal nodes that stayed.
        unknown: (node, op) that no row of the table speaks of.
        notes: what a person should know of the run, such as doubts and shapes that were kept.
        masks: constants of the model whose mask value was replaced, where that was asked.
        masks_kept: those that were not.
    """

    target: Target
    folded: int = 0
    ops_before: Counter[str] = field(default_factory=Counter)
    ops_after: Counter[str] = field(default_factory=Counter)
    fired: list[Fired] = field(default_factory=list)
    stuck: list[StuckNode] = field(default_factory=list)
    unknown: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    masks: list[MaskChange] = field(default_factory=list)
    masks_kept: list[MaskKept] = field(default_factory=list)

    @property
    def changed(self) -> bool:
        """Whether any rule fired."""
        return bool(self.fired)

    def sites(self) -> Counter[tuple[str, str]]:
        """Number of sites per (rule, op)."""
        return Counter((fired.rule, fired.op) for fired in self.fired)


def count_ops(nodes: Iterable[ir.Node]) -> Counter[str]:
    """How often each op occurs among nodes."""
    from rewriter.nodes import op_of

    return Counter(op_of(node) for node in nodes)
