"""Rotary embeddings of a GGUF file: base, partial rotation, and every kind of scaling."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from frontends.decoder.architectures import ARCHITECTURES
from frontends.decoder.config import Rope
from frontends.decoder.weights import Float, Weights
from rewriter.errors import BadInput

if TYPE_CHECKING:
    from frontends.gguf.keys import Keys


class Ropes:
    """Rotary embeddings of the layers of one file.

    Args:
        keys: its metadata.
        weights: its tensors, for those that hold divisors of frequencies.
        context: positions to serve; longrope has other divisors for long ones.
    """

    def __init__(self, keys: Keys, weights: Weights, context: int) -> None:
        self._keys = keys
        self._weights = weights
        self._context = context

    def of(self, size: int, *, sliding: bool) -> Rope:
        """The rotary embedding of a layer with heads of a size."""
        own = ARCHITECTURES[self._keys.arch].sliding_base
        dim = int(self._keys.get("rope.dimension_count", size))
        base = float(self._keys.get("rope.freq_base", 10000.0))
        if sliding:
            base = float(self._keys.get("rope.freq_base_swa", own or base))
            dim = int(self._keys.get("rope.dimension_count_swa", min(dim, size)))
        if sliding and own:
            return Rope(dim, base)
        factors, magnitude = self._scaling(dim, base)
        return Rope(dim, base, factors, magnitude)

    def _scaling(self, dim: int, base: float) -> tuple[tuple[float, ...], float]:
        """Divisors of the frequencies, and what multiplies cosines and sines."""
        keys = self._keys
        kind = keys.get("rope.scaling.type", "none")
        magnitude = float(keys.get("rope.scaling.attn_factor", 1.0))
        if stored := self._stored():
            return self._fitting(stored, dim), magnitude
        if kind == "none":
            return (), magnitude
        if kind not in {"linear", "yarn"}:
            raise BadInput(
                f"{keys.path}: the key '{keys.arch}.rope.scaling.type' is '{kind}', which cannot "
                "be built; known: none, linear, yarn, longrope with its divisors as weights"
            )
        factor = float(keys.needed("rope.scaling.factor"))
        if kind == "linear":
            return (factor,) * (dim // 2), magnitude
        return self._yarn(dim, base, factor), magnitude * (1 + 0.1 * math.log(factor))

    def _stored(self) -> tuple[float, ...]:
        original = int(self._keys.get("rope.scaling.original_context_length", self._context))
        length = "long" if self._context > original else "short"
        for name in ("rope_freqs.weight", f"rope_factors_{length}.weight"):
            if name in self._weights:
                weight = self._weights[name]
                assert isinstance(weight, Float)
                return tuple(float(x) for x in weight.tensor.numpy())
        return ()

    def _fitting(self, stored: tuple[float, ...], dim: int) -> tuple[float, ...]:
        if len(stored) != dim // 2:
            raise BadInput(
                f"{self._keys.path}: holds {len(stored)} divisors of rotary frequencies for "
                f"{dim} rotated features; convert the model again"
            )
        return stored

    def _yarn(self, dim: int, base: float, factor: float) -> tuple[float, ...]:
        """Divisors that grow from 1 for fast frequencies to the factor for slow ones."""
        original = int(self._keys.needed("rope.scaling.original_context_length"))
        turns = (
            float(self._keys.get("rope.scaling.yarn_beta_fast", 32.0)),
            float(self._keys.get("rope.scaling.yarn_beta_slow", 1.0)),
        )
        low, high = (
            dim * math.log(original / (turn * 2 * math.pi)) / (2 * math.log(base)) for turn in turns
        )
        start, stop = max(math.floor(low), 0), min(math.ceil(high), dim - 1)
        ramp = np.clip((np.arange(dim // 2) - start) / max(stop - start, 0.001), 0, 1)
        return tuple(float(x) for x in 1 / (ramp / factor + (1 - ramp)))
