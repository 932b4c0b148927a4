"""The residual stream of a transformer, and where one layer ends and the next begins.

Nothing here goes by names. Attention is known by its two products of matrices that are no
weights, or by an op of its own. The stream begins where something that attention reads is also
read past it, and it passes whole through a node where no edge leads around that node. Keys and
values are no part of it, so that layers may share them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from rewriter.errors import BadInput
from rewriter.nodes import op_of, present
from rewriter.split.flow import Flow, reach, walk

_WHOLE = "leave --split out to write it whole"


@dataclass(frozen=True, slots=True)
class Trunk:
    """The stream.

    Attributes:
        start: what enters the first layer.
        ends: the node that each layer ends with, the last one's included.
        inside: layers end before that node, as it also is the norm of the next layer.
        first: nodes that the first attention depends on.
        mixed: nodes that depend on an attention.
    """

    start: ir.Value
    ends: Sequence[int]
    inside: bool
    first: set[int]
    mixed: set[int]


def trunk(flow: Flow) -> Trunk:
    """Find it.

    Raises:
        BadInput: there is no attention, or the stream has no beginning or no end.
    """
    cores, anchors = _cores(flow)
    if not anchors:
        raise BadInput(f"--split: the model has no attention that tells its layers; {_WHOLE}")
    mixed = reach(anchors, flow.after)
    start = _start(flow, anchors[0], cores, mixed)
    first = reach([anchors[0]], flow.before)
    below = reach(_readers(flow, start), flow.after)
    anchors = [i for i in anchors if _own_keys(flow, i, below)]
    along = [_stream(flow, i) if i in cores else flow.before[i] for i in range(len(flow.nodes))]
    made = [i for v in flow.model.graph.outputs if (i := flow.maker(v)) is not None]
    main = max(made, key=lambda i: len(reach([i], flow.before)))
    kept = reach([main], along) & below
    kept = {i for i in kept if i in mixed or i in first}
    order = sorted(kept)
    whole = _passed(flow, order, along, start)
    begins = sorted({max((i for i in whole if i < a), default=-1) for a in anchors if a in kept})
    if not begins:
        raise BadInput(f"--split: no attention lies on the way to the model's output; {_WHOLE}")
    ends = [i for i in begins if i >= 0]
    last = _head(flow, whole, ends, start)
    inside = any(_outputs_used(flow, i, kept) > 1 for i in [*ends, last])
    return Trunk(start, [*ends, last], inside, first, mixed)


def _cores(flow: Flow) -> tuple[set[int], list[int]]:
    """The products of attention, and of each the one that ends it."""
    anchors = [i for i in range(len(flow.nodes)) if flow.fused(i)]
    cores = set(anchors)
    dynamic = {i for i in range(len(flow.nodes)) if flow.mixes(i)}
    for i in dynamic:
        scores = _products_of(flow, flow.nodes[i].inputs[0])
        if scores & dynamic:
            anchors.append(i)
            cores |= {i} | (scores & dynamic)
    return cores, sorted(anchors)


def _products_of(flow: Flow, value: ir.Value | None) -> set[int]:
    """The products that a value is computed from, with none between."""
    made = flow.maker(value)
    if made is None:
        return set()
    found = walk([made], lambda i: () if flow.product(i) else flow.before[i])
    return {i for i in found if flow.product(i)}


def _stream(flow: Flow, i: int) -> list[int]:
    """What a product of attention gets from the stream that it belongs to: not keys, not values."""
    made = flow.maker(flow.nodes[i].inputs[0])
    return [] if made is None else [made]


def _start(flow: Flow, anchor: int, cores: set[int], mixed: set[int]) -> ir.Value:
    """What the values of the first attention come from, and what is read past that attention."""
    inputs = flow.nodes[anchor].inputs
    at = 2 if flow.fused(anchor) else 1
    values = inputs[at] if len(inputs) > at and not flow.is_fixed(inputs[at]) else inputs[0]
    made = flow.maker(values)
    above = reach([made] if made is not None else [], flow.before)
    known = {values} | {v for i in above for v in [*flow.nodes[i].outputs, *flow.reads(i)]}
    found = [
        value
        for i in sorted(mixed - cores)
        for value in flow.reads(i)
        if value in known and flow.source(value) not in mixed and floating(value)
    ]
    if not found:
        raise BadInput(
            "--split: the embedding cannot be told from the first layer, as nothing of it is read "
            f"past the first attention; {_WHOLE}"
        )
    return max(found, key=lambda value: -1 if (i := flow.source(value)) is None else i)


def _own_keys(flow: Flow, anchor: int, below: set[int]) -> bool:
    """Whether an attention looks at the stream itself, not at what an encoder has found."""
    inputs = flow.nodes[anchor].inputs
    keys = inputs[1] if len(inputs) > 1 else None
    if flow.is_fixed(keys):
        return True
    made = flow.maker(keys)
    return made is not None and bool(reach([made], flow.before) & below)


def _passed(
    flow: Flow, order: Sequence[int], along: Sequence[Sequence[int]], start: ir.Value
) -> list[int]:
    """Nodes that no edge leads around, from the start of the stream on."""
    last: dict[int, int] = {}
    for i in order:
        for j in along[i]:
            last[j] = i
    farthest = max((i for i in order if start in flow.reads(i)), default=-1)
    found = []
    for i in order:
        if farthest <= i:
            found.append(i)
        farthest = max(farthest, last.get(i, -1))
    return found


def _head(flow: Flow, whole: Sequence[int], ends: Sequence[int], start: ir.Value) -> int:
    """The node that the last layer ends with, known by how the others end.

    Raises:
        BadInput: there is none.
    """
    begin = ends[-1] if ends else -1
    rest = [i for i in whole if i > begin]
    forms = [_form(flow.nodes[i]) for i in rest]
    if ends:
        before = ends[-2] if len(ends) > 1 else -1
        pattern = [_form(flow.nodes[i]) for i in whole if before < i <= ends[-1]]
        if forms[: len(pattern)] == pattern:
            return rest[len(pattern) - 1]
        alike = [i for i, form in zip(rest, forms, strict=True) if form == pattern[-1]]
    else:
        like = str((start.dtype, start.shape))
        alike = [i for i, form in zip(rest, forms, strict=True) if form[1] == like]
        alike = [i for i in alike if not _norm(flow.nodes[i]) or _outputs(flow.nodes[i]) > 1]
    if not alike:
        raise BadInput(
            "--split: the head cannot be told from the last layer, which ends unlike the others; "
            f"{_WHOLE}"
        )
    return alike[-1]


def _norm(node: ir.Node) -> bool:
    return "Norm" in node.op_type


def _form(node: ir.Node) -> tuple[str, str]:
    return op_of(node), str((node.outputs[0].dtype, node.outputs[0].shape))


def _outputs(node: ir.Node) -> int:
    return sum(1 for value in node.outputs if present(value) and value.uses())


def _outputs_used(flow: Flow, i: int, kept: set[int]) -> int:
    readers = [set(flow.reads(j)) for j in flow.after[i] if j in kept]
    return sum(1 for value in flow.nodes[i].outputs if any(value in read for read in readers))


def _readers(flow: Flow, value: ir.Value) -> list[int]:
    return [i for i in range(len(flow.nodes)) if value in flow.reads(i)]


def floating(value: ir.Value) -> bool:
    """Whether a value is known to be of floats."""
    return value.dtype is not None and value.dtype.is_floating_point()
