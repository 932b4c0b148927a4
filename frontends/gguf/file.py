"""A GGUF file, or all shards of one: metadata and tensors, mapped into memory, read when used."""

from __future__ import annotations

import math
import mmap
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from frontends.gguf.damage import alignment, check_layout, check_start
from frontends.gguf.header import Header, Value, read_header
from rewriter.errors import BadInput, OutOfResources

__all__ = ["GgufFile", "GgufTensor", "Value"]

_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.IGNORECASE)
_COMPARED = 1 << 24
"""Bytes of two tensors that are compared at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class GgufTensor:
    """A tensor where it lies.

    Attributes:
        name: of the tensor.
        type: of its blocks.
        shape: in ONNX's order, slowest first.
        offset: of its first byte in its file.
        raw: its bytes, mapped: uint8 (rows, bytes of a row), stacked experts one after the other.
        path: the file that holds it.
    """

    name: str
    type: GGMLQuantizationType
    shape: tuple[int, ...]
    offset: int
    raw: npt.NDArray[np.uint8]
    path: Path

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return self.raw.nbytes


@dataclass(frozen=True, slots=True, eq=False)
class GgufFile:
    """An opened model.

    Attributes:
        path: of the file, of the first one where there are shards.
        metadata: strings, numbers, truth values, and lists of them, by key.
        tensors: by name, in the order of the file.
    """

    path: Path
    metadata: dict[str, Value]
    tensors: dict[str, GgufTensor]

    @classmethod
    def open(cls, path: str | Path) -> GgufFile:
        """Read the head of a file, or of all shards when one of them is given.

        Raises:
            BadInput: it is no GGUF file, cannot be read or is damaged, or a shard is missing.
            OutOfResources: it does not fit into the address space.
        """
        given = Path(path)
        header, tensors = _one(given)
        count = _number(given, header, "split.count", 1)
        if count <= 1:
            return cls(given, header.metadata, tensors)
        return cls._joined(given, header, tensors, count)

    @classmethod
    def _joined(
        cls, given: Path, header: Header, own: dict[str, GgufTensor], count: int
    ) -> GgufFile:
        paths = _shards(given, _number(given, header, "split.no", 0), count)
        metadata: dict[str, Value] = {}
        tensors: dict[str, GgufTensor] = {}
        for number, path in enumerate(paths):
            head, found = (header, own) if path == given else _one(path)
            stated = (_number(path, head, "split.no", 0), _number(path, head, "split.count", 1))
            if stated != (number, count):
                raise BadInput(
                    f"{path}: says it is shard {stated[0] + 1} of {stated[1]}, and is named as "
                    f"{number + 1} of {count}; give the shards the names they were made with"
                )
            both = next((name for name in found if name in tensors), None)
            if both is not None:
                raise BadInput(
                    f"{path}: the tensor {both!r} is also in {tensors[both].path.name}; split the "
                    "model again"
                )
            metadata = metadata or head.metadata
            tensors |= found
        stated_tensors = metadata.get("split.tensors.count", len(tensors))
        if stated_tensors != len(tensors):
            raise BadInput(
                f"{paths[0]}: its {count} shards hold {len(tensors)} tensors of {stated_tensors}; "
                "download them again"
            )
        return cls(paths[0], metadata, tensors)

    def same(self, one: str, other: str) -> bool:
        """Whether two tensors are there and equal byte by byte, in type and shape too."""
        a, b = self.tensors.get(one), self.tensors.get(other)
        if a is None or b is None or (a.type, a.shape) != (b.type, b.shape):
            return False
        first, second = a.raw.reshape(-1), b.raw.reshape(-1)
        runs = (slice(i, i + _COMPARED) for i in range(0, len(first), _COMPARED))
        return all(np.array_equal(first[run], second[run]) for run in runs)


def _one(path: Path) -> tuple[Header, dict[str, GgufTensor]]:
    """Head and tensors of one file."""
    try:
        with path.open("rb") as file:
            check_start(path, file.read(32))
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise BadInput(f"{path}: there is no such file") from None
    except MemoryError:
        raise OutOfResources(f"{path}: too large for the memory of this machine") from None
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror or error}") from None
    header = read_header(path, data)
    step = alignment(path, header.metadata)
    start = -(-header.end // step) * step
    check_layout(path, header.tensors, step, start, len(data))
    whole = np.frombuffer(data, np.uint8)
    tensors: dict[str, GgufTensor] = {}
    for entry in header.tensors:
        kind = GGMLQuantizationType(entry.kind)
        shape = tuple(reversed(entry.dims))
        block, stored = GGML_QUANT_SIZES[kind]
        width = (shape[-1] if shape else 1) // block * stored
        count = math.prod(shape[:-1])
        offset = start + entry.offset
        raw = whole[offset : offset + count * width].reshape(count, width)
        tensors[entry.name] = GgufTensor(entry.name, kind, shape, offset, raw, path)
    return header, tensors


def _number(path: Path, header: Header, key: str, default: int) -> int:
    value = header.metadata.get(key, default)
    if type(value) is not int:
        raise BadInput(f"{path}: damaged: {key} is {value!r}, no number; download it again")
    return value


def _shards(given: Path, number: int, count: int) -> list[Path]:
    """Paths of all shards, in order."""
    match = _SHARD.fullmatch(given.name)
    named = match and (int(match["number"]), int(match["count"]))
    if match is None or named != (number + 1, count) or not 0 <= number < count:
        raise BadInput(
            f"{given}: is shard {number + 1} of {count}, which its name does not say; name all "
            f"shards as they were made: NAME-{number + 1:05}-of-{count:05}.gguf"
        )
    stem = match["stem"]
    paths = [given.with_name(f"{stem}-{i + 1:05}-of-{count:05}.gguf") for i in range(count)]
    paths[number] = given
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        raise BadInput(
            f"{given}: of its {count} shards {', '.join(missing[:3])}"
            f"{' and others are' if len(missing) > 3 else ' is' if len(missing) == 1 else ' are'} "
            "missing; download all into one folder"
        )
    return paths
