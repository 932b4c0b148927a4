"""What an exact integer form of a block format is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from frontends.gguf.blocks import Bytes, Floats


@dataclass(frozen=True, slots=True)
class BlockForm:
    """How blocks become codes, scales and minimums, each read without the others:
    ``scale * (code - zero) - minimum``.

    Attributes:
        bits: 2, 4 or 8 per code.
        block: codes per scale.
        zero: the zero point.
        codes: of records (n, size): packed bytes (n, values·bits/8), low bits first.
        scales: float32 (n, values/block).
        minimums: the same, or ``None`` where the format has none.
    """

    bits: int
    block: int
    zero: int
    codes: Callable[[Bytes], Bytes]
    scales: Callable[[Bytes], Floats]
    minimums: Callable[[Bytes], Floats] | None = None
