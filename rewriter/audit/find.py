"""The first value at which two models differ, and the node that makes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from rewriter.audit.values import Common, Pair, chunks, common_values
from rewriter.commit import RULE, SOURCE
from rewriter.errors import BadInput
from rewriter.nodes import op_of, present
from rewriter.parity.compare import BadReference, Error, compare_runs
from rewriter.parity.outputs import OutputParity, compared, specified_pairs, tolerance_of

_SHARPER = 0.1
"""Of what an output may be off, for an inner value: a fault may be small where it begins, and right
lowerings measured 7e-6 of std at the very end (see :data:`MODEL_TOLERANCE`)."""


@dataclass(frozen=True, slots=True)
class Drift:
    """Where two models part.

    Attributes:
        value: name of the first value that differs though all that it is made of agrees.
        node: name of the original's node that makes it.
        op: of that node.
        rule: that built the result's node; empty where it is no rule's.
        source: name of the node that the rule replaced.
        result_op: op of the result's node.
        error: at the value.
        tolerance: in standard deviations of the original's.
        agreed: names of the values before it that agree, and are all that it depends on.
    """

    value: str
    node: str
    op: str
    rule: str
    source: str
    result_op: str
    error: Error
    tolerance: float
    agreed: tuple[str, ...]


@dataclass
class Audit:
    """Two models, compared.

    Attributes:
        outputs: each output's largest error.
        scenarios: what was fed, in words.
        drift: where they part first; ``None`` if the outputs agree, or if it was not found.
        compared: inner values that both have and that were compared.
        uncomparable: inner values of both that say nothing: another shape, or one number.
        good: inner values that agree.
    """

    outputs: tuple[OutputParity, ...]
    scenarios: tuple[str, ...]
    drift: Drift | None = None
    compared: int = 0
    uncomparable: int = 0
    good: dict[str, Error] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Every output is within its tolerance."""
        return bool(self.outputs) and all(output.ok for output in self.outputs)


def audit(pair: Pair) -> Audit:
    """Compare two models, and look for the place where they part if they do.

    Args:
        pair: both, and what they are fed; nodes of the result may carry the rule that built them.

    Raises:
        BadInput: the models have no output in common.
        RuntimeFault: ONNX Runtime fails on one.
    """
    original, result, given = pair.original.model, pair.result.model, pair.given
    expected, actual = pair.run(_outputs(original, result))
    outputs = compared(result, expected, actual, given, tolerance_of)
    found = Audit(outputs, tuple(str(s) for s in given.scenarios))
    if not found.ok:
        _search(found, common_values(original, result), pair)
    return found


def inner_tolerance(value: Common) -> float:
    """What an inner value may be off, in standard deviations of the original's."""
    return tolerance_of(value.original) * _SHARPER


def _outputs(original: ir.Model, result: ir.Model) -> list[str]:
    """Names of the outputs, which both have to have.

    Raises:
        BadInput: one has others.
    """
    ours, theirs = ({v.name or "" for v in model.graph.outputs} for model in (original, result))
    if ours != theirs:
        which = "original" if min(ours ^ theirs) in ours else "result"
        raise BadInput(
            f"only the {which} has the output '{min(ours ^ theirs)}': two models with other "
            "outputs cannot be one function"
        )
    return sorted(ours)


def _search(found: Audit, values: Sequence[Common], pair: Pair) -> None:
    """Go through the values in order, until one differs."""
    for chunk in chunks(values, len(pair.given.scenarios)):
        expected, actual = pair.run([value.name for value in chunk])
        for value in chunk:
            try:
                error = compare_runs(specified_pairs(value.name, expected, actual, pair.given))
            except BadReference:
                found.uncomparable += 1
                continue
            found.compared += 1
            tolerance = inner_tolerance(value)
            if error.max_std > tolerance:
                found.drift = _drift(value, error, tolerance, frozenset(found.good))
                return
            found.good[value.name] = error


def _drift(value: Common, error: Error, tolerance: float, good: frozenset[str]) -> Drift:
    made, built = value.original.producer(), value.result.producer()
    assert made is not None
    assert built is not None
    props = built.metadata_props
    return Drift(
        value.name,
        made.name or "",
        op_of(made),
        props.get(RULE, ""),
        props.get(SOURCE, ""),
        op_of(built),
        error,
        tolerance,
        tuple(sorted(_nearest(value.result, good))),
    )


def _nearest(value: ir.Value, good: frozenset[str]) -> set[str]:
    """Values that agree, on each way up from one that does not; inputs of the graph too."""
    found: set[str] = set()
    waiting, seen = [value], {value}
    while waiting:
        producer = waiting.pop().producer()
        for above in producer.inputs if producer is not None else ():
            if above is None or not present(above) or above in seen:
                continue
            seen.add(above)
            if above.name in good or above.is_graph_input():
                found.add(above.name or "")
            else:
                waiting.append(above)
    return found
