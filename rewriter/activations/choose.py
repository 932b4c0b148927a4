"""Which nodes compute with quantized activations, in which type, and with which form of weight.

Nothing here knows an EP: a node becomes a unit of DequantizeLinear, op and QuantizeLinear where a
row of the table that speaks of such units calls it legal, and none calls it anything else.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import onnx_ir as ir

from capabilities import Facts, Target, Verdict
from rewriter.activations.model import SIGNED, TYPES, KeptWeight
from rewriter.activations.weights import WeightForm, forms_of
from rewriter.facts import facts_of
from rewriter.nodes import constant, op_of

NBITS = "com.microsoft::MatMulNBits"
_WIDE = frozenset({
    "LayerNormalization", "RMSNormalization", "ReduceMean", "ReduceSum", "Softmax",
    "com.microsoft::SimplifiedLayerNormalization", "SimplifiedLayerNormalization",
})  # fmt: skip
"""Ops whose numbers are spread too far for 8 bits: norms, sums, weights of many keys."""
_MOVING = frozenset({
    "Concat", "Expand", "Gather", "Identity", "Reshape", "ScatterElements", "Slice", "Split",
    "Squeeze", "Tile", "Transpose", "Unsqueeze",
})  # fmt: skip
"""Ops that give numbers as they are: inputs and outputs share one scale, and one type."""

_TABLE = 1 << 24
"""Elements of a float table that becomes integers, such as the scales of an embedding."""


@dataclass
class Choice:
    """What to do with each node of a graph; nodes that are in none of these stay floats.

    Attributes:
        units: types of the activations of quantized nodes.
        forms: new forms of packed weights.
        kept: packed weights that stay, though their node is quantized.
        floats: ops that stay floats though they read activations, with the reason.
    """

    units: dict[ir.Node, ir.DataType] = field(default_factory=dict)
    forms: dict[ir.Node, WeightForm] = field(default_factory=dict)
    kept: list[KeptWeight] = field(default_factory=list)
    floats: dict[str, str] = field(default_factory=dict)


def moves_numbers(node: ir.Node) -> bool:
    """Whether a node gives the numbers of its activations as they are."""
    return op_of(node) in _MOVING


def activations_of(node: ir.Node) -> list[ir.Value]:
    """Float inputs of a node that are computed, or given to the graph; weights are none."""
    return [
        value
        for value in node.inputs
        if value is not None
        and value.dtype == ir.DataType.FLOAT
        and constant(value) is None
        and not is_weight(value)
    ]


def is_weight(value: ir.Value) -> bool:
    """Whether a value is a stored weight behind its DequantizeLinear."""
    made = value.producer()
    return (
        made is not None
        and op_of(made) == "DequantizeLinear"
        and constant(made.inputs[0]) is not None
    )


def table_of(node: ir.Node) -> ir.TensorProtocol | None:
    """The float table that a Gather looks rows up in, where it is small enough to be held."""
    stored = constant(node.inputs[0]) if op_of(node) == "Gather" else None
    if stored is None or stored.dtype != ir.DataType.FLOAT or stored.size > _TABLE:
        return None
    return stored


def choose(model: ir.Model, target: Target, bits: int) -> Choice:
    """Decide for every node of the main graph.

    Args:
        model: lowered for the target, in float32.
        target: whose rows decide.
        bits: 16, or 8 for nodes that allow it.
    """
    found = Choice()
    types: dict[ir.Value, ir.DataType] = {}
    for node in model.graph:
        read = activations_of(node)
        looked_up = table_of(node) is not None
        if not (read or looked_up) or node.outputs[0].dtype != ir.DataType.FLOAT:
            continue
        dtype = _decide(model, node, target, _wanted(node, read, types, bits), found)
        if dtype is None:
            found.floats.setdefault(op_of(node), _why_not(model, node, target, bits))
            continue
        found.units[node] = dtype
        types.update(dict.fromkeys(node.outputs, dtype))
    return found


def _wanted(
    node: ir.Node, read: list[ir.Value], types: dict[ir.Value, ir.DataType], bits: int
) -> list[ir.DataType]:
    """Types to try, the narrowest first."""
    wide, narrow = TYPES[16], TYPES[bits]
    if moves_numbers(node):
        given = {types.get(value, wide) for value in read}
        return [narrow if given == {narrow} else wide]
    if op_of(node) == "MatMul" and len(read) > 1:
        return list(dict.fromkeys((narrow, SIGNED, wide))) if bits < 16 else [SIGNED, wide]
    sum_of_two = op_of(node) == "Add" and len(read) > 1  # of a residual, which grows by layers
    return [wide] if op_of(node) in _WIDE or sum_of_two else list(dict.fromkeys((narrow, wide)))


def _decide(
    model: ir.Model, node: ir.Node, target: Target, wanted: list[ir.DataType], found: Choice
) -> ir.DataType | None:
    facts = facts_of(node, model.opset_imports, target)
    if op_of(node) != NBITS:
        return next((dtype for dtype in wanted if legal(target, facts, dtype)), None)
    forms, why = forms_of(node, model.opset_imports, target)
    for dtype in wanted:
        for form in forms:
            if all(legal(target, each, dtype) for each in form.facts):
                found.forms[node] = form
                return dtype
    for dtype in wanted:
        if legal(target, facts, dtype):
            refused = why or f"{target} takes {_phrase(forms, target, wanted[-1])}"
            found.kept.append(KeptWeight(node.name or "", refused))
            return dtype
    return None


def _phrase(forms: list[WeightForm], target: Target, dtype: ir.DataType) -> str:
    reasons = [
        f"no {form}: {judged.why}"
        for form in forms
        for facts in form.facts
        if (judged := target.judge(replace(facts, activations=_name(dtype)))).verdict
        is not Verdict.LEGAL
    ]
    return "; ".join(reasons) or "none of its exact forms"


def legal(target: Target, facts: Facts, dtype: ir.DataType) -> bool:
    """Whether the table knows that a unit with activations of a type runs and is right."""
    facts = replace(facts, activations=_name(dtype))
    if target.judge(facts).verdict is not Verdict.LEGAL:
        return False
    return any(
        "activations" in str(row.form) and row.holds(facts)
        for row in (*target.overrides, *target.rows_of(facts.op))
    )


def _why_not(model: ir.Model, node: ir.Node, target: Target, bits: int) -> str:
    facts = facts_of(node, model.opset_imports, target)
    judged = target.judge(replace(facts, activations=_name(TYPES[bits])))
    if judged.verdict is Verdict.LEGAL or judged.row is None:
        return f"no row of the table speaks of it with {bits}-bit activations"
    return judged.why


def _name(dtype: ir.DataType) -> str:
    return dtype.name.lower()
