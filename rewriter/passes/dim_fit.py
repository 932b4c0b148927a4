"""Dims that do not fit the graph: found here, as they would fail far from their cause."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx_ir as ir
import onnx_shape_inference as inference

from rewriter.errors import BadInput
from rewriter.nodes import dims_of, op_of, present
from rewriter.shapes import infer_model

_PASTS = {"com.microsoft::GroupQueryAttention": 3, "com.microsoft::MultiHeadAttention": 6}
"""Which input is the past key, of ops that have one."""


def pasts(model: ir.Model) -> Iterator[tuple[ir.Node, ir.Value]]:
    """Every attention with a past, and its past key."""
    for node in model.graph:
        at = _PASTS.get(op_of(node), len(node.inputs))
        past = node.inputs[at] if at < len(node.inputs) else None
        if past is not None and present(past):
            yield node, past


def joined(model: ir.Model) -> Iterator[tuple[ir.Node, str, int]]:
    """Symbols of graph inputs that a Concat with something else makes a number."""
    for node in model.graph:
        axis = node.attributes.get("axis")
        shapes = [value.shape for value in node.inputs if value is not None]
        if op_of(node) != "Concat" or axis is None or None in shapes:
            continue
        columns = list(zip(*(shape for shape in shapes if shape is not None), strict=False))
        for at, dims in enumerate(columns):
            sizes = {dim for dim in dims if isinstance(dim, int)}
            if at == axis.as_int() % len(columns) or len(sizes) != 1:
                continue
            for value in node.inputs:
                if value is not None and value.shape is not None and value.is_graph_input():
                    dim = value.shape[at]
                    if not isinstance(dim, int):
                        yield node, str(dim), next(iter(sizes))


def head_size(node: ir.Node) -> int | None:
    """The head size of an attention, from the width of its query."""
    query, key = node.inputs[:2]
    widths = None if query is None else dims_of(query)
    heads, kv_heads = (_integer(node, name) for name in ("num_heads", "kv_num_heads"))
    parts = heads if present(key) else heads + 2 * kv_heads
    width = widths[-1] if widths else None
    return None if width is None or parts < 1 else width // parts


def attentions(model: ir.Model) -> Iterator[ir.Node]:
    """Nodes with a cache whose shape says something of the dims."""
    for node in model.graph:
        if op_of(node) == "com.microsoft::GroupQueryAttention" and len(node.inputs) >= 5:
            yield node


def windows(model: ir.Model) -> dict[str, tuple[str, int]]:
    """Caches that hold a window only: name of the past to (name of the present, rows)."""
    return {
        past.name or "": (present.name or "", _integer(node, "local_window_size"))
        for node in attentions(model)
        if _integer(node, "sliding_window_cache") == 1
        for past, present in zip(node.inputs[3:5], node.outputs[1:3], strict=False)
        if past is not None
    }


def _integer(node: ir.Node, name: str) -> int:
    attribute = node.attributes.get(name)
    given = attribute is not None and attribute.type == ir.AttributeType.INT
    return attribute.as_int() if attribute is not None and given else 0


def rotary_rows(model: ir.Model) -> tuple[int, str] | None:
    """Rows of the shortest rotary table, and its name: no sequence can be longer."""
    found = []
    for node in attentions(model):
        table = node.inputs[7] if len(node.inputs) > 7 else None
        dims = dims_of(table) if table is not None and present(table) else None
        if table is not None and dims and dims[0] is not None:
            found.append((dims[0], table.name or ""))
    return min(found, default=None)


def check_rotary(model: ir.Model, known: Mapping[str, int], roles: Mapping[str, str]) -> None:
    """A sequence is no longer than the table of its positions.

    Raises:
        BadInput: it is.
    """
    total = next((known[s] for s, role in roles.items() if role == "total" and s in known), 0)
    rows = rotary_rows(model)
    if rows is not None and total > rows[0]:
        given = ", ".join(f"{s}={v}" for s, v in known.items())
        raise BadInput(
            f"--dim: a sequence of {total} ({given}) is longer than the rotary table '{rows[1]}', "
            f"which has {rows[0]} rows; give a shorter past or seq"
        )


def check_caches(model: ir.Model) -> None:
    """The caches of an attention have its heads, and keys and values the same shape."""
    for node in attentions(model):
        queries, heads = _integer(node, "num_heads"), _integer(node, "kv_num_heads")
        if heads < 1 or queries < 1 or queries % heads:
            raise BadInput(
                f"node '{node.name}' has {queries} heads over {heads} heads of its cache; "
                "export it again"
            )
        caches = [v for v in node.inputs[3:5] if v is not None and present(v)]
        shapes = [dims_of(value) for value in caches]
        for value, dims in zip(caches, shapes, strict=True):
            if dims is None:
                continue
            size = head_size(node)
            wanted = (heads, size if size is not None else dims[-1])
            if len(dims) != 4 or any(
                d is not None and d != w for d, w in zip(dims[1::2], wanted, strict=True)
            ):
                raise BadInput(
                    f"the cache '{value.name}' of node '{node.name}' has the shape {value.shape}, "
                    f"where (batch, {heads}, past, {wanted[1]}) is needed; correct it"
                )
        if len(shapes) == 2 and None not in shapes and shapes[0] != shapes[1]:
            raise BadInput(
                f"the caches of node '{node.name}' differ: '{caches[0].name}' is "
                f"{caches[0].shape}, '{caches[1].name}' {caches[1].shape}; export it again"
            )


def infer(model: ir.Model, fixed: Mapping[str, int]) -> None:
    """Infer all shapes of a model in place.

    Raises:
        BadInput: they do not fit together.
    """
    try:
        infer_model(model)
    except MemoryError:
        raise
    except Exception as error:  # whatever the inference of an op makes of a wrong graph
        raise BadInput(_unfit(fixed, str(error))) from None


def check_declared(model: ir.Model, fixed: Mapping[str, int]) -> None:
    """Refuse shapes that the file declares and its own nodes contradict.

    Ops of ai.onnx only: for others the inference may know less than the file does.
    """
    try:
        inference.infer_symbolic_shapes(model.clone(), policy="strict", warn_on_missing=False)
    except inference.ShapeInferenceError as error:
        if isinstance(error.__cause__, ValueError) and error.domain in {"", "ai.onnx"}:
            raise BadInput(_unfit(fixed, str(error.__cause__))) from None


def _unfit(fixed: Mapping[str, int], found: str) -> str:
    given = ", ".join(f"{s}={v}" for s, v in fixed.items())
    start = f"with {given}, shapes" if given else "shapes of the model"
    step = "give other dims" if given else "export it again"
    return f"{start} do not fit together: {found}; {step}"
