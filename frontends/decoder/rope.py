"""Rotary tables: cosines and sines by position, stored once for all layers that share them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from frontends.decoder.config import Rope
from rewriter.streamed import StreamedTensor
from rewriter.tape import Tape


def tables(op: Tape, rope: Rope, rows: int) -> tuple[ir.Value, ir.Value]:
    """Cosines and sines (rows, R/2), float32, of position · base^(-2j/R) / factor."""
    half = rope.dim // 2
    frequencies = rope.base ** (-np.arange(half, dtype=np.float64) * 2 / rope.dim)
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
