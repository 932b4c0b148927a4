"""What has to hold of one node that is lowered for one target."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from capabilities import Target, Verdict
from rewriter.errors import BadInput
from rewriter.facts import facts_of
from rewriter.lowering import Stuck, lower
from rewriter.nodes import op_of
from rewriter.parity.widen import half_of, widened, widened_array
from rewriter.record import Report
from tests import ort
from tests.fuzz import place as places
from tests.fuzz.case import Array, Case, arg
from tests.fuzz.place import Place

HALF_LEAST, HALF_FACTOR = 4e-3, 3.0
"""float16, from the original widened to float32: the least that is allowed (eight units in the
last place), and how many times the original's own error."""

CONSTANT = 1.5e-3
"""float16 computed in float32 on both sides: what a rule stores (a scale, a table) is rounded."""

_EXACT = {"ORT_QMOE_CPU_QNBIT_GEMM": "0"}
"""Else ONNX Runtime's QMoE rounds its activations."""


class Wrong(AssertionError):
    """A law is broken or a number is wrong."""


@dataclass(frozen=True)
class Outcome:
    """What became of an example.

    Attributes:
        label: ``lowered``, ``kept``, ``stuck`` or ``discarded: why``.
        rules: that fired.
        why: what a stuck node was refused for.
    """

    label: str
    rules: tuple[str, ...] = ()
    why: str = ""


@patch.dict(os.environ, _EXACT)
def check(case: Case, target: Target, place: Place) -> Outcome:
    """Lower the node for a target and look at everything.

    Raises:
        Wrong: with what is wrong.
    """
    try:
        reference = _reference(case)
    except _Invalid as fault:
        return Outcome(f"discarded: {fault}")
    odd = _odd(case, reference)
    if odd:
        return Outcome(f"discarded: {odd}")
    before = places.model(case, place, _shapes(place, reference))
    after, report = _lowered(case, before, target)
    _laws(before, after, report, target)
    label = "stuck" if report.stuck else "lowered" if report.fired else "kept"
    why = "; ".join(f"{s.op}: {r.rule}: {r.reason}" for s in report.stuck for r in s.tried)
    outcome = Outcome(label, tuple(sorted({fired.rule for fired in report.fired})), why)
    if not report.fired and _bare(before) == _bare(after):
        return outcome
    try:
        _parity(case, before, after, place, reference)
    except _Invalid as fault:
        return Outcome(f"discarded: {fault}")
    return outcome


class _Invalid(Exception):
    """The original is no model that the oracle runs."""


def reference(case: Case) -> list[Array] | None:
    """What the oracle computes for the node alone; ``None`` where it takes no such node."""
    try:
        return _reference(case)
    except _Invalid:
        return None


def _shapes(place: Place, reference: Sequence[Array]) -> list[tuple[int, ...]]:
    return [array.shape for array in places.expected(place, reference)]


def _reference(case: Case) -> list[Array]:
    """Outputs of the node alone, in float32 where it is of halves."""
    if case.oracle is not None:
        return [np.asarray(a) for a in case.oracle()]
    wide = _in_float32(replace(case, symbolic=False))
    return _by_an_oracle(places.model(wide, Place.TOP), places.feeds(wide))


def _in_float32(case: Case) -> Case:
    """The same node with float32 in the place of every half; by hand, as ours is under test."""
    half, single = {ir.DataType.FLOAT16, ir.DataType.BFLOAT16}, ir.DataType.FLOAT
    typed = {"to", "dtype", "output_dtype", "precision", "softmax_precision", "stash_type"}
    return replace(
        case,
        inputs={
            name: given
            if given is None or given.tensor.dtype not in half
            else arg(given.array.astype(np.float32), const=given.const)
            for name, given in case.inputs.items()
        },
        outputs=[single if kind in half else kind for kind in case.outputs],
        attributes={
            name: int(single) if name in typed and value in half else value
            for name, value in case.attributes.items()
        },
    )


def _on_cpu(model: ir.Model, feeds: dict[str, Array]) -> list[Array]:
    """Outputs of ONNX Runtime, without the leave to round, in bodies and functions too."""
    copy = model.clone()
    for graph in [*copy.graphs(), *copy.functions.values()]:
        for node in graph:
            node.attributes.pop("accuracy_level", None)
    return list(ort.run(copy, feeds).values())


