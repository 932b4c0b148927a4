"""Rotary embeddings of ``config.json``: base, partial rotation, and every kind of scaling.

Formulas: ``modeling_rope_utils.py`` of transformers 5.13.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from frontends.decoder.config import Rope
from frontends.decoder.keys import short
from frontends.decoder.rope import blended, yarn_divisors
from frontends.safetensors.families import Family
from frontends.safetensors.keys import Config

_ORIGINAL = "original_max_position_embeddings"
_LOCAL_BASE = 10000.0
"""Of Gemma's layers with a window, where no key says it."""


class Ropes:
    """Rotary embeddings of the layers of one model.

    Args:
        config: of the text model.
        family: its class.
        context: positions to serve; longrope has other divisors for long ones.
    """

    def __init__(self, config: Config, family: Family, context: int) -> None:
        self._config, self._family, self._context = config, family, context
        parameters = config.get("rope_parameters")
        if parameters is not None and not isinstance(parameters, Mapping):
            raise config.wrong("rope_parameters", "no object with keys")
        if parameters is not None and config.get("rope_scaling", parameters) != parameters:
            raise config.wrong("rope_scaling", "and 'rope_parameters' says something else")
        self._by_type = parameters is not None and bool(
            {"full_attention", "sliding_attention"} & set(parameters)
        )
        config.get(_ORIGINAL)
        self._known: dict[tuple[int, bool], Rope] = {}

    def of(self, size: int, *, sliding: bool) -> Rope:
        """The rotary embedding of a layer with heads of a size.

        Raises:
            BadInput: a key is no number it can be, or names a scaling that is not known.
        """
        own = sliding if self._by_type or self._family.style == "gemma3" else False
        if (size, own) not in self._known:
            self._known[size, own] = self._rope(size, own)
        return self._known[size, own]

    def _rope(self, size: int, sliding: bool) -> Rope:
        keys = self._keys(sliding)
        base = keys.number("rope_theta", above=1.0)
        kind = _kind(keys)
        if kind == "proportional":
            return self._proportional(keys, size, base)
        scaling = _SCALINGS.get(kind)
        if scaling is None or (self._family.style == "gemma4" and kind != "default"):
            name = "rope_type" if "rope_type" in keys else "type"
            known = ", ".join([*_SCALINGS, "proportional"])
            raise keys.wrong(name, f"which cannot be built; known: {known}", again=False)
        dim = self._rotated(keys, size)
        factors, magnitude = scaling(self, keys, dim, base)
        keys.require_understood(f"{kind} rope")
        return Rope(dim, base, factors, magnitude)

    def _keys(self, sliding: bool) -> Config:
        """The parameters, from where this version of transformers or an older one writes them."""
        config, family = self._config, self._family
        top: dict[str, Any] = {}
        base = "" if sliding else "rope_theta"  # the key outside that a base may be in, too
        if family.style == "gemma3":
            names = {True: ("rope_local_base_freq", _LOCAL_BASE), False: ("rope_theta", 1e6)}
            base = names[sliding][0]
            top["rope_theta"] = config.get(*names[sliding])
            config.get(names[not sliding][0])
        elif family.style == "gemma4":
            top["rope_theta"] = _LOCAL_BASE if sliding else family.theta
        else:
            top["rope_theta"] = config.get("rope_theta", family.theta)
        if family.rotated:
            top["partial_rotary_factor"] = config.get("partial_rotary_factor", family.rotated)
        found = self._below(sliding, top)
        below = found.get("rope_theta")
        if base in config and below != top["rope_theta"]:
            raise config.wrong(base, f"and '{found.full('rope_theta')}' is {short(below)}")
        return found

    def _below(self, sliding: bool, top: Mapping[str, Any]) -> Config:
        """The keys of one object, and those outside of it that it does not have."""
        config, family = self._config, self._family
        name = "rope_scaling" if "rope_scaling" in config else "rope_parameters"
        if name == "rope_scaling" and family.style == "gemma3" and sliding:
            return Config(config.path, top, f"{name}.")
        if self._by_type and name == "rope_parameters":
            kind = "sliding_attention" if sliding else "full_attention"
            found = config.part(name)
            found.needed(kind)
            return found.part(kind, top)
        keys = config.part(name, top)
        if family.style == "phi3" and _kind(keys) in {"su", "yarn"}:
            values = {**config.get(name), "rope_type": "longrope"}
            return Config(config.path, values, f"{name}.", top)
        return keys

    def _rotated(self, keys: Config, size: int) -> int:
        """How many features of a head are rotated."""
        share = 1.0
        if self._family.rotated:
            share = keys.number("partial_rotary_factor", 1.0, above=0.0)
        elif "partial_rotary_factor" in keys:
            keys.only("partial_rotary_factor", 1, 1.0)
        dim = int(size * share)
        if dim % 2 or not 0 < dim <= size:
            raise keys.wrong("partial_rotary_factor", f"which rotates {dim} of {size} features")
        return dim

    def _proportional(self, keys: Config, size: int, base: float) -> Rope:
        """All features have a frequency of the whole head's, and those after a part are 0."""
        factor = keys.number("factor", 1.0, above=0.0)
        share = keys.number("partial_rotary_factor", 1.0, above=0.0)
        turned = int(share * size // 2)
        if not 0 < turned <= size // 2 or size % 2:
            raise keys.wrong("partial_rotary_factor", f"of which {size} features have no half")
        keys.require_understood("proportional rope")
        if turned == size // 2 and factor == 1:
            return Rope(size, base)
        return Rope(size, base, (factor,) * turned + (math.inf,) * (size // 2 - turned))

    def _original(self, keys: Config) -> int:
        """Positions of the training before it was scaled."""
        stated = keys.size(_ORIGINAL, self._config.size("max_position_embeddings"), least=2)
        return self._config.size(_ORIGINAL, stated, least=2)  # outside, it wins in transformers

    def _plain(self, keys: Config, dim: int, base: float) -> tuple[tuple[float, ...], float]:
        keys.get(_ORIGINAL)
        keys.only("factor", 1, 1.0)
        return (), 1.0

    def _dynamic(self, keys: Config, dim: int, base: float) -> tuple[tuple[float, ...], float]:
        """Without effect up to the length of the training, which is all that is served."""
        keys.get("factor")
        return (), 1.0

    def _linear(self, keys: Config, dim: int, base: float) -> tuple[tuple[float, ...], float]:
        return (keys.number("factor", above=0.0),) * (dim // 2), 1.0

    def _llama3(self, keys: Config, dim: int, base: float) -> tuple[tuple[float, ...], float]:
        """Slow frequencies are divided, fast ones are not, those between are in part."""
        factor = keys.number("factor", above=0.0)
        low = keys.number("low_freq_factor", above=0.0)
        high = keys.number("high_freq_factor", above=0.0)
        original = self._original(keys)
        if low >= high:
            raise keys.wrong("low_freq_factor", "not below 'high_freq_factor'")
        turns = original * base ** (-np.arange(dim // 2) * 2 / dim) / (2 * math.pi)
        smooth = np.clip((turns - low) / (high - low), 0, 1)
        return blended(smooth, factor), 1.0

    def _yarn(self, keys: Config, dim: int, base: float) -> tuple[tuple[float, ...], float]:
        """Divisors that grow from 1 for fast frequencies to the factor for slow ones."""
        original = self._original(keys)
        served = self._config.size("max_position_embeddings")
        factor = keys.number("factor", served / original, above=0.0)
        slow = keys.number("beta_slow", 1.0, above=0.0)
        fast = keys.number("beta_fast", 32.0, above=0.0)
        if fast < slow:
            raise keys.wrong("beta_fast", f"below 'beta_slow', which is {slow:g}", fast)
        rounded = keys.flag("truncate", True)
        turns = (fast, slow)
        divisors = yarn_divisors(dim, base, factor, original, turns, rounded=rounded)
        sharpened = _sharpened(factor, 1.0)
        if keys.get("mscale") and keys.get("mscale_all_dim"):
            part, whole = (keys.number(f"mscale{all_}", above=0.0) for all_ in ("", "_all_dim"))
            sharpened = _sharpened(factor, part) / _sharpened(factor, whole)
        return divisors, keys.number("attention_factor", sharpened)

    def _longrope(self, keys: Config, dim: int, base: float) -> tuple[tuple[float, ...], float]:
        """A divisor for each frequency, one list of them for longer texts than in training."""
        original = self._original(keys)
        factor = keys.number("factor", self._config.size("max_position_embeddings") / original)
        magnitude = 1.0
        if factor > 1:
            magnitude = math.sqrt(1 + math.log(factor) / math.log(original))
        lists = {}
        for name in ("short_factor", "long_factor"):
            lists[name] = tuple(map(float, keys.listed(name, dim // 2, (int, float))))
            if not all(0 < one < math.inf for one in lists[name]):
                raise keys.wrong(name, "and divisors of frequencies are numbers above 0")
        factors = lists["long_factor" if self._context > original else "short_factor"]
        return factors, keys.number("attention_factor", magnitude)


def _kind(keys: Config) -> str:
    """The type of scaling; its key had another name before."""
    found = keys.get("rope_type", keys.get("type", "default"))
    return found if isinstance(found, str) else ""


def _sharpened(factor: float, scale: float) -> float:
    return 0.1 * scale * math.log(factor) + 1.0 if factor > 1 else 1.0


_SCALINGS = {
    "default": Ropes._plain,
    "linear": Ropes._linear,
    "dynamic": Ropes._dynamic,
    "yarn": Ropes._yarn,
    "longrope": Ropes._longrope,
    "llama3": Ropes._llama3,
}
