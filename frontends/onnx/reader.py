"""Opening an ONNX file, with every fault that a file can have found before work begins."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError

from frontends.onnx.damage import check_damage
from rewriter.errors import BadInput, OutOfResources
from rewriter.onnx_tensors import check_tensors
from rewriter.source import CONTEXT
from rewriter.wellformed import faults, misused_attributes

_STARTS = {
    b"GGUF": "is a GGUF file, not ONNX; give it its own ending",
    b"PK\x03\x04": "is a zip archive, not ONNX; unpack it",
    b"\x89HDF": "is an HDF5 file, not ONNX; export it to ONNX",
    b"version https://git-lfs": "is a Git LFS pointer, not the model; fetch it with: git lfs pull",
    b"<!DOCTYPE": "is a web page, not ONNX; download the file itself",
    b"<html": "is a web page, not ONNX; download the file itself",
}
"""How files start that are called .onnx by mistake, and what to do about each."""


_DIGITS = 20
"""More than any number of positions has."""


def read_onnx(path: Path) -> ir.Model:
    """Read an ONNX model; external data stays on disk.

    Raises:
        BadInput: it is no ONNX file, it is damaged, its external data is missing or too short,
            or it was compiled for an EP.
        OutOfResources: it does not fit into memory.
    """
    proto = _parsed(path)
    _check_parts(path, proto)
    check_damage(path, proto)
    check_tensors(path, proto)
    model = _deserialized(path, proto)
    _check_graph(path, model)
    return model


def _parsed(path: Path) -> onnx.ModelProto:
    try:
        with path.open("rb") as file:
            start = file.read(max(map(len, _STARTS)))
        _check_start(path, start)
        return onnx.load(path, format="protobuf", load_external_data=False)
    except DecodeError:
        raise BadInput(
            f"{path}: not an ONNX model, or cut off: its protobuf cannot be "
            "parsed; export or copy it again"
        ) from None
    except MemoryError:
        raise OutOfResources(f"{path}: too large for the memory of this machine") from None
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror or error}") from None


def _check_start(path: Path, start: bytes) -> None:
    if not start:
        raise BadInput(f"{path}: the file is empty; export or copy it again")
    for signature, words in _STARTS.items():
        if start.startswith(signature):
            raise BadInput(f"{path}: {words}")


def _check_parts(path: Path, proto: onnx.ModelProto) -> None:
    """What is looked at before the graph is built, as building it would lose or hide it."""
    graph = proto.graph
    if not graph.output or not proto.opset_import:
        raise BadInput(
            f"{path}: holds no graph with outputs and opsets, so it is no ONNX model, or a "
            "damaged one; export it again"
        )
    newest = onnx.defs.onnx_opset_version()
    for entry in proto.opset_import:
        if entry.domain in {"", "ai.onnx"} and not 0 < entry.version <= newest:
            raise BadInput(
                f"{path}: has opset {entry.version}; this tool knows 1 to {newest}, export it "
                "with one of these"
            )
    if graph.sparse_initializer:
        raise BadInput(f"{path}: has sparse initializers, which cannot be read; make them dense")
    for entry in proto.metadata_props:
        if entry.key == CONTEXT and not (entry.value.isdecimal() and len(entry.value) < _DIGITS):
            raise BadInput(
                f"{path}: the metadata entry '{CONTEXT}' is {entry.value[:_DIGITS]!r}, no number "
                "of positions; write the model anew"
            )
    counts = Counter(tensor.name for tensor in graph.initializer)
    name, count = max(counts.items(), key=lambda item: item[1], default=("", 1))
    if count > 1:
        raise BadInput(f"{path}: {count} initializers are named '{name}'; export it again")


def _deserialized(path: Path, proto: onnx.ModelProto) -> ir.Model:
    try:
        with _quiet():
            model = ir.from_proto(proto)
        ir.external_data.set_base_dir(model.graph, path.parent)
        graphs: list[ir.Graph | ir.Function] = [*model.graphs(), *model.functions.values()]
        for graph in graphs:
            _load_attributes(graph, path.parent)
            _sort(graph)
    except MemoryError:
        raise OutOfResources(f"{path}: too large for the memory of this machine") from None
    except Exception as error:
        cause: BaseException = error
        while cause.__cause__ is not None:  # onnx_ir says where first, and why last
            cause = cause.__cause__
        raise BadInput(f"{path}: not a usable ONNX model: {cause}") from None
    return model


@contextmanager
def _quiet() -> Generator[None, None, None]:
    """Keep onnx_ir from logging what is reported as an error anyway."""
    logger = logging.getLogger("onnx_ir")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def _load_attributes(graph: ir.Graph | ir.Function, folder: Path) -> None:
    """Tensors of attributes come into memory: external data is written for initializers alone."""
    for node in graph:
        for name, attribute in list(node.attributes.items()):
            if attribute.is_ref() or attribute.type != ir.AttributeType.TENSOR:
                continue
            tensor = attribute.as_tensor()
            if isinstance(tensor, ir.ExternalTensor):
                tensor.base_dir = folder
                loaded = ir.Tensor(tensor.numpy().copy(), dtype=tensor.dtype, name=tensor.name)
                node.attributes[name] = ir.AttrTensor(name, loaded)


def _sort(graph: ir.Graph | ir.Function) -> None:
    """Nodes after what they read. Runtimes sort by themselves, so files in disorder exist."""
    seen: set[ir.Value] = set()
    for node in graph:
        late = (v.producer() for v in node.inputs if v is not None and v not in seen)
        if any(producer is not None and producer.graph is graph for producer in late):
            graph.sort()
            return
        seen.update(node.outputs)


def _check_graph(path: Path, model: ir.Model) -> None:
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        if node.op_type == "EPContext":
            source = node.attributes.get("source")
            runtime = f" for {source.value}" if source is not None else ""
            raise BadInput(
                f"{path}: node '{node.name}' is an EPContext, compiled{runtime}; "
                "rewrite the model it was compiled from"
            )
    for value in model.graph.inputs:
        if value.type is None:
            raise BadInput(f"{path}: the input '{value.name}' declares no type; export it with one")
        if any(isinstance(dim, int) and dim < 0 for dim in value.shape or ()):
            raise BadInput(
                f"{path}: the input '{value.name}' has the shape {value.shape}; a dim is a number "
                "from 0 or a name"
            )
    for value in (*model.graph.inputs, *model.graph.outputs):
        if value.type is not None and value.dtype == ir.DataType.UNDEFINED:
            raise BadInput(f"{path}: '{value.name}' has no element type; export it again")
    found = next(chain(faults(model), misused_attributes(model)), None)
    if found:
        raise BadInput(f"{path}: {found}; export it again")
