"""Several graphs of one folder that keep equal weights in one file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from rewriter.packing import stored_bytes
from rewriter.streamed import StreamedTensor

_SMALL = 1024
"""Bytes up to which a constant stays in its own graph."""


def save_beside(model: ir.Model, path: Path, first: ir.Model) -> int:
    """Write a graph that uses the stored weights of another one where they are equal.

    What is its own goes into a file of its own, ``<name>.data``, if it is not small.

    Args:
        model: the graph; its constants point at what is stored afterwards.
        path: where to write it.
        first: the other one, read back from the same folder.

    Returns:
        Bytes of weights that are shared.
    """
    stored: dict[str, ir.ExternalTensor] = {
        name: value.const_value
        for name, value in first.graph.initializers.items()
        if isinstance(value.const_value, ir.ExternalTensor)
    }
    shared = 0
    own: list[ir.Value] = []
    for name, value in model.graph.initializers.items():
        tensor, other = value.const_value, stored.get(name)
        if tensor is None or tensor.nbytes <= _SMALL:
            continue
        if other is not None and _equal(tensor, other):
            value.const_value = _in_shape(other, tensor.shape)
            shared += other.nbytes
        else:
            own.append(value)
    tensors = [value.const_value for value in own if value.const_value is not None]
    if tensors:  # else there would be an empty file
        written = ir.external_data.convert_tensors_to_external(
            tensors, path.parent, f"{path.name}.data"
        )
        for value, tensor in zip(own, written, strict=True):
            value.const_value = tensor
    ir.save(model, path)
    return shared


def missing_weights(model: ir.Model) -> str:
    """The first weight that is not whole in its file, in words; empty if all are.

    Args:
        model: as it was read.
    """
    for graph in model.graphs():
        for value in graph.initializers.values():
            tensor = value.const_value
            if not isinstance(tensor, ir.ExternalTensor):
                continue
            file, end = Path(tensor.path), (tensor.offset or 0) + (tensor.length or tensor.nbytes)
            if not file.is_file():
                return f"'{value.name}' is in {file.name}, which is missing"
            if file.stat().st_size < end:
                return f"'{value.name}' lies past the end of {file.name}"
    return ""


def _in_shape(stored: ir.ExternalTensor, shape: ir.ShapeProtocol) -> ir.ExternalTensor:
    """What is stored, seen in another shape: one graph gathers what another reads whole."""
    if list(stored.shape.numpy()) == list(shape.numpy()):
        return stored
    return ir.ExternalTensor(
        stored.location,
        stored.offset,
        stored.length,
        stored.dtype,
        shape=ir.Shape(shape.numpy()),
        name=stored.name or "",
        base_dir=stored.base_dir,
    )


def _equal(one: ir.TensorProtocol, other: ir.ExternalTensor) -> bool:
    """Whether two tensors have the same type, size and bytes; neither is read whole."""
    if (one.dtype, one.size) != (other.dtype, other.size):
        return False
    stored, position = stored_bytes(other), 0
    for piece in _pieces(one):
        if not np.array_equal(piece, stored[position : position + len(piece)]):
            return False
        position += len(piece)
    return position == len(stored)


def _pieces(tensor: ir.TensorProtocol) -> Iterator[npt.NDArray[np.uint8]]:
    if isinstance(tensor, StreamedTensor):
        yield from (piece.reshape(-1).view(np.uint8) for piece in tensor.pieces())
    else:
        yield stored_bytes(tensor)
