"""Rotary embeddings of a GGUF file: base, partial rotation, and every kind of scaling."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from frontends.decoder.architectures import ARCHITECTURES
from frontends.decoder.config import Rope
from frontends.decoder.rope import yarn_divisors
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
        """The rotary embedding of a layer with heads of a size.

        Raises:
            BadInput: a key is no number it can be, or names a scaling that is not known.
        """
        own = ARCHITECTURES[self._keys.arch].sliding_base
        name, dim = "rope.dimension_count", self._keys.size("rope.dimension_count", size)
        base = self._keys.number("rope.freq_base", 10000.0, above=1.0)
        if sliding:
            base = self._keys.number("rope.freq_base_swa", own or base, above=1.0)
            name, dim = f"{name}_swa", self._keys.size(f"{name}_swa", min(dim, size))
        if dim % 2 or dim > size:
            raise BadInput(
                f"{self._keys.path}: the key '{self._keys.arch}.{name}' rotates {dim} of the "
                f"{size} features of a head; convert the model again"
            )
        if sliding and own:
            return Rope(dim, base)
        factors, magnitude = self._scaling(dim, base)
        return Rope(dim, base, factors, magnitude)

    def _scaling(self, dim: int, base: float) -> tuple[tuple[float, ...], float]:
        """Divisors of the frequencies, and what multiplies cosines and sines."""
        keys = self._keys
        kind = keys.get("rope.scaling.type", "none")
        magnitude = keys.number("rope.scaling.attn_factor", 1.0)
        stored = self._stored(dim)
        if kind == "none" or (kind == "longrope" and stored):
            return stored, magnitude
        if kind not in {"linear", "yarn"}:
            raise BadInput(
                f"{keys.path}: the key '{keys.arch}.rope.scaling.type' is '{kind}', which cannot "
                "be built; known: none, linear, yarn, longrope with its divisors as weights"
            )
        factor = keys.number("rope.scaling.factor", above=0.0)
        scaled = (factor,) * (dim // 2)
        if kind == "yarn":
            scaled, magnitude = self._yarn(dim, base, factor), magnitude * self._sharpened(factor)
        return tuple(a * b for a, b in zip(scaled, stored or (1.0,) * len(scaled), strict=True)), (
            magnitude
        )

    def _stored(self, dim: int) -> tuple[float, ...]:
        """Divisors that are weights, if there are any."""
        original = self._keys.size("rope.scaling.original_context_length", self._context)
        length = "long" if self._context > original else "short"
        for name in ("rope_freqs.weight", f"rope_factors_{length}.weight"):
            if name not in self._weights:
                continue
            weight = self._weights[name]
            if not isinstance(weight, Float) or weight.shape != (dim // 2,):
                raise BadInput(
                    f"{self._keys.path}: the weight '{name}' has the shape {list(weight.shape)}, "
                    f"and {dim} rotated features have {dim // 2} divisors as floats; convert the "
                    "model again"
                )
            return tuple(float(x) for x in weight.tensor.numpy())
        return ()

    def _sharpened(self, factor: float) -> float:
        """What yarn multiplies cosines and sines by.

        Some models take part of it back: ``yarn_log_multiplier``, 1 for all of it.
        """
        log = 0.1 * math.log(max(factor, 1.0))
        return (1 + log) / (1 + log * self._keys.number("rope.scaling.yarn_log_multiplier", 0.0))

    def _yarn(self, dim: int, base: float, factor: float) -> tuple[float, ...]:
        keys = self._keys
        turns = (
            keys.number("rope.scaling.yarn_beta_fast", 32.0, above=0.0),
            keys.number("rope.scaling.yarn_beta_slow", 1.0, above=0.0),
        )
        original = keys.size("rope.scaling.original_context_length")
        rounded = ARCHITECTURES[keys.arch].rounded_yarn
        return yarn_divisors(dim, base, factor, original, turns, rounded=rounded)
