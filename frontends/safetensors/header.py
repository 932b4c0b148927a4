"""One safetensors file: its header, looked at before it is believed, and its tensors, mapped."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from rewriter.errors import BadInput

_LENGTH = 8
"""Bytes that say how long the header is."""
_POINTER = b"version https://git-lfs"
_AGAIN = "download or copy it again"


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor of a file, not read yet.

    Attributes:
        path: of the file.
        dtype: as the format calls it: ``F32``, ``BF16``, ``U8``, ...
        shape: of the tensor.
        start: first byte in the file.
        nbytes: how many there are.
    """

    path: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    nbytes: int

    def rows(self) -> npt.NDArray[np.uint8]:
        """Bytes (rows, bytes of a row), mapped; a row is what lies along the last axis."""
        count = math.prod(self.shape[: max(len(self.shape) - 1, 1)])
        if not self.nbytes:
            return np.empty((count, 0), np.uint8)
        mapped = np.memmap(self.path, np.uint8, "r", self.start, (self.nbytes,))
        return np.asarray(mapped).reshape(count, -1)


def tensors_of(path: Path) -> dict[str, Stored]:
    """All tensors of a file by name.

    Raises:
        BadInput: it is empty, cut off, another kind of file, or its header contradicts itself.
    """
    start, listed = _header(path)
    try:
        # The library checks dtypes, shapes and places of all tensors against each other.
        with safe_open(path, framework="numpy") as file:
            names = list(file.keys())
    except SafetensorError as error:
        detail = str(error).removeprefix("Error while deserializing header: ")
        raise BadInput(f"{path}: the header is damaged ({detail}); {_AGAIN}") from None
    found = {}
    for name in names:
        first, last = listed[name]["data_offsets"]
        shape = tuple(listed[name]["shape"])
        found[name] = Stored(path, listed[name]["dtype"], shape, start + first, last - first)
    return found


def _header(path: Path) -> tuple[int, Mapping[str, Any]]:
    """Where the data starts, and what the header lists.

    Raises:
        BadInput: the file ends before what its header says, or has none.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        begin = file.read(_LENGTH)
        length = int.from_bytes(begin, "little")
        if not size:
            raise BadInput(f"{path}: the file is empty; {_AGAIN}")
        if _POINTER.startswith(begin):
            raise BadInput(
                f"{path}: is a Git LFS pointer, not the weights; fetch them with: git lfs pull"
            )
        if size < _LENGTH:
            raise BadInput(f"{path}: the file is cut off after {size} bytes; {_AGAIN}")
        # A real header begins with a brace; other files have any length in their first bytes.
        if file.read(1) != b"{":
            raise BadInput(f"{path}: is no safetensors file: it has no header; {_AGAIN}")
        if _LENGTH + length > size:
            raise BadInput(
                f"{path}: the file is cut off: its header needs {length} bytes and there are "
                f"{size - _LENGTH}; {_AGAIN}"
            )
        file.seek(_LENGTH)
        text = file.read(length)
    try:
        listed = json.loads(text)
        tensors = {name: entry for name, entry in listed.items() if name != "__metadata__"}
        ends = [int(entry["data_offsets"][1]) for entry in tensors.values()]
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        raise BadInput(
            f"{path}: the header is damaged (it does not list tensors); {_AGAIN}"
        ) from None
    end = _LENGTH + length + max(ends, default=0)
    if end > size:
        raise BadInput(
            f"{path}: the file is cut off: its tensors need {end} bytes and there are {size}; "
            f"{_AGAIN}"
        )
    return _LENGTH + length, tensors
