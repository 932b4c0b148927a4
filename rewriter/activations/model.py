"""What became of activations: integers, whose ranges were measured on calibration data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import onnx_ir as ir

Bits = Literal[8, 16]
TYPES: dict[int, ir.DataType] = {8: ir.DataType.UINT8, 16: ir.DataType.UINT16}
"""Types of quantized activations, by their bits."""
SIGNED = ir.DataType.INT16
"""Of both factors where two activations are multiplied, and of the product: HTP rounds the second
one to 8 bits where it is unsigned (M16/MatMul: off by 0.3 to 0.5 % of the largest number, and by
0.04 to 0.05 % where all are signed and symmetric)."""


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers that a value took; a quantized one always holds 0 as well."""

    low: float
    high: float

    def __or__(self, other: Range) -> Range:
        return Range(min(self.low, other.low), max(self.high, other.high))

    @property
    def width(self) -> float:
        """Largest difference of two numbers in it."""
        return self.high - self.low


@dataclass(frozen=True, slots=True)
class KeptWeight:
    """A quantized weight that stays as it is stored, since no legal form expresses it exactly.

    Attributes:
        node: that multiplies with it.
        why: in a sentence.
    """

    node: str
    why: str


@dataclass(frozen=True, slots=True)
class Divergence:
    """Distributions of the next token of two models, on the same prompts.

    Attributes:
        mean: Kullback-Leibler divergence of the second from the first, in nats, per position.
        largest: of one position.
        same_token: share of the positions where both find the same token likeliest.
        positions: how many were compared.
    """

    mean: float
    largest: float
    same_token: float
    positions: int


@dataclass
class QuantizedActivations:
    """What became of one graph.

    Attributes:
        bits: what was asked for.
        calibrated: on what, in words.
        units: nodes that compute with quantized activations, by the bits of those.
        floats: nodes that compute in floats between them, by op, with the reason.
        kept: weights that stay as they are stored.
        weights: weights that became another form, exactly, by that form.
        mask_value: what hides a key now; ``None`` where there is no mask, or it stays.
        divergence: of the graph from its float form, evaluated on ONNX Runtime's CPU; ``None``
            where it has no logits.
        notes: what a person should know.
    """

    bits: int
    calibrated: str
    units: dict[int, int] = field(default_factory=dict)
    floats: dict[str, str] = field(default_factory=dict)
    kept: list[KeptWeight] = field(default_factory=list)
    weights: dict[str, int] = field(default_factory=dict)
    mask_value: float | None = None
    divergence: Divergence | None = None
    notes: list[str] = field(default_factory=list)
