"""From ``config.json`` to the numbers of a decoder; a key that is missing or unknown is named."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from frontends.decoder.architectures import ARCHITECTURES
from frontends.decoder.config import Activation, Architecture, Decoder, Experts
from frontends.safetensors.families import FAMILIES, Family
from frontends.safetensors.keys import Config
from frontends.safetensors.layers import layers_of
from rewriter.errors import BadInput

_ACTIVATIONS: dict[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}
_QUANTIZED = "quantization_config"


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes that the builder takes from the shapes of weights, as the configuration has them.

    Attributes:
        dense: width of the dense feed-forward part of each layer; 0 for none.
        sparse: whether each layer has experts.
        expert: width of an expert.
        shared: width of the expert for all tokens; 0 for none.
        table: rows of the embedding of what each layer gets of its own; 0 for none.
        biases: by the builder's name without layer, whether a weight has a bias; not those of
            which no key says it.
        tied: the embedding is the output layer; ``None`` where no key says it.
        same_values: keys are also the values, in layers without a window.
        parallel: attention and the feed-forward part stand side by side.
        head_norms: queries and keys are normalized, where a key says it.
    """

    dense: tuple[int, ...]
    sparse: tuple[bool, ...]
    expert: int = 0
    shared: int = 0
    table: int = 0
    biases: Mapping[str, bool] | None = None
    tied: bool | None = None
    same_values: bool = False
    parallel: bool = False
    head_norms: bool = True


def family_of(path: Path, values: Mapping[str, Any]) -> tuple[str, Family]:
    """The class of a model and how it is read.

    Raises:
        BadInput: none is named, or one that is not known.
    """
    named = values.get("architectures")
    if not isinstance(named, list) or len(named) != 1:
        raise BadInput(
            f"{path}: the key 'architectures' is {named!r}, and it has to name the one class of "
            "the model; download the model again"
        )
    family = FAMILIES.get(named[0]) if isinstance(named[0], str) else None
    if family is None:
        raise BadInput(
            f"{path}: the architecture '{named[0]}' cannot be built; known: {', '.join(FAMILIES)}"
        )
    return named[0], family


def decoder_of(
    path: Path, values: Mapping[str, Any], context: int | None = None
) -> tuple[Decoder, Sizes]:
    """What a model computes.

    Args:
        path: of ``config.json``, for messages.
        values: its keys.
        context: positions to serve; all the model has by default.

    Raises:
        BadInput: the architecture is not known, or a key is missing or not handled.
    """
    name, family = family_of(path, values)
    whole = Config(path, values)
    whole.get(_QUANTIZED)
    config = whole
    if family.text:
        config = whole.part("text_config", family.defaults)
    elif family.defaults:
        config = Config(path, values, defaults=family.defaults)
    config.get(_QUANTIZED)
    style = _style(config, family)
    hidden, served = config.size("hidden_size"), config.size("max_position_embeddings")
    served = min(context or served, served)
    layers = layers_of(config, family, hidden, served)
    experts = _experts(config, family, style)
    decoder = Decoder(
        name=family.style,
        architecture=style,
        vocabulary=config.size("vocab_size"),
        hidden=hidden,
        context=served,
        epsilon=config.number(family.epsilon, above=0.0),
        layers=layers,
        experts=experts,
        **_multipliers(config, family, hidden),
    )
    sizes = _sizes(config, whole, family, decoder)
    config.require_understood(name)
    if family.text:
        whole.require_understood(name)
    return decoder, sizes


def _style(config: Config, family: Family) -> Architecture:
    """The builder's entry, with the activation that the model has.

    Raises:
        BadInput: the activation cannot be built, or is not the one that the class has.
    """
    style, key = ARCHITECTURES[family.style], family.activation
    if family.style == "gpt-oss":
        config.only(key, "silu")
        config.only("swiglu_limit", 7, 7.0)
        return style
    if family.style.startswith("gemma"):
        config.get("hidden_act")
        key = "hidden_activation" if "hidden_activation" in config else key
    named = config.get(key, "gelu_pytorch_tanh" if style.activation == "gelu_tanh" else "silu")
    built = {k: v for k, v in _ACTIVATIONS.items() if v != "gelu" or not family.experts}
    kind = built.get(named) if isinstance(named, str) else None
    if kind is None:
        known = ", ".join(built)
        raise config.wrong(key, f"which cannot be built; known: {known}", again=False)
    if kind == "gelu" and family.style == "gemma" and key == "hidden_act":
        raise config.wrong(
            key,
            "which versions of transformers read as two functions; add 'hidden_activation' with "
            "the one this model was trained with, gelu or gelu_pytorch_tanh",
            again=False,
        )
    # What has to be there is known better than the builder's entry says it: see ``shapes``.
    return replace(style, activation=kind, needs=())