def _by_an_oracle(model: ir.Model, feeds: dict[str, Array]) -> list[Array]:
    """Outputs of ONNX Runtime, or of onnx's reference where that has no kernel."""
    try:
        return _on_cpu(model, feeds)
    except Exception as fault:
        text = str(fault)
        if "NOT_IMPLEMENTED" not in text and "Could not find an implementation" not in text:
            raise _Invalid(f"invalid: {text[:160]}") from fault
    try:
        found: Any = ReferenceEvaluator(ir.to_proto(model)).run(None, feeds)
    except Exception as fault:
        raise _Invalid(f"no oracle: {fault!s:.160}") from fault
    return [np.asarray(a) for a in found]


def _odd(case: Case, reference: Sequence[Array]) -> str:
    for i, array in enumerate(reference):
        if array.dtype.kind != "f":
            continue
        shown = array if case.defined is None else case.defined(i, array)
        if not np.isfinite(shown).all():
            return "NaN or infinite"
        if shown.size and not shown.any():
            return "all zero"
    return ""


def _lowered(case: Case, before: ir.Model, target: Target) -> tuple[ir.Model, Report]:
    after, again = before.clone(), before.clone()
    try:
        report = lower(after, target, allow_stuck=True, keep_sites=False)
        try:
            lower(again, target, keep_sites=False)
        except Stuck:
            if not report.stuck or _bytes(again) != _bytes(before):
                raise Wrong("Stuck for nothing, or the model was touched") from None
        else:
            if report.stuck or _bytes(after) != _bytes(again):
                raise Wrong("two runs differ")
            if report.fired:
                _idempotent(after, target)
    except (BadInput, Wrong):
        raise
    except Exception as fault:
        raise Wrong(f"crash: {type(fault).__name__}: {fault}") from fault
    return after, report


def _idempotent(after: ir.Model, target: Target) -> None:
    """A second run changes nothing but what is known of shapes."""
    twice = after.clone()
    report = lower(twice, target, allow_stuck=True, keep_sites=False)
    if _bare(after) != _bare(twice):
        rules = sorted({fired.rule for fired in report.fired})
        raise Wrong(f"a second run changes the result: {rules}\n{_printed(after)}")


def _bare(model: ir.Model) -> bytes:
    proto = ir.to_proto(model)
    for graph in [proto.graph]:
        del graph.value_info[:]
        for value in graph.output:
            value.type.tensor_type.ClearField("shape")
        for node in graph.node:
            for attribute in node.attribute:
                del attribute.g.value_info[:]
                for value in attribute.g.output:
                    value.type.tensor_type.ClearField("shape")
    return bytes(proto.SerializeToString(deterministic=True))


def _bytes(model: ir.Model) -> bytes:
    return bytes(ir.to_proto(model).SerializeToString(deterministic=True))


def _printed(model: ir.Model) -> str:
    graphs = [*model.graphs(), *model.functions.values()]
    return "\n".join(str(node) for graph in graphs for node in graph)


def _laws(before: ir.Model, after: ir.Model, report: Report, target: Target) -> None:
    _same_interface(before, after)
    graphs = [*after.graphs(), *after.functions.values()]
    names = Counter(
        v.name for g in graphs if isinstance(g, ir.Graph) for v in g.initializers.values()
    )
    names += Counter(v.name for g in graphs for node in g for v in node.outputs if v.name)
    doubled = [name for name, count in names.items() if count > 1]
    if doubled:
        raise Wrong(f"names are not unique: {doubled}")
    stuck = Counter(one.op for one in report.stuck)
    for graph in graphs:
        own = dict(graph.opset_imports) if isinstance(graph, ir.Function) else {}
        imports = {**after.opset_imports, **own}
        for node in graph:
            verdict = target.judge(facts_of(node, imports, target)).verdict
            if verdict in {Verdict.ILLEGAL, Verdict.WRONG}:
                if not stuck[op_of(node)]:
                    raise Wrong(f"{op_of(node)} is {verdict} and not reported\n{_printed(after)}")
                stuck[op_of(node)] -= 1
    try:
        onnx.checker.check_model(ir.to_proto(after))
    except onnx.checker.ValidationError as fault:
        if "No Op registered for SimplifiedLayerNormalization" in str(fault):
            return  # an op that ONNX Runtime has put into ai.onnx
        try:
            onnx.checker.check_model(ir.to_proto(before))
        except onnx.checker.ValidationError:
            return
        raise Wrong(f"not valid: {fault}\n{_printed(after)}") from fault


