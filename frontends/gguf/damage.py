"""Faults of GGUF files, each one sentence with the next step."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from rewriter.errors import BadInput

if TYPE_CHECKING:
    from frontends.gguf.header import Listed, Value

_STARTS = {
    b"PK\x03\x04": "is a zip archive, not GGUF; unpack it",
    b"version https://git-lfs": "is a Git LFS pointer, not the model; fetch it with: git lfs pull",
    b"<!DOCTYPE": "is a web page, not GGUF; download the file itself",
    b"<html": "is a web page, not GGUF; download the file itself",
    b"ggjt": "has the format from before GGUF; download the model as GGUF",
    b"ggla": "has the format from before GGUF; download the model as GGUF",
    b"ggml": "has the format from before GGUF; download the model as GGUF",
}
"""How files start that are called .gguf by mistake, in the order of their bytes."""
_VERSIONS = (2, 3)
_HEAD = 8
_REMOVED = frozenset({4, 5, 31, 32, 33, 36, 37, 38})
"""Types that llama.cpp had and dropped: its own older files, or repacked for one CPU."""
_LARGEST = 1 << 62
_ALIGNMENT = "general.alignment"
_DEFAULT_ALIGNMENT = 32
_NO_MODEL = {
    "mmproj": "the vision or audio part of a model (mmproj)",
    "adapter": "an adapter (LoRA)",
    "imatrix": "an importance matrix",
}
"""What ``general.type`` says of files that are no model."""


def check_start(path: Path, start: bytes) -> None:
    """Look at magic and version.

    Raises:
        BadInput: another kind of file, a version that cannot be read, or big-endian.
    """
    if not start:
        raise BadInput(f"{path}: the file is empty; download or copy it again")
    if not start.startswith(b"GGUF"):
        for signature, words in _STARTS.items():
            if start.startswith((signature, signature[::-1])):
                raise BadInput(f"{path}: {words}")
        raise BadInput(
            f"{path}: not a GGUF file: it starts with {start[:4]!r} instead of b'GGUF'; download "
            "or copy it again"
        )
    if len(start) < _HEAD:
        raise BadInput(f"{path}: the file is cut off after {len(start)} bytes; copy it again")
    version = int.from_bytes(start[4:_HEAD], "little")
    if version in _VERSIONS:
        return
    if int.from_bytes(start[4:_HEAD], "big") in {1, *_VERSIONS}:
        raise BadInput(f"{path}: a big-endian GGUF file; convert the model again as little-endian")
    if version == 1:
        raise BadInput(f"{path}: GGUF version 1, which llama.cpp dropped too; convert it again")
    raise BadInput(
        f"{path}: GGUF version {version}; this tool reads 2 and 3: the file is damaged, or newer "
        "than the tool"
    )


def alignment(path: Path, metadata: Mapping[str, Value]) -> int:
    """Where tensors may start.

    Raises:
        BadInput: the file states what is no alignment.
    """
    value = metadata.get(_ALIGNMENT, _DEFAULT_ALIGNMENT)
    if type(value) is not int or value < 1 or value & (value - 1):
        raise BadInput(
            f"{path}: damaged: {_ALIGNMENT} is {value!r}, no power of two; download or copy it "
            "again"
        )
    return value


def check_layout(path: Path, tensors: Sequence[Listed], step: int, start: int, size: int) -> None:
    """Look at names, types, shapes and places of all tensors of one file.

    Args:
        path: of the file.
        tensors: as listed.
        step: alignment.
        start: of the data in the file.
        size: of the file.

    Raises:
        BadInput: two of one name, an unknown type, an impossible shape, a tensor that is not
            where the one before ends, or that the file ends before.
    """
    twice = [name for name, count in Counter(t.name for t in tensors).items() if count > 1]
    if twice:
        raise BadInput(f"{path}: two tensors are named {twice[0]!r}; convert the model again")
    place = 0
    for tensor in tensors:
        length = nbytes(path, tensor)
        if tensor.offset != place:
            raise BadInput(
                f"{path}: damaged: tensor {tensor.name!r} is said to start at byte {tensor.offset} "
                f"of the data, where the one before ends at {place}; download or copy it again"
            )
        if start + place + length > size:
            raise BadInput(
                f"{path}: the file is cut off: tensor {tensor.name!r} needs bytes up to "
                f"{start + place + length} and there are {size}; download or copy it again"
            )
        place += -(-length // step) * step


def nbytes(path: Path, tensor: Listed) -> int:
    """Bytes of a tensor.

    Raises:
        BadInput: an unknown type, or a shape that none can have.
    """
    shape = list(reversed(tensor.dims))
    try:
        block, stored = GGML_QUANT_SIZES[GGMLQuantizationType(tensor.kind)]
    except (ValueError, KeyError):
        dropped = "which llama.cpp dropped; quantize the model again"
        unknown = "which the installed gguf package does not know; update it, or copy the file"
        raise BadInput(
            f"{path}: tensor {tensor.name!r} has the type {tensor.kind}, "
            f"{dropped if tensor.kind in _REMOVED else unknown}"
        ) from None
    if 0 in shape or math.prod(shape) > _LARGEST:
        raise BadInput(
            f"{path}: damaged: tensor {tensor.name!r} has the shape {shape}, which none can have; "
            "download or copy it again"
        )
    if (shape[-1] if shape else 1) % block:
        kind = GGMLQuantizationType(tensor.kind).name
        raise BadInput(
            f"{path}: damaged: tensor {tensor.name!r} has the shape {shape}, whose rows are no "
            f"multiple of the {block} values of a {kind} block; download or copy it again"
        )
    return math.prod(shape) // block * stored


def check_text_model(path: Path, metadata: Mapping[str, Value], tensors: int) -> None:
    """Look at whether a file is a language model with weights.

    Raises:
        BadInput: it is a part or an attachment of one, a vocabulary alone, or does not say.
    """
    kind, architecture = metadata.get("general.type"), metadata.get("general.architecture")
    what = _NO_MODEL.get(str(kind)) or (_NO_MODEL["mmproj"] if architecture == "clip" else None)
    if what is not None:
        raise BadInput(
            f"{path}: this file is {what}, not a text model; give the model's own GGUF file"
        )
    if not isinstance(architecture, str) or not architecture:
        raise BadInput(
            f"{path}: the metadata key general.architecture is missing, or no text; convert the "
            "model again"
        )
    if not tensors:
        raise BadInput(f"{path}: holds no tensors, only metadata; give the model's own GGUF file")