def _multipliers(config: Config, family: Family, hidden: int) -> dict[str, Any]:
    """Scales and soft caps, by the attributes of a decoder."""
    style, found = family.style, dict[str, Any]()
    if ARCHITECTURES[style].scales_embedding:
        found["embedding_scale"] = math.sqrt(hidden)
    if style == "granite":
        found["embedding_scale"] = config.number("embedding_multiplier", 1.0)
        found["residual_scale"] = config.number("residual_multiplier", 1.0)
        found["attention_scale"] = config.number("attention_multiplier", 1.0, above=0.0)
        found["logit_scale"] = 1 / config.number("logits_scaling", 1.0, above=0.0)
    if style in {"gemma2", "gemma3"}:
        found["attention_scale"] = config.number("query_pre_attn_scalar", above=0.0) ** -0.5
        found["attention_softcap"] = config.number("attn_logit_softcapping", 0.0)
    if style == "gemma3" and family.text:  # transformers caps logits of the plain class only
        config.only("final_logit_softcapping", 0, 0.0)
    elif style in {"gemma2", "gemma3", "gemma4"}:
        found["final_softcap"] = config.number("final_logit_softcapping", 0.0)
    if style == "gemma4":
        found["attention_scale"] = 1.0
        found["per_layer"] = config.size("hidden_size_per_layer_input", 0, least=0)
    return found


def _experts(config: Config, family: Family, style: Architecture) -> Experts | None:
    """How many experts there are and are used; ``None`` for a dense model.

    Raises:
        BadInput: keys contradict each other.
    """
    if not family.experts:
        return None
    if family.style == "gemma4" and not config.flag("enable_moe_block", False):
        for name in (*family.experts, family.used, "moe_intermediate_size"):
            config.get(name)
        return None
    name = next((name for name in family.experts if name in config), family.experts[0])
    count = config.size(name)
    for other in family.experts:
        config.same(other, name, count)
    used = config.size(family.used)
    config.same("experts_per_token", family.used, used)
    if used > count:
        raise config.wrong(family.used, f"and there are {count} experts")
    renormalized = family.renormalized
    if renormalized is None:
        renormalized = config.flag("norm_topk_prob", False)
    return Experts(count, used, renormalized)


def _sizes(config: Config, whole: Config, family: Family, decoder: Decoder) -> Sizes:
    """See :class:`Sizes`."""
    count, style = len(decoder.layers), family.style
    width = config.size("intermediate_size")
    dense, sparse = [width] * count, [decoder.experts is not None] * count
    expert = shared = table = 0
    if decoder.experts is not None:
        expert = width
        if style in {"qwen2moe", "qwen3moe"}:
            plain = (
                config.listed("mlp_only_layers", None, int) if "mlp_only_layers" in config else []
            )
            step = config.size("decoder_sparse_step", 1)
            sparse = [i not in plain and (i + 1) % step == 0 for i in range(count)]
        if style in {"qwen2moe", "qwen3moe", "gemma4"}:
            expert = config.size("moe_intermediate_size")
        if style == "qwen2moe":
            shared = config.size("shared_expert_intermediate_size")
        if style != "gemma4":
            dense = [0 if sparse[i] else width for i in range(count)]
    if style == "gemma4":
        if config.flag("use_double_wide_mlp", False):
            dense = [
                w * (1 if layer.shares is None else 2)
                for w, layer in zip(dense, decoder.layers, strict=True)
            ]
        table = config.size("vocab_size_per_layer_input", decoder.vocabulary)
        table = table if decoder.per_layer else 0
    biases = dict[str, bool]()
    for key, names in family.biases.items():
        if key in config:
            biases |= dict.fromkeys(names, config.flag(key, False))
    tied = next((c for c in (whole, config) if "tie_word_embeddings" in c), None)
    for keys in (whole, config):
        keys.get("tie_word_embeddings")
    return Sizes(
        tuple(dense),
        tuple(sparse),
        expert,
        shared,
        table,
        biases,
        None if tied is None else tied.flag("tie_word_embeddings", False),
        style == "gemma4" and config.flag("attention_k_eq_v", False),
        style == "stablelm" and config.flag("use_parallel_residual", False),
        style != "stablelm" or config.flag("qk_layernorm", False),
    )
