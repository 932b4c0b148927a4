"""Shape inference of com.microsoft ops that onnx-shape-inference 0.4 does not know, or not in full.

FusedMatMul with its first axes moved; MultiHeadAttention and its decoder over a buffer, with keys
that are heads already, and with scores; Attention's present; the statistics of the skip norms;
output_qk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir
import onnx_shape_inference as inference

from rewriter.nodes import constant

Dim = int | ir.SymbolicDim
Infer = Callable[[inference.ShapeInferenceContext, ir.Node], None]


def _integer(node: ir.Node, name: str, default: int = 0) -> int:
    given = node.attributes.get(name)
    return default if given is None else given.as_int()


def _input(node: ir.Node, index: int) -> ir.Value | None:
    return node.inputs[index] if index < len(node.inputs) else None


def _dims(value: ir.Value | None, rank: int) -> list[Dim] | None:
    """Dims of a value that has that rank."""
    if value is None or value.shape is None or len(value.shape) != rank:
        return None
    return list(value.shape.dims)


def _set(
    ctx: inference.ShapeInferenceContext,
    node: ir.Node,
    index: int,
    dims: Sequence[Dim | None] | None,
    dtype: ir.DataType | None,
) -> None:
    """Dtype and shape of an output that is there; a dim that is not known becomes a new symbol."""
    if index >= len(node.outputs) or not node.outputs[index].name:
        return
    if dtype is not None:
        ctx.set_dtype(node.outputs[index], dtype)
    if dims is not None:
        named = [ctx.new_symbolic_dim() if d is None else d for d in dims]
        ctx.set_shape(node.outputs[index], ir.Shape(named))


# -- GatherBlockQuantized ------------------------------------------------------------------------


def _packed(node: ir.Node, data: ir.Value) -> int:
    """Elements of the logical last axis that one stored element holds."""
    return 8 // _integer(node, "bits", 4) if data.dtype == ir.DataType.UINT8 else 1


def _gather_block_quantized(ctx: inference.ShapeInferenceContext, node: ir.Node) -> None:
    """Data with its gather axis replaced by the indices; the quantized axis unpacked."""
    data, indices, scales = node.inputs[0], node.inputs[1], node.inputs[2]
    if data is None or indices is None or scales is None:
        return
    dims: list[Dim | None] | None = None
    if data.shape is not None and indices.shape is not None:
        dims = list(data.shape.dims)
        at = _integer(node, "gather_axis") % len(dims)
        last = dims[-1]
        dims[-1] = last * _packed(node, data) if isinstance(last, int) else None
        dims = [*dims[:at], *indices.shape.dims, *dims[at + 1 :]]
    _set(ctx, node, 0, dims, scales.dtype)


# -- FusedMatMul ---------------------------------------------------------------------------------


def _transposed(node: ir.Node, value: ir.Value, which: str) -> list[Dim] | None:
    """Dims of a factor as the product sees it: the first axis moved, then the last two swapped."""
    if value.shape is None:
        return None
    dims = list(value.shape.dims)
    if _integer(node, f"transBatch{which}") and len(dims) > 2:
        dims = [*dims[1:-1], dims[0], dims[-1]]
    if _integer(node, f"trans{which}") and len(dims) > 1:
        dims[-2:] = reversed(dims[-2:])
    return dims


def _fused_matmul(ctx: inference.ShapeInferenceContext, node: ir.Node) -> None:
    a, b = node.inputs[:2]
    if a is None or b is None:
        return
    left, right = _transposed(node, a, "A"), _transposed(node, b, "B")
    if not left or not right:
        _set(ctx, node, 0, None, a.dtype)
        return
    rows, columns = left[-2:-1], right[-1:] if len(right) > 1 else []
    batch = _broadcast(left[:-2], right[:-2])
    _set(ctx, node, 0, [*batch, *rows, *columns], a.dtype)


def _broadcast(one: Sequence[Dim], other: Sequence[Dim]) -> list[Dim | None]:
    rank = max(len(one), len(other))
    pairs = zip([1] * (rank - len(one)) + [*one], [1] * (rank - len(other)) + [*other], strict=True)
    return [_wider(a, b) for a, b in pairs]


def _wider(a: Dim, b: Dim) -> Dim | None:
    if a == b or b == 1:
        return a
    if a == 1 or (isinstance(b, int) and b > 1):
        return b
    return a if isinstance(a, int) else None


# -- attention -----------------------------------------------------------------------------------


def _head_rows(value: ir.Value | None) -> Dim | None:
    """Rows of a key (B, L, ·) or (B, H, L, D)."""
    flat, split = _dims(value, 3), _dims(value, 4)
    return flat[1] if flat else split[2] if split else None


def _known_total(node: ir.Node, *places: int) -> Dim | None:
    """T, the last dim of a mask of flags or of a bias."""
    for place in places:
        value = _input(node, place)
        if value is not None and value.shape is not None and len(value.shape) > 1:
            return value.shape.dims[-1]
    return None


def _multi_head(
    ctx: inference.ShapeInferenceContext,
    node: ir.Node,
    mask: int,
    bias: int,
    past: int,
    start: int,
    *,
    shared: bool,
) -> None:
    """Outputs of query (B, S, H·D) or (B, S, H, 3, D), at whatever place the other inputs are."""
    query, key, value = (_input(node, i) for i in range(3))
    heads, whole = _integer(node, "num_heads"), _dims(query, 3)
    packed = _dims(query, 5)
    if query is None or not heads or not (whole or packed):
        return
    first = whole or packed or []
    widest: Dim | None = whole[2] if whole else None
    if packed is not None and isinstance(packed[4], int):
        widest = heads * packed[4]
    size = widest // heads if isinstance(widest, int) else None
    flat = _dims(value, 3)
    width = widest if flat is None else flat[2]
    split = _dims(value, 4)
    if split is not None and isinstance(split[3], int):
        width = heads * split[3]
    _set(ctx, node, 0, [first[0], first[1], width], query.dtype)
    new = _head_rows(key) if packed is None else first[1]
    old = _dims(_input(node, past), 4)
    buffer = old is not None and _input(node, start) is not None and shared
    total: Dim | None = new
    if buffer:
        stored = constant(_input(node, start))
        total = _known_total(node, mask, bias)
        if stored is not None and stored.size == 1 and isinstance(new, int):
            total = int(stored.numpy().item()) + new
    if old is not None and not buffer:
        total = old[2] + new if isinstance(old[2], int) and isinstance(new, int) else None
    rows = old[2] if buffer and old is not None else total
    value_size = width // heads if isinstance(width, int) else None
    _set(ctx, node, 1, [first[0], heads, rows, size], query.dtype)
    _set(ctx, node, 2, [first[0], heads, rows, value_size], query.dtype)
    _set(ctx, node, 3, [first[0], heads, first[1], total], query.dtype)


def _multi_head_attention(ctx: inference.ShapeInferenceContext, node: ir.Node) -> None:
    _multi_head(ctx, node, mask=4, bias=5, past=6, start=8, shared=True)


def _decoder_masked(ctx: inference.ShapeInferenceContext, node: ir.Node) -> None:
    shared = bool(_integer(node, "past_present_share_buffer"))
    _multi_head(ctx, node, mask=3, bias=4, past=5, start=7, shared=shared)


def _attention(ctx: inference.ShapeInferenceContext, node: ir.Node) -> None:
    """Input (B, S, ·) and weights (·, sum of the three widths); present (2, B, H, P + S, D)."""
    x, dims, heads = _input(node, 0), _dims(_input(node, 0), 3), _integer(node, "num_heads")
    if x is None or dims is None or not heads:
        return
    given = node.attributes.get("qkv_hidden_sizes")
    packed = _dims(_input(node, 1), 2) or _dims(_input(node, 2), 1)
    columns = packed[-1] if packed else None
    third = columns // 3 if isinstance(columns, int) else None
    sizes = [third] * 3 if given is None else list(given.as_ints())
    _set(ctx, node, 0, [dims[0], dims[1], sizes[2]], x.dtype)
    old, rows = _dims(_input(node, 4), 5), dims[1]
    total: Dim | None = rows
    if old is not None and _integer(node, "past_present_share_buffer"):
        total = old[3]
    elif old is not None:
        total = old[3] + rows if isinstance(old[3], int) and isinstance(rows, int) else None
    size = sizes[0] // heads if isinstance(sizes[0], int) else None
    _set(ctx, node, 1, [2, dims[0], heads, total, size], x.dtype)


def _and_output_qk(known: Infer) -> Infer:
    """GroupQueryAttention with its fourth output (B, Hq, S, total)."""

    def infer(ctx: inference.ShapeInferenceContext, node: ir.Node) -> None:
        known(ctx, node)
        query, stored = _input(node, 0), constant(_input(node, 6))
        dims = _dims(query, 3)
        if query is None or dims is None:
            return
        total = int(stored.numpy().item()) if stored is not None and stored.size == 1 else None
        _set(ctx, node, 3, [dims[0], _integer(node, "num_heads"), dims[1], total], query.dtype)

    return infer


# -- norms ---------------------------------------------------------------------------------------


def _and_statistics(known: Infer) -> Infer:
    """A skip norm with mean and inv_std_var, one number a row in float32."""

    def infer(ctx: inference.ShapeInferenceContext, node: ir.Node) -> None:
        known(ctx, node)
        x = _input(node, 0)
        if x is not None and x.shape is not None:
            for index in (1, 2):
                _set(ctx, node, index, [*x.shape.dims[:-1], 1], ir.DataType.FLOAT)

    return infer


_OURS: dict[str, Infer] = {
    "Attention": _attention,
    "DecoderMaskedMultiHeadAttention": _decoder_masked,
    "FusedMatMul": _fused_matmul,
    "GatherBlockQuantized": _gather_block_quantized,
    "MultiHeadAttention": _multi_head_attention,
    "TransposeMatMul": _fused_matmul,
}
_MORE: dict[str, Callable[[Infer], Infer]] = {
    "GroupQueryAttention": _and_output_qk,
    "SkipLayerNormalization": _and_statistics,
    "SkipSimplifiedLayerNormalization": _and_statistics,
}
_registered: list[inference.OpShapeInferenceRegistry] = []


def register() -> None:
    """Add what is missing, once; what is registered last of a version is what is found."""
    registry = inference.registry
    if registry in _registered:
        return
    _registered.append(registry)
    ours = dict(_OURS)
    for op, wrap in _MORE.items():
        known = registry.get("com.microsoft", op, version=1)
        if known is not None:
            ours[op] = wrap(known)
    for op, infer in ours.items():
        registry.register("com.microsoft", op, since_version=1)(infer)
