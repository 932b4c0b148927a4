"""Values that a damaged or hostile file may hold in the place of good ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Rng = np.random.Generator

INTEGERS = (
    *(0, 1, -1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32, 33, 64, 127, 128, 255, 256, 1000, 65535),
    *(1 << 20, 1 << 24, (1 << 31) - 1, 1 << 31, 1 << 32, 1 << 40, 1 << 61, (1 << 63) - 1),
    *(-2, -3, -8, -(1 << 31), -(1 << 63)),
)
FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-45, 1e-7, 1e38, -1e38, float("inf"), float("nan"))
TEXTS = (
    *("", " ", "x", "model", "..", ".", "/", "../outside/secret.bin", "/etc/passwd", "link.bin"),
    *("folder/../../outside/secret.bin", "..\\outside\\secret.bin", "C:\\secret.bin", "/dev/zero"),
    *("/proc/self/mem", "model.onnx", "fifo", "\0", "a\0b", "\n", "\x1b[2J", "é" * 9, "\U0001f600"),
    *("{{ 7 * 7 }}", "{{ ''.__class__.__mro__ }}", "__import__('os').system('touch owned')"),
    *("%s%n%d", "past_sequence_length + 1", "a + ", "2 * batch", "9" * 400, "a" * 70_000),
)


def pick(rng: Rng, values: Sequence[Any]) -> Any:
    """One of some values, as it is: numpy would make an array of them."""
    return values[int(rng.integers(len(values)))]


def integer(rng: Rng, old: int, bits: int = 64, *, signed: bool = True) -> int:
    """Another number for an integer field."""
    chosen = int(pick(rng, INTEGERS)) if rng.random() < 0.75 else old + int(rng.integers(-4, 5))
    chosen &= (1 << bits) - 1
    return chosen - (1 << bits) if signed and chosen >> (bits - 1) else chosen


def text(rng: Rng, old: str) -> str:
    """Another text."""
    chance = rng.random()
    if chance < 0.6 or not old:
        return str(pick(rng, TEXTS))
    cut = int(rng.integers(len(old)))
    return old[:cut] if chance < 0.75 else old[:cut] + str(pick(rng, TEXTS))[:99] + old[cut:]


def bytewise(rng: Rng, data: bytes, reach: int | None = None) -> bytes:
    """Bytes that are flipped, replaced, doubled, left out, or cut off.

    Args:
        rng: source of the change.
        data: the file.
        reach: only so many bytes from its start are touched, where the head is what matters.
    """
    made = bytearray(data)
    for _ in range(int(rng.integers(1, 9))):
        if not made:
            break
        at = int(rng.integers(min(len(made), reach or len(made))))
        size = int(rng.integers(1, 17))
        match int(rng.integers(7)):
            case 0:
                made[at] ^= 1 << int(rng.integers(8))
            case 1:
                made[at : at + size] = rng.bytes(size)
            case 2:
                made[at : at + size] = made[at : at + size] * 2
            case 3:
                del made[at : at + size]
            case 4:
                made[at : at + size] = bytes([pick(rng, (0, 0x7F, 0x80, 0xFF))]) * size
            case 5:
                number = int(pick(rng, INTEGERS)) & (2**64 - 1)
                made[at : at + 8] = number.to_bytes(8, "little")
            case _:
                if rng.random() < 0.3:
                    del made[at:]
    return bytes(made)
