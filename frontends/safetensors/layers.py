"""What differs from layer to layer, as ``config.json`` says it: heads, windows, shared caches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from frontends.decoder.config import Layer
from frontends.safetensors.families import Family
from frontends.safetensors.keys import Config
from frontends.safetensors.rope import Ropes

_MOST, _WIDEST = 10000, 1 << 16
"""Layers, and features of a head: more than any model has."""
FULL, SLIDING = "full_attention", "sliding_attention"


def layers_of(config: Config, family: Family, hidden: int, context: int) -> tuple[Layer, ...]:
    """All layers of a model.

    Args:
        config: of the text model.
        family: its class.
        hidden: width of the residual stream.
        context: positions to serve.

    Raises:
        BadInput: a key is missing, or says what cannot be.
    """
    count, heads = config.size("num_hidden_layers"), config.size("num_attention_heads")
    if count > _MOST:
        raise config.wrong("num_hidden_layers", "more than any model has")
    rotated = _rotated(config, family, count)
    windows = _windows(config, family, count, rotated)
    sizes = _sizes(config, family, windows, hidden, heads)
    ropes = Ropes(config, family, context)
    sources = _sources(config, family, windows)
    layers = []
    for i, (size, kv_heads) in enumerate(sizes):
        if size > _WIDEST:
            raise config.wrong("head_dim", f"and heads of {size} features are wider than any are")
        if heads % kv_heads:
            raise config.wrong(
                "num_attention_heads", f"no multiple of the {kv_heads} key and value heads"
            )
        rope = ropes.of(size, sliding=windows[i] > 0) if rotated[i] else None
        layers.append(Layer(heads, kv_heads, size, rope, windows[i], sources[i]))
    return tuple(layers)


def _rotated(config: Config, family: Family, count: int) -> list[bool]:
    """Whether each layer has positions rotated in."""
    if family.style != "smollm3":
        return [True] * count
    every = config.size("no_rope_layer_interval", 4)
    if "no_rope_layers" not in config:
        return [(i + 1) % every != 0 for i in range(count)]
    found = config.listed("no_rope_layers", None, int)
    if len(found) < count:
        raise config.wrong("no_rope_layers", f"a list of {len(found)} for {count} layers")
    return [bool(one) for one in found[:count]]


def _windows(config: Config, family: Family, count: int, rotated: Sequence[bool]) -> list[int]:
    """The window of each layer, 0 for none.

    Raises:
        BadInput: keys contradict each other.
    """
    kinds = [FULL] * count
    window = 0
    if family.windows != "none":
        window = config.size("sliding_window", 0, least=0)
    if family.windows.startswith("asked"):
        most = config.size("max_window_layers", 28, least=0)
        if not config.flag("use_sliding_window", False):
            window = 0
        kinds = _asked(family, count, most, rotated)
    elif family.windows == "types":
        every = family.window_every
        if family.style == "gemma3" or "layer_types" in config:
            every = config.size("sliding_window_pattern", every)
        kinds = [SLIDING if (i + 1) % every else FULL for i in range(count)]
    if family.windows in {"all", "asked all"}:
        kinds = [SLIDING] * count
    if not window:
        kinds = [FULL] * count
    kinds = _said(config, family, kinds, window)
    config.same("sliding_window_size", "sliding_window", window)
    return [window if kind == SLIDING else 0 for kind in kinds]


def _asked(family: Family, count: int, most: int, rotated: Sequence[bool]) -> list[str]:
    """Kinds of layers of those models whose windows have a switch of their own."""
    if family.style == "smollm3":
        return [FULL if turned else SLIDING for turned in rotated]
    if family.window_every:
        return [SLIDING if (i + 1) % 2 and i < most else FULL for i in range(count)]
    return [SLIDING if i >= most else FULL for i in range(count)]


def _said(config: Config, family: Family, kinds: list[str], window: int) -> list[str]:
    """What ``layer_types`` says, where the class looks at it.

    Raises:
        BadInput: it says what cannot be built, or else than the class does.
    """
    if "layer_types" not in config:
        return kinds
    said = config.listed("layer_types", len(kinds), str)
    if family.style == "gemma4":
        said[-1] = FULL  # transformers does the same
    unknown = sorted(set(said) - {FULL, SLIDING})
    if unknown:
        raise config.wrong(
            "layer_types", f"and a layer of {unknown[0]!r} cannot be built", again=False
        )
    typed = family.windows in {"types", "asked types"}
    if SLIDING in said and not window:
        raise config.wrong("layer_types", "and there is no window ('sliding_window')", again=False)
    if not typed and said != kinds:
        raise config.wrong("layer_types", "which models of this class do not look at", again=False)
    return said


def _sizes(
    config: Config, family: Family, windows: Sequence[int], hidden: int, heads: int
) -> list[tuple[int, int]]:
    """Features of a head, and heads of keys and values, of each layer."""
    if not family.head_size and hidden % heads:
        raise config.wrong("hidden_size", f"no multiple of the {heads} heads")
    size = hidden // heads
    if family.head_size:
        size = config.size(family.head_size, size)
    kv_heads = config.size("num_key_value_heads", heads)
    if family.style != "gemma4":
        return [(size, kv_heads)] * len(windows)
    wide, few = config.size("global_head_dim", size), kv_heads
    if config.flag("attention_k_eq_v", False):
        few = config.size("num_global_key_value_heads", kv_heads)
    config.get("num_global_key_value_heads")
    sizes = [(size, kv_heads) if window else (wide, few) for window in windows]
    return _by_layer(config, sizes, (size, kv_heads))


def _by_layer(
    config: Config, sizes: list[tuple[int, int]], usual: tuple[int, int]
) -> list[tuple[int, int]]:
    """The same from ``per_layer_config``, which transformers 5.24 writes instead: numbers of
    layers, and what is not as usual in each.
    """
    if "per_layer_config" not in config:
        return sizes
    found: Any = config.get("per_layer_config")
    numbers = {str(i) for i in range(len(sizes))}
    if not isinstance(found, Mapping) or not set(found) <= numbers:
        raise config.wrong("per_layer_config", "no object with numbers of layers")
    parts = config.part("per_layer_config")
    result = []
    for i in range(len(sizes)):
        keys = parts.part(str(i))
        result.append((keys.size("head_dim", usual[0]), keys.size("num_key_value_heads", usual[1])))
        keys.require_understood("gemma4")
    return result


def _sources(config: Config, family: Family, windows: Sequence[int]) -> list[int | None]:
    """The layer whose keys and values each uses: the last one of its kind with some of its own.

    Raises:
        BadInput: there is none.
    """
    count = len(windows)
    shared = config.size("num_kv_shared_layers", 0, least=0) if family.style == "gemma4" else 0
    first = count - shared
    sources: list[int | None] = [None] * min(first, count)
    for i in range(max(first, 0), count):
        alike = [j for j in range(first) if bool(windows[j]) == bool(windows[i])]
        if not alike:
            raise config.wrong(
                "num_kv_shared_layers",
                f"which leaves layer {i} no layer of its kind to share keys and values with",
            )
        sources.append(alike[-1])
    return sources
