"""Rotary tables: cosines and sines by position, stored once for all layers that share them."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from frontends.decoder.config import Rope
from rewriter.errors import BadInput
from rewriter.streamed import StreamedTensor
from rewriter.tape import Tape


def tables(op: Tape, rope: Rope, rows: int) -> tuple[ir.Value, ir.Value]:
    """Cosines and sines (rows, R/2), float32, of position · base^(-2j/R) / factor.

    Raises:
        BadInput: a factor is none.
    """
    half = rope.dim // 2
    frequencies = rope.base ** (-np.arange(half, dtype=np.float64) * 2 / rope.dim)
    if not all(factor > 0 for factor in rope.factors):
        raise BadInput(
            f"the rotary embedding has a divisor of {min(rope.factors)}, which is not above 0; "
            "convert or download the model again"
        )
    if rope.factors:
        frequencies = frequencies / np.asarray(rope.factors, np.float64)

    def table(what: str) -> ir.Value:
        def part(start: int, stop: int) -> npt.NDArray[np.float32]:
            angles = np.arange(start, stop, dtype=np.float64)[:, None] * frequencies
            wave = np.cos(angles) if what == "cos" else np.sin(angles)
            return (wave * rope.magnitude).astype(np.float32)

        tensor = StreamedTensor(lambda: part, ir.DataType.FLOAT, (rows, half), rows)
        return op.weight((what, rope, rows), tensor, f"rope.{what}")

    return table("cos"), table("sin")


def rotate(
    op: Tape,
    x: ir.Value,
    positions: ir.Value,
    rope: Rope,
    *,
    heads: int,
    rows: int,
) -> ir.Value:
    """Rotate x (B, S, heads·D) at its positions (B, S)."""
    cos, sin = tables(op, rope, rows)
    width = x.shape[2] if x.shape is not None else None
    partial = 0 if width == heads * rope.dim else rope.dim
    inputs = (x, cos, sin, positions)
    return op.RotaryEmbedding(*inputs, num_heads=heads, rotary_embedding_dim=partial)


def blended(kept: npt.NDArray[np.float64], factor: float) -> tuple[float, ...]:
    """Divisors of frequencies that are kept in part, and divided by the factor for the rest."""
    return tuple(float(x) for x in 1 / (kept + (1 - kept) / factor))


def yarn_divisors(
    dim: int,
    base: float,
    factor: float,
    original: int,
    turns: tuple[float, float],
    *,
    rounded: bool,
) -> tuple[float, ...]:
    """Divisors that grow from 1 for fast frequencies to the factor for slow ones.

    Args:
        dim: features that are rotated.
        base: of the frequencies.
        factor: of slow ones.
        original: positions of the training before it was scaled.
        turns: turns over those positions that are fast, and slow.
        rounded: the first and the last frequency between are whole numbers.
    """
    start, stop = (
        dim * math.log(original / (turn * 2 * math.pi)) / (2 * math.log(base)) for turn in turns
    )
    if rounded:
        start, stop = math.floor(start), math.ceil(stop)
    start, stop = max(start, 0), min(stop, dim - 1)
    ramp = np.clip((np.arange(dim // 2) - start) / max(stop - start, 0.001), 0, 1)
    return blended(1 - ramp, factor)
