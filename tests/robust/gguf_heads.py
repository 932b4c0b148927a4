"""GGUF files whose counts, lengths, types and texts are not what they should be."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from tests.robust.values import TEXTS, Rng, bytewise, integer, pick

Field = tuple[str, int, int]
"""What stands at an offset (``number``, ``length``, ``kind`` or ``text``), and its bytes."""

_WIDTHS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_TEXT, _LIST = 8, 9


def mutated(rng: Rng, data: bytes) -> bytes:
    """A file with one to four changes to what its head says, or to any bytes of it."""
    fields = list(_fields(data))
    head = max(offset + size for _, offset, size in fields)
    if rng.random() < 0.3:
        return bytewise(rng, data, head)
    made = bytearray(data)
    if rng.random() < 0.6:  # values that are read once the file holds together
        fields = [field for field in fields if field[0] in {"number", "text"}]
    chosen = {pick(rng, fields) for _ in range(int(pick(rng, (1, 1, 1, 2, 4))))}
    for what, offset, size in sorted(chosen, key=lambda field: -field[1]):
        if what == "text":
            _change_text(rng, made, offset, size)
        else:
            old = int.from_bytes(made[offset : offset + size], "little")
            new = integer(rng, old, size * 8, signed=False)
            made[offset : offset + size] = new.to_bytes(size, "little")
    return bytes(made)


def _change_text(rng: Rng, made: bytearray, offset: int, size: int) -> None:
    """Another text, mostly with the length that it has."""
    new = str(pick(rng, TEXTS)).encode()
    if rng.random() < 0.2:
        new = rng.bytes(size)
    made[offset : offset + size] = new
    if rng.random() < 0.8:
        made[offset - 8 : offset] = struct.pack("<Q", len(new))


def _fields(data: bytes) -> Iterator[Field]:
    """What a well-formed head holds, field by field (ggml's ``docs/gguf.md``)."""
    at = 8

    def number(size: int, what: str = "number") -> tuple[int, Field]:
        nonlocal at
        field = (what, at, size)
        at += size
        return int.from_bytes(data[at - size : at], "little"), field

    def value(kind: int) -> Iterator[Field]:
        nonlocal at
        if kind == _TEXT:
            length, field = number(8, "length")
            yield field
            yield "text", at, length
            at += length
        elif kind == _LIST:
            inner, field = number(4, "kind")
            yield field
            count, field = number(8, "length")
            yield field
            for i in range(count):
                found = list(value(inner))
                if i < 3 or i == count - 1:  # else a vocabulary is nearly all there is
                    yield from found
        else:
            yield number(_WIDTHS[kind])[1]

    yield "number", 4, 4
    tensors, field = number(8, "length")
    yield field
    keys, field = number(8, "length")
    yield field
    for _ in range(keys):
        yield from value(_TEXT)
        kind, field = number(4, "kind")
        yield field
        yield from value(kind)
    for _ in range(tensors):
        yield from value(_TEXT)
        dims, field = number(4, "length")
        yield field
        for _ in range(dims):
            yield number(8)[1]
        yield number(4, "kind")[1]
        yield number(8)[1]