def _same_interface(before: ir.Model, after: ir.Model) -> None:
    """Names, types, ranks and numbers are kept; a named dim may turn out to be a number."""
    old, new = (
        [
            (v.name, v.dtype, [str(d) for d in v.shape or ()])
            for v in (*model.graph.inputs, *model.graph.outputs)
        ]
        for model in (before, after)
    )
    for one, other in zip(old, new, strict=True):
        dims = zip(one[2], other[2], strict=True)
        if one[:2] != other[:2] or any(a != b and a.isdigit() for a, b in dims):
            raise Wrong(f"inputs or outputs changed: {old} {new}")


def _parity(
    case: Case, before: ir.Model, after: ir.Model, place: Place, reference: Sequence[Array]
) -> None:
    feeds = {**places.feeds(case), **places.extra_feeds(place)}
    half = half_of(before)
    wanted = places.expected(place, reference)
    wide = {k: widened_array(v) for k, v in feeds.items()} if half is not None else feeds
    found = _run(widened(after) if half is not None else after, before, wide)
    least = max(case.tolerance, CONSTANT) if half is not None else case.tolerance
    _compare(case, place, wanted, found, [least] * len(wanted), after)
    if half is None:
        return
    try:
        original = _on_cpu(before, feeds)
    except Exception:  # it has no kernel in this type: nothing to hold the result to
        return
    result = _run(after, before, feeds)
    own = [
        _error(case, place, i, a, b) for i, (a, b) in enumerate(zip(wanted, original, strict=True))
    ]
    allowed = [max(HALF_LEAST, HALF_FACTOR * error) for error in own]
    _compare(case, place, wanted, result, allowed, after)


def _run(after: ir.Model, before: ir.Model, feeds: dict[str, Array]) -> list[Array]:
    try:
        return _on_cpu(after, feeds)
    except Exception as fault:
        text = f"{fault}"
    if "NOT_IMPLEMENTED" in text or "Could not find an implementation" in text:
        try:
            found: Any = ReferenceEvaluator(ir.to_proto(after)).run(None, feeds)
            return [np.asarray(a) for a in found]
        except Exception as fault:
            raise _Invalid(f"no kernel for the result: {text[:160]} {fault!s:.80}") from fault
    try:
        _on_cpu(before, feeds)
    except Exception as fault:
        raise _Invalid(f"invalid where it is: {fault!s:.160}") from fault
    raise Wrong(f"the result does not run: {text}\n{_printed(after)}")


def _compare(
    case: Case, place: Place, wanted: Sequence[Array], found: Sequence[Array],
    allowed: Sequence[float], after: ir.Model,
) -> None:  # fmt: skip
    for i, (one, other) in enumerate(zip(wanted, found, strict=True)):
        if one.shape != other.shape:
            raise Wrong(f"output {i} is {other.shape}, not {one.shape}\n{_printed(after)}")
        error = _error(case, place, i, one, other)
        if not error <= allowed[i]:
            raise Wrong(f"output {i} is off by {error:.3g} > {allowed[i]:.3g}\n{_printed(after)}")


def _error(case: Case, place: Place, i: int, one: Array, other: Array) -> float:
    if place is Place.BODY and case.defined is not None:
        pairs = [(case.defined(i, a), case.defined(i, b)) for a, b in zip(one, other, strict=True)]
    elif case.defined is not None:
        pairs = [(case.defined(i, one), case.defined(i, other))]
    else:
        pairs = [(one, other)]
    worst = 0.0
    for a, b in pairs:
        if a.dtype.kind in "biu":
            worst = max(worst, 0.0 if np.array_equal(a, b) else float("inf"))
        elif a.size:
            a, b = a.astype(np.float64), b.astype(np.float64)
            largest = float(np.abs(a).max())
            worst = max(worst, float(np.abs(a - b).max()) / largest)
    return worst
