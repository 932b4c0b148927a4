"""Moving nodes to another version of ai.onnx, only where each means the same there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from functools import cache

import onnx
import onnx_ir as ir

from capabilities import Facts, Form
from capabilities.facts import Tensor
from rewriter.schemas import schema_of

_CHANGED = (
    ("Attention", 24, "attn_mask given"),  # may be shorter than the keys
    ("AveragePool", 19, "ceil_mode=1"),
    ("GroupNormalization", 21, "any"),  # scale and bias of a group became those of a channel
    ("Mod", 28, "fmod=0 & A floating"),
    ("Pad", 19, "mode=wrap"),
    ("Resize", 19, "coordinate_transformation_mode=half_pixel_symmetric"),
    ("RoiAlign", 16, "any"),  # the new attribute's default is not what was done before
    ("ScatterElements", 18, "reduction=max/min"),
    ("ScatterND", 18, "reduction=max/min"),
    ("Split", 18, "split absent"),
)
"""Versions that brought another meaning or a new value where inputs and attributes look alike
(read off the texts of onnx 1.23's schemas from opset 13 on)."""

_REDUCTIONS = frozenset({
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
    "ReduceMin", "ReduceProd", "ReduceSumSquare",
})  # fmt: skip
"""Ops whose axes became an input in opset 18; constant ones can be an attribute again."""

_REQUIRED = onnx.defs.OpSchema.FormalParameterOption.Single


class NotRaisable(ValueError):
    """Some node means something else at the higher opset; the message names it."""


def raised(units: Iterable[tuple[str, Facts]], opset: int, wanted: int) -> int:
    """The opset to use for nodes that are at ``opset`` when something needs ``wanted``.

    Args:
        units: name and facts of every node whose op :func:`moves`.
        opset: what they are at.
        wanted: what is needed.

    Raises:
        NotRaisable: an op changed between the two in more than what it can take.
    """
    if opset >= wanted:
        return opset
    for name, facts in units:
        if differs(facts, wanted):
            raise NotRaisable(
                f"needs opset {wanted}, but {facts.op} '{name}' means something else there than "
                f"at {opset}"
            )
    return wanted


@cache
def moves(op: str, opset: int, other: int) -> bool:
    """Whether an op has another version at another opset; else no node of it needs a look."""
    own, there = _schema(op, opset), _schema(op, other)
    return own is not None and (there is None or own.since_version != there.since_version)


def differs(facts: Facts, other: int) -> bool:
    """Whether a node means something else at another version of ai.onnx, or is not there.

    Versions of an op that differ in the types they take, in optional inputs that the node does
    not have, or in attributes that it leaves at their defaults mean the same. Nodes of other
    domains do not care, nor do ops of ONNX Runtime's that it registers at every opset.
    """
    own, there = _schema(facts.op, facts.opset), _schema(facts.op, other)
    if own is None or own is there:
        return False
    if there is None:
        return True
    old, new = sorted((own, there), key=lambda schema: schema.since_version)
    if old.since_version == new.since_version:
        return False
    span = range(old.since_version + 1, new.since_version + 1)
    if facts.op in _REDUCTIONS and own is new and 18 in span:
        axes = facts.inputs.get("axes")
        same = (axes is None or axes.const) and not facts.attributes["noop_with_empty_axes"]
        data = {name: tensor for name, tensor in facts.inputs.items() if name != "axes"}
        return not (same and _takes(there.inputs, data) and _takes(there.outputs, facts.outputs))
    return (
        old.deprecated != new.deprecated
        or any(
            facts.op == op and since in span and Form(form).holds(facts)
            for op, since, form in _CHANGED
        )
        or not _same_inputs(facts, old, new)
        or not _same_attributes(facts, old, new)
        or not _takes(there.inputs, facts.inputs)
        or not _takes(there.outputs, facts.outputs)
    )


def lower_imports(
    imports: MutableMapping[str, int], nodes: Iterable[ir.Node], ceiling: int
) -> None:
    """Lower the version of ai.onnx to the ceiling, for nodes that mean the same there.

    Attributes that the lower version does not know stand at their defaults; they are dropped.
    Axes of reductions become attributes.
    """
    name = "" if "" in imports else "ai.onnx"
    if imports.get(name, 1) <= ceiling:
        return
    imports[name] = ceiling
    for node in nodes:
        schema = _schema(node.op_type, ceiling) if node.domain in {"", "ai.onnx"} else None
        if schema is not None:
            if node.op_type in _REDUCTIONS and len(schema.inputs) < len(node.inputs):
                _axes_to_attribute(node)
            for unknown in set(node.attributes) - set(schema.attributes):
                del node.attributes[unknown]


def _axes_to_attribute(node: ir.Node) -> None:
    axes = node.inputs[1]
    if axes is not None:
        stored = ir.convenience.get_const_tensor(axes)
        assert stored is not None  # else the node differs
        node.attributes["axes"] = ir.AttrInt64s("axes", stored.numpy().tolist())
        node.replace_input_with(1, None)
    node.resize_inputs(1)


def ir_version_of(opset: int) -> int:
    """The version of the file format that came with an opset."""
    domain = onnx.OperatorSetIdProto(domain="", version=opset)
    # ruff: ignore[banned-api] - a table of the standard's that onnx_ir does not have
    return int(onnx.helper.find_min_ir_version_for([domain]))


@cache
def _schema(op: str, opset: int) -> onnx.defs.OpSchema | None:
    if "::" in op:
        return None
    try:
        return onnx.defs.get_schema(op, opset, "")
    except onnx.defs.SchemaError:
        return None


def _same_inputs(facts: Facts, old: onnx.defs.OpSchema, new: onnx.defs.OpSchema) -> bool:
    """Whether the newer version has the older one's inputs, and only optional ones besides."""
    pairs = zip(old.inputs, new.inputs, strict=False)
    more = new.inputs[len(old.inputs) :]
    return (
        len(old.inputs) <= len(new.inputs)
        and all(mine.name == theirs.name for mine, theirs in pairs)
        and not any(p.option == _REQUIRED or p.name in facts.inputs for p in more)
    )


def _same_attributes(facts: Facts, old: onnx.defs.OpSchema, new: onnx.defs.OpSchema) -> bool:
    before, after = _defaults(old), _defaults(new)
    if any(name not in after or after[name] != default for name, default in before.items()):
        return False
    default = schema_of(facts.op, new.since_version).attributes
    return not any(
        new.attributes[name].required or facts.attributes.get(name, default[name]) != default[name]
        for name in after.keys() - before.keys()
    )


def _defaults(schema: onnx.defs.OpSchema) -> dict[str, bytes]:
    return {k: a.default_value.SerializeToString() for k, a in schema.attributes.items()}


def _takes(
    parameters: Sequence[onnx.defs.OpSchema.FormalParameter], given: Mapping[str, Tensor]
) -> bool:
    """Whether the types of a node's inputs or outputs are allowed; an unknown one may be."""
    by_name = {p.name: p for p in parameters}
    for name, tensor in given.items():
        parameter = by_name.get(name, parameters[-1])  # a variadic one repeats
        if tensor.dtype and not any(f"tensor({tensor.dtype})" in kind for kind in parameter.types):
            return False
    return True
