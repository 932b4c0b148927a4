"""ONNX protobufs with fields that are not what they should be, still well-formed as protobufs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from tests.robust.values import FLOATS, Rng, integer, pick, text

_DEEP = 90
"""Graphs in graphs; a parser of protobufs takes no more than 100 messages in each other."""


def mutated(rng: Rng, model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy with one to four changes."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for _ in range(int(rng.integers(1, 5))):
        kind = pick(rng, _CHANGES)
        kind(rng, made)
    return made


def _messages(message: Any) -> Iterator[Any]:
    yield message
    for field, value in message.ListFields():
        if field.type != field.TYPE_MESSAGE:
            continue
        for part in value if _many(value) else (value,):
            yield from _messages(part)


def _many(value: Any) -> bool:
    return not isinstance(value, str | bytes) and hasattr(value, "__len__")


def _any_field(rng: Rng, model: onnx.ModelProto) -> None:
    """One field of one message, most kinds of messages equally likely."""
    by_kind: dict[str, list[Any]] = {}
    for message in _messages(model):
        by_kind.setdefault(type(message).__name__, []).append(message)
    message = pick(rng, by_kind[pick(rng, sorted(by_kind))])
    fields = [field for field, _ in message.ListFields()]
    if rng.random() < 0.25 or not fields:  # one that was not there
        fields = list(message.DESCRIPTOR.fields)
    _change(rng, message, pick(rng, fields))


def _change(rng: Rng, message: Any, field: Any) -> None:
    value = getattr(message, field.name)
    many = _many(value)
    if rng.random() < 0.15:
        message.ClearField(field.name)
    elif field.type == field.TYPE_MESSAGE:
        _change_message(rng, value, many=many)
    elif not many:
        setattr(message, field.name, _scalar(rng, field, value))
    elif len(value) and rng.random() < 0.6:
        value[int(rng.integers(len(value)))] = _scalar(rng, field, value[0])
    elif len(value) and rng.random() < 0.4:
        del value[int(rng.integers(len(value)))]
    else:
        empty: Any = {field.TYPE_STRING: "", field.TYPE_BYTES: b""}.get(field.type, 0)
        value.extend([_scalar(rng, field, empty)] * int(pick(rng, (1, 1, 1, 2, 9, 40))))


def _change_message(rng: Rng, value: Any, *, many: bool) -> None:
    if not many:
        value.SetInParent()
    elif not len(value):
        value.add()
    elif rng.random() < 0.4:
        del value[int(rng.integers(len(value)))]
    elif rng.random() < 0.5:
        value.add().CopyFrom(value[int(rng.integers(len(value)))])
    else:
        one, other = (value[int(rng.integers(len(value)))] for _ in range(2))
        kept = type(one)()
        kept.CopyFrom(other)
        one.CopyFrom(kept)


def _scalar(rng: Rng, field: Any, old: Any) -> Any:
    if field.type == field.TYPE_STRING:
        return text(rng, old if isinstance(old, str) else "")
    if field.type == field.TYPE_BYTES:
        return text(rng, "").encode() if rng.random() < 0.5 else old[: int(rng.integers(99))]
    if field.type in {field.TYPE_FLOAT, field.TYPE_DOUBLE}:
        return pick(rng, FLOATS)
    if field.type == field.TYPE_ENUM:
        return int(pick(rng, list(field.enum_type.values_by_number)))
    wide = field.type in {field.TYPE_INT64, field.TYPE_UINT64, field.TYPE_SINT64}
    signed = field.type not in {field.TYPE_UINT64, field.TYPE_UINT32}
    return integer(rng, int(old), 64 if wide else 32, signed=signed)


def _nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    return [m for m in _messages(model) if isinstance(m, onnx.NodeProto)]


def _other_op(rng: Rng, model: onnx.ModelProto) -> None:
    """A node becomes one of another op, with the inputs and attributes it has."""
    nodes = _nodes(model)
    if nodes:
        node = pick(rng, nodes)
        node.domain, node.op_type = pick(rng, _OPS)


def _other_input(rng: Rng, model: onnx.ModelProto) -> None:
    """A node reads another value of the model, or one more or fewer."""
    nodes = [node for node in _nodes(model) if node.input]
    if not nodes:
        return
    node, source = pick(rng, nodes), pick(rng, nodes)
    name = pick(rng, [*source.input, *source.output, ""])
    if rng.random() < 0.7:
        node.input[int(rng.integers(len(node.input)))] = name
    else:
        node.input.append(name)


def _attribute(rng: Rng, model: onnx.ModelProto) -> None:
    """An attribute changes its value, or goes, or is of another node."""
    nodes = [node for node in _nodes(model) if node.attribute]
    if not nodes:
        return
    node, other = pick(rng, nodes), pick(rng, nodes)
    attribute = pick(rng, node.attribute)
    if rng.random() < 0.2:
        node.attribute.remove(attribute)
    elif rng.random() < 0.2:
        node.attribute.add().CopyFrom(pick(rng, other.attribute))
    else:
        fields = [f for f, _ in attribute.ListFields() if f.name not in {"name", "doc_string"}]
        if fields:
            _change(rng, attribute, pick(rng, fields))


def _tensor(rng: Rng, model: onnx.ModelProto) -> None:
    """A tensor that agrees with itself has another shape, type, or size."""
    tensors = [m for m in _messages(model) if isinstance(m, onnx.TensorProto)]
    if not tensors:
        return
    tensor = pick(rng, tensors)
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        _external(rng, tensor)
        return
    match int(rng.integers(4)):
        case 0 if tensor.raw_data:
            tensor.raw_data = rng.bytes(len(tensor.raw_data))
        case 1:
            tensor.dims.insert(0, 1)
        case 2 if len(tensor.dims) > 1:
            tensor.dims[0], tensor.dims[-1] = tensor.dims[-1], tensor.dims[0]
        case _:
            tensor.ClearField("raw_data")
            tensor.dims[:] = [int(pick(rng, (0, 1, 1 << 20, 1 << 40))) for _ in tensor.dims]


def _external(rng: Rng, tensor: onnx.TensorProto) -> None:
    entry = pick(rng, tensor.external_data)
    if entry.key == "location" or rng.random() < 0.2:
        entry.value = text(rng, entry.value)
    else:
        entry.value = str(integer(rng, int(entry.value) if entry.value.isdecimal() else 0))
    if rng.random() < 0.3:
        tensor.dims[:] = [integer(rng, dim) for dim in tensor.dims]


def _dims(rng: Rng, model: onnx.ModelProto) -> None:
    """A declared dim has another number or name."""
    dims = [m for m in _messages(model) if isinstance(m, onnx.TensorShapeProto.Dimension)]
    if dims:
        dim = pick(rng, dims)
        if rng.random() < 0.6:
            dim.dim_value = integer(rng, dim.dim_value)
        else:
            dim.dim_param = text(rng, dim.dim_param)


def _bomb(rng: Rng, model: onnx.ModelProto) -> None:
    """Constants that say how large something is to be made."""
    node = model.graph.node.add()
    huge = int(pick(rng, (1 << 20, 1 << 31, 1 << 40, (1 << 63) - 1, -1)))
    op = pick(rng, ("ConstantOfShape", "Expand", "Tile", "Range", "Pad", "Resize", "OneHot"))
    node.op_type, node.name = op, "bomb"
    node.output.append("bomb.out")
    sizes = {
        "ConstantOfShape": ([huge, huge],), "Expand": ([1, 1], [huge, 4]),
        "Tile": ([[1, 2]], [huge, huge]), "Range": (0, huge, 1), "Pad": ([1, 2], [0, huge]),
        "Resize": ([1], [1.0], [1e30]), "OneHot": ([1, 2], huge, [0, 1]),
    }[op]  # fmt: skip
    for i, value in enumerate(sizes):
        tensor = _constant(f"bomb.in{i}", value)
        model.graph.initializer.add().CopyFrom(tensor)
        node.input.append(tensor.name)
    if rng.random() < 0.5:
        reader = model.graph.node.add(op_type="Shape", name="bomb.read")
        reader.input.append("bomb.out")
        reader.output.append("bomb.shape")
    if rng.random() < 0.5:
        users = [n for n in model.graph.node if n.input and not n.name.startswith("bomb")]
        if users:
            user = pick(rng, users)
            user.input[int(rng.integers(len(user.input)))] = "bomb.out"


def _constant(name: str, value: Any) -> onnx.TensorProto:
    array = np.asarray(value)
    kind = np.float32 if array.dtype.kind == "f" else np.int64
    return ir.to_proto(ir.tensor(array.astype(kind), name=name))


def _nest(rng: Rng, model: onnx.ModelProto) -> None:
    """Graphs in graphs in graphs."""
    graph = onnx.GraphProto(name="inner")
    for level in range(int(pick(rng, (3, 10, 20, 22)))):
        outer = onnx.GraphProto(name=f"level{level}")
        node = outer.node.add(op_type="If", name=f"if{level}")
        node.input.append(pick(rng, ("", "cond")))
        node.output.append(f"y{level}")
        for branch in ("then_branch", "else_branch"):
            if branch == "else_branch" and level > 8:
                continue
            attribute = node.attribute.add(name=branch, type=onnx.AttributeProto.GRAPH)
            attribute.g.CopyFrom(graph)
        outer.output.add(name=f"y{level}")
        graph = outer
        if graph.ByteSize() > 1 << 16:
            break
    model.graph.node.add().CopyFrom(graph.node[0])


_OPS = sorted({(schema.domain, schema.name) for schema in onnx.defs.get_all_schemas()}) + [
    ("com.microsoft", name)
    for name in (
        *("Attention", "MultiHeadAttention", "GroupQueryAttention", "RotaryEmbedding", "QMoE"),
        *("SkipLayerNormalization", "SimplifiedLayerNormalization", "FastGelu", "BiasGelu"),
        *("MatMulNBits",),
        *("SkipSimplifiedLayerNormalization", "EmbedLayerNormalization", "FusedMatMul", "MoE"),
        *("GatherBlockQuantized", "DequantizeLinear", "QuantizeLinear", "QAttention", "BiasAdd"),
        *("DecoderMaskedMultiHeadAttention", "CausalConvWithState", "LinearAttention", "EPContext"),
    )
]
_CHANGES = (
    *(_any_field,) * 4, _other_op, _other_op, _other_input, _other_input, _attribute, _attribute,
    _tensor, _tensor, _dims, _bomb, _nest,
)  # fmt: skip
