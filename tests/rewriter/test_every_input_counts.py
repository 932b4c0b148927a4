"""Law 7 over all rules: what a node may be given changes the result, or is refused by name.

For every op that rules lower, and each optional input and attribute of its schema, the table
holds a value that is not the default. The oracle's result differs from that of the node without
it, and the lowered node gives the oracle's, or the refusal names it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files
from typing import Any

import numpy as np
import onnx
import pytest

from capabilities import Target, target
from rewriter.lowering import lower
from rewriter.rule import registry
from tests.fuzz import check
from tests.fuzz.case import F16, F32, Arg, Case
from tests.fuzz.ops.packed import formula
from tests.fuzz.place import Place, model
from tests.rewriter.every_input_cases import BECAUSE, ELSEWHERE, PRECISION, SAME, TABLE
from tests.rewriter.every_input_standard import GONE

CONTROL = {"If", "Loop", "Scan"}
"""Their rules only say why they stay (test_control_flow.py)."""

TARGETS = {
    "CumSum": "qnn@2.4.0", "Elu": "qnn@2.4.0",
    "Gather": "qnn@2.4.0", "GatherElements": "openvino@2025.2.0", "Gemm": "qnn@2.4.0",
    "HardSigmoid": "qnn@2.4.0", "Selu": "qnn@2.4.0",
}  # fmt: skip
"""Of rules that take some forms of an op to others; the others get the standard less the op."""

FORMS = {
    "Concat": "Concat[empty]",
    "DequantizeLinear": "DequantizeLinear[x dtype int4]",
    "ScatterElements": "ScatterElements[rank 5]",
    "ReduceMax": "ReduceMax[data dtype int64]",
    "Slice": "Slice[data dtype bool]",
}


def optional(op: str) -> tuple[set[str], set[str]]:
    """Optional inputs, and attributes, of the newest schema."""
    table = json.loads((files("rewriter") / "contrib_schemas.json").read_text(encoding="utf-8"))
    if op in table:
        entry = table[op]
        return {n[:-1] for n in entry["inputs"] if n.endswith("?")}, set(entry["attributes"])
    schema = onnx.defs.get_schema(op, onnx.defs.onnx_opset_version())
    left = onnx.defs.OpSchema.FormalParameterOption.Optional
    return {p.name for p in schema.inputs if p.option == left}, set(schema.attributes)


def lowered_ops() -> list[str]:
    return sorted({rule.op for rule in registry() if rule.pattern is None} - CONTROL)


@pytest.mark.parametrize("op", lowered_ops())
def test_the_table_is_complete(op: str) -> None:
    inputs, attributes = optional(op)
    held = {*(TABLE[op][1] if op in TABLE else ()), *SAME.get(op, ()), *ELSEWHERE.get(op, ())}
    held |= {PRECISION[op]} if op in PRECISION else set()
    assert inputs | attributes == held


def changed(case: Case, change: dict[str, Any], *, without: str = "") -> Case:
    """The node with what a change holds, all or all but one thing."""
    inputs: dict[str, Arg | None] = dict(case.inputs)
    said, outputs = dict(case.attributes), list(case.outputs)
    kept = {k: v for k, v in change.items() if k != without}
    more = int(kept.pop("outputs", len(outputs)))
    outputs += [outputs[0]] * (more - len(outputs))
    kind, defined = kept.pop("kind", None), kept.pop("defined", None)
    names = _inputs(case.op)
    for name, value in kept.items():
        known = said if name in optional(case.op)[1] else inputs
        known[name] = value
    inputs = {n: inputs.get(n) for n in (names or inputs)}
    while next(reversed(inputs.values())) is None:
        inputs.popitem()
    said = {k: v for k, v in said.items() if v is not GONE}
    if kind is not None and not without:
        outputs = [kind]
    found = replace(case, inputs=inputs, attributes=said, outputs=outputs, defined=defined)
    if "Packed" in case.op:
        found = replace(found, oracle=lambda: formula(found))
    return found


def _inputs(op: str) -> list[str]:
    """Names of the inputs in order; none of a variadic op."""
    table = json.loads((files("rewriter") / "contrib_schemas.json").read_text(encoding="utf-8"))
    if op in table:
        return [n.rstrip("?*") for n in table[op]["inputs"]]
    formal = onnx.defs.get_schema(op, onnx.defs.onnx_opset_version()).inputs
    many = onnx.defs.OpSchema.FormalParameterOption.Variadic
    return [] if any(p.option == many for p in formal) else [p.name for p in formal]


def without_op(op: str) -> Target:
    if op in TARGETS:
        return target(TARGETS[op])
    return target("onnx-standard", illegal=[FORMS.get(op, op)])


ROWS = [(op, name) for op, (_, changes) in TABLE.items() for name in changes]


@pytest.mark.parametrize(("op", "name"), ROWS, ids=[f"{op} {name}" for op, name in ROWS])
def test_it_changes_the_result_or_is_refused_by_name(
    op: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORT_QMOE_CPU_QNBIT_GEMM", "0")
    base, changes = TABLE[op]
    case = changed(base, changes[name])
    report = lower(model(case, Place.TOP), without_op(op), allow_stuck=True, keep_sites=False)
    if report.stuck:
        reasons = [refused.reason for stuck in report.stuck for refused in stuck.tried]
        assert any(BECAUSE.get((op, name), name) in reason for reason in reasons), reasons
        return
    assert report.fired, "the node was legal: this is no case of a rule"
    expected = check.reference(case)
    assert expected is not None
    plain = changed(base, changes[name], without=name)
    other = check.reference(plain)
    same = other is not None and case.outputs == plain.outputs and _same(expected, other)
    assert not same, "it changes nothing: this is no case"
    outcome = check.check(case, without_op(op), Place.TOP)
    assert outcome.label == "lowered", outcome


@pytest.mark.parametrize("op", PRECISION)
def test_a_precision_that_no_oracle_has_is_seen_in_the_result(op: str) -> None:
    """By its Casts: ONNX Runtime takes a pair of them out, however little it may optimize."""
    case = changed(TABLE[op][0], {PRECISION[op]: int(F16)})
    after = model(case, Place.TOP)
    lower(after, without_op(op))
    casts = [n.attributes["to"].as_int() for n in after.graph if n.op_type == "Cast"]
    assert sorted(casts) == [F32, F16]


def _same(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(
        a is not None
        and b is not None
        and a.shape == b.shape
        and a.dtype == b.dtype
        and np.allclose(a.astype(np.float64), b.astype(np.float64), rtol=0, atol=1e-6)
        for a, b in zip(one, other, strict=True)
    )
