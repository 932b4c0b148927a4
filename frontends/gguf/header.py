"""The head of one GGUF file: metadata and the list of tensors, read without the ``gguf`` package.

Its reader makes arrays of every string and takes many seconds for a vocabulary of 262,144; this
one takes a fraction of one. Layout: ggml's ``docs/gguf.md``, versions 2 and 3, little-endian.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

from rewriter.errors import BadInput

Scalar = str | int | float | bool
Value = Scalar | list[str] | list[int] | list[float] | list[bool]

_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_NUMBERS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
"""Types of metadata values that are numbers, as ``struct`` writes them."""
_TEXT, _LIST = 8, 9
_SHORTEST_KEY, _SHORTEST_TENSOR = 8 + 4 + 1, 8 + 4 + 4 + 8
_MOST_DIMS = 4
_MOST_ENTRIES, _LONGEST_TEXT = 1 << 24, 1 << 26
"""More than any vocabulary or template has; beyond is damage, and would fill the memory."""
_START = 8
"""Bytes before the counts: magic and version."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A tensor as the head lists it.

    Attributes:
        name: of the tensor.
        dims: in ggml's order, fastest first.
        kind: number of its type.
        offset: of its bytes, from the start of the data.
    """

    name: str
    dims: tuple[int, ...]
    kind: int
    offset: int


@dataclass(frozen=True, slots=True)
class Header:
    """What stands before the data, and where that starts in the file if it is not aligned."""

    metadata: dict[str, Value]
    tensors: tuple[Listed, ...]
    end: int


def read_header(path: Path, data: mmap.mmap) -> Header:
    """Read what follows magic and version.

    Raises:
        BadInput: it ends too early, or holds what no GGUF file can.
    """
    head = _Head(path, data)
    tensor_count, key_count = head.u64("the counts"), head.u64("the counts")
    head.expect(key_count * _SHORTEST_KEY, f"its {key_count} metadata keys")
    metadata: dict[str, Value] = {}
    for i in range(key_count):
        key = head.text(f"metadata key {i + 1} of {key_count}")
        if key in metadata:
            raise head.damaged(f"the metadata key {key!r} is there twice")
        metadata[key] = head.value(head.u32(f"the type of {key!r}"), f"the metadata key {key!r}")
    head.expect(tensor_count * _SHORTEST_TENSOR, f"its list of {tensor_count} tensors")
    tensors = tuple(head.listed(f"tensor {i + 1} of {tensor_count}") for i in range(tensor_count))
    return Header(metadata, tensors, head.offset)


class _Head:
    """A place in the head of a file, and what can be read there."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self._path = path
        self._data = data
        self._size = len(data)
        self.offset = _START

    def damaged(self, what: str) -> BadInput:
        """The error of a file that cannot be as it was written."""
        return BadInput(f"{self._path}: damaged: {what}; download or copy the file again")

    def expect(self, count: int, what: str) -> None:
        """Raise if the file ends before so many more bytes."""
        if self.offset + count > self._size:
            raise BadInput(
                f"{self._path}: the file is cut off, or damaged: {what} would reach beyond its end "
                f"({self._size} bytes); download or copy it again"
            )

    def u32(self, what: str) -> int:
        """An unsigned number of 4 bytes."""
        self.expect(_U32.size, what)
        (number,) = _U32.unpack_from(self._data, self.offset)
        self.offset += _U32.size
        return int(number)

    def u64(self, what: str) -> int:
        """An unsigned number of 8 bytes."""
        self.expect(_U64.size, what)
        (number,) = _U64.unpack_from(self._data, self.offset)
        self.offset += _U64.size
        return int(number)

    def text(self, what: str) -> str:
        """A string: its length in bytes, and UTF-8."""
        return self._texts(1, what)[0]

    def value(self, kind: int, what: str) -> Value:
        """A metadata value of a type."""
        if kind == _TEXT:
            return self.text(what)
        if kind != _LIST:
            return self._numbers(kind, 1, what)[0]
        inner, count = self.u32(what), self.u64(what)
        if count > _MOST_ENTRIES:
            raise self.damaged(f"{what} is said to hold {count} entries")
        return self._texts(count, what) if inner == _TEXT else self._numbers(inner, count, what)

    def listed(self, what: str) -> Listed:
        """One entry of the list of tensors."""
        name = self.text(f"the name of {what}")
        count = self.u32(f"tensor {name!r}")
        if count > _MOST_DIMS:
            raise self.damaged(f"tensor {name!r} has {count} dims, and ggml knows at most 4")
        dims = tuple(self.u64(f"tensor {name!r}") for _ in range(count))
        return Listed(name, dims, self.u32(f"tensor {name!r}"), self.u64(f"tensor {name!r}"))

    def _numbers(self, kind: int, count: int, what: str) -> list[int] | list[float] | list[bool]:
        code = _NUMBERS.get(kind)
        if code is None:
            raise self.damaged(f"{what} has the type {kind}, which is none")
        self.expect(count * struct.calcsize(f"<{code}"), what)
        numbers = struct.unpack_from(f"<{count}{code}", self._data, self.offset)
        self.offset += count * struct.calcsize(f"<{code}")
        return list(numbers)

    def _texts(self, count: int, what: str) -> list[str]:
        self.expect(count * _U64.size, what)
        data, offset, length_at = self._data, self.offset, _U64.unpack_from
        texts: list[str] = []
        try:
            for _ in range(count):
                (length,) = length_at(data, offset)
                offset += _U64.size
                if length > _LONGEST_TEXT:
                    raise self.damaged(f"{what} is said to hold a text of {length} bytes")
                texts.append(str(data[offset : offset + length], "utf-8"))
                offset += length
        except UnicodeDecodeError:
            self.expect(offset - self.offset + length, what)
            raise self.damaged(f"{what} is no UTF-8 text") from None
        except (struct.error, OverflowError):
            offset = self._size + 1
        self.expect(offset - self.offset, what)
        self.offset = offset
        return texts
