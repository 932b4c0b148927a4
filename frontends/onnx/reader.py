"""Opening an ONNX file, with every fault that a file can have found before work begins."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx_ir as ir
from google.protobuf.message import DecodeError

from rewriter.errors import BadInput, OutOfResources
from rewriter.wellformed import faults

_MAGIC = {b"GGUF": "a GGUF file", b"PK\x03\x04": "a zip archive", b"\x89HDF": "an HDF5 file"}


def read_onnx(path: Path) -> ir.Model:
    """Read an ONNX model; external data stays on disk.

    Raises:
        BadInput: it is no ONNX file, it is damaged, its external data is missing or too short,
            or it was compiled for an EP.
        OutOfResources: it does not fit into memory.
    """
    _check_magic(path)
    try:
        model = ir.load(path)
    except DecodeError:
        raise BadInput(
            f"{path}: not an ONNX model, or cut off: its protobuf cannot be "
            "parsed; export or copy it again"
        ) from None
    except MemoryError:
        raise OutOfResources(f"{path}: too large for the memory of this machine") from None
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror or error}") from None
    except Exception as error:
        raise BadInput(f"{path}: not a usable ONNX model: {error}") from None
    _check_graph(path, model)
    for tensor in _tensors(model):
        _check_tensor(path, tensor)
    return model


def _check_magic(path: Path) -> None:
    try:
        with path.open("rb") as file:
            start = file.read(4)
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror or error}") from None
    if not start:
        raise BadInput(f"{path}: the file is empty")
    if start in _MAGIC:
        raise BadInput(f"{path}: is {_MAGIC[start]}, not ONNX; give it its own ending")


def _check_graph(path: Path, model: ir.Model) -> None:
    if not model.graph.outputs or not model.opset_imports:
        raise BadInput(f"{path}: holds no graph with outputs and opsets; is it an ONNX model?")
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        if node.op_type == "EPContext":
            source = node.attributes.get("source")
            runtime = f" for {source.as_string()}" if source is not None else ""
            raise BadInput(
                f"{path}: node '{node.name}' is an EPContext, compiled{runtime}; "
                "rewrite the model it was compiled from"
            )
    found = next(faults(model), None)
    if found:
        raise BadInput(f"{path}: {found}")


def _tensors(model: ir.Model) -> Iterator[ir.TensorProtocol]:
    for graph in model.graphs():
        for value in graph.initializers.values():
            if value.const_value is not None:
                yield value.const_value


def _check_tensor(path: Path, tensor: ir.TensorProtocol) -> None:
    if isinstance(tensor, ir.ExternalTensor):
        _check_external(path, tensor)
        return
    if isinstance(tensor, ir.TensorProtoTensor):
        stored = len(tensor.raw) if isinstance(tensor.raw, bytes) else None
        if stored is not None and stored != tensor.nbytes:
            raise BadInput(
                f"{path}: initializer '{tensor.name}' holds {stored} bytes where its "
                f"shape and type need {tensor.nbytes}"
            )


def _check_external(path: Path, tensor: ir.ExternalTensor) -> None:
    data = Path(tensor.path)
    if not data.is_file():
        raise BadInput(
            f"{path}: the external data of '{tensor.name}' is missing: {data} is not "
            "there; copy it beside the model"
        )
    end = (tensor.offset or 0) + (tensor.length or tensor.nbytes)
    size = data.stat().st_size
    if size < end:
        raise BadInput(
            f"{path}: the external data is cut off: '{tensor.name}' needs bytes up to "
            f"{end} of {data.name}, which has {size} ({end - size} missing)"
        )
    if tensor.length is not None and tensor.length < tensor.nbytes:
        raise BadInput(
            f"{path}: '{tensor.name}' has {tensor.length} bytes of external data where "
            f"its shape and type need {tensor.nbytes}"
        )
