"""The tensors of an ONNX file: whether each has the bytes that its shape and type need.

Looked at as protobuf, before anything reads a tensor: what is wrong here shows up later as an
error far from its cause, or as an output that lacks weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath

import onnx
import onnx_ir as ir

from rewriter.errors import BadInput

_FIELDS = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data")
_COMPLEX = frozenset({ir.DataType.COMPLEX64, ir.DataType.COMPLEX128})
_BYTE = 8


def check_tensors(path: Path, model: onnx.ModelProto) -> None:
    """Look at every tensor, those of subgraphs, attributes and functions included.

    Raises:
        BadInput: one is malformed, or its data is missing, cut off or out of reach.
    """
    for label, tensor in _of_graph(model.graph):
        _check(path, label, tensor)
    for function in model.functions:
        for label, tensor in _of_nodes(function.node):
            _check(path, label, tensor)


def _of_graph(graph: onnx.GraphProto) -> Iterator[tuple[str, onnx.TensorProto]]:
    for tensor in graph.initializer:
        yield f"initializer '{tensor.name}'", tensor
    yield from _of_nodes(graph.node)


def _of_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[tuple[str, onnx.TensorProto]]:
    for node in nodes:
        for attribute in node.attribute:
            label = f"attribute {attribute.name} of node '{node.name}'"
            if attribute.HasField("t"):
                yield label, attribute.t
            for tensor in attribute.tensors:
                yield label, tensor
            if attribute.HasField("g"):
                yield from _of_graph(attribute.g)
            for graph in attribute.graphs:
                yield from _of_graph(graph)


def _check(path: Path, label: str, tensor: onnx.TensorProto) -> None:
    try:
        dtype = ir.DataType(tensor.data_type)
    except ValueError:
        dtype = ir.DataType.UNDEFINED
    if dtype == ir.DataType.UNDEFINED:
        raise BadInput(f"{path}: {label} has the element type {tensor.data_type}, which is none")
    if any(dim < 0 for dim in tensor.dims):
        raise BadInput(f"{path}: {label} has the shape {list(tensor.dims)}; no dim is below 0")
    size = math.prod(tensor.dims)
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        _check_external(path, label, tensor, -(-size * dtype.bitwidth // _BYTE))
    else:
        _check_inline(path, label, tensor, dtype, size)


def _check_inline(
    path: Path, label: str, tensor: onnx.TensorProto, dtype: ir.DataType, size: int
) -> None:
    if tensor.HasField("raw_data"):
        unit, stored = "bytes", len(tensor.raw_data)
        needed = -(-size * dtype.bitwidth // _BYTE)
    else:
        unit, stored = "values", max(len(getattr(tensor, field)) for field in _FIELDS)
        needed = _values(dtype, size)
    if stored != needed:
        raise BadInput(
            f"{path}: {label} holds {stored} {unit} where its shape {list(tensor.dims)} and type "
            f"{dtype.name.lower()} need {needed}; export or copy the model again"
        )


def _values(dtype: ir.DataType, size: int) -> int:
    """Values of a typed field: types below a byte are packed, complex ones take two."""
    if dtype in _COMPLEX:
        return 2 * size
    if dtype != ir.DataType.STRING and dtype.bitwidth < _BYTE:
        return -(-size * dtype.bitwidth // _BYTE)
    return size


def _check_external(path: Path, label: str, tensor: onnx.TensorProto, needed: int) -> None:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    offset = _number(path, label, entries, "offset", 0)
    length = _number(path, label, entries, "length", needed)
    if length != needed:
        raise BadInput(
            f"{path}: {label} has {length} bytes of external data where its shape "
            f"{list(tensor.dims)} and type need {needed}"
        )
    data = _data_file(path, label, entries.get("location", ""))
    size = data.stat().st_size
    if size < offset + length:
        raise BadInput(
            f"{path}: the external data is cut off: {label} needs bytes up to {offset + length} "
            f"of {data.name}, which has {size} ({offset + length - size} missing); copy it again"
        )


def _number(path: Path, label: str, entries: dict[str, str], key: str, default: int) -> int:
    text = entries.get(key)
    if text is None:
        return default
    if not text.isdecimal():
        raise BadInput(f"{path}: {label} has external data with the {key} '{text}', no number")
    return int(text)


def _data_file(path: Path, label: str, location: str) -> Path:
    """The file, which has to be a plain one inside the model's folder: others are not read."""
    parts = (*PurePosixPath(location).parts, *PureWindowsPath(location).parts)
    if not location or ".." in parts or PurePosixPath(location).is_absolute():
        raise BadInput(
            f"{path}: the external data of {label} is said to be in '{location}', which is no "
            "file in the model's folder; such a file is not read"
        )
    data = path.parent / location
    if not data.is_file():
        raise BadInput(
            f"{path}: the external data of {label} is missing: {data} is not "
            "there; copy it beside the model"
        )
    if not data.resolve().is_relative_to(path.parent.resolve()):
        raise BadInput(
            f"{path}: the external data of {label}, {data}, is a link out of the model's folder, "
            "which is not followed; copy the model with the files that its links lead to (cp -rL)"
        )
    if data.stat().st_nlink > 1:
        raise BadInput(
            f"{path}: the external data of {label}, {data}, is a hard link, which is not "
            "followed; copy the model to another folder"
        )
    return data
