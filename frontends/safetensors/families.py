"""Classes of transformers that can be read, and what their ``config.json`` means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from frontends.safetensors import names
from frontends.safetensors.names import Table

Windows = Literal["none", "all", "types", "asked", "asked all", "asked types"]


@dataclass(frozen=True, slots=True)
class Family:
    """How a class of transformers differs from Llama's.

    Attributes:
        style: entry of the builder's architectures.
        table: names of the tensors of a layer.
        windows: which layers have one. ``all``: where ``sliding_window`` is set; ``types``: those
            that ``layer_types`` says; ``asked``: the same only with ``use_sliding_window``.
        window_every: without ``layer_types``, of so many layers the last has no window.
        epsilon: key of the norms' epsilon.
        activation: key of the activation.
        shift: what norms add to their weights.
        tied: the embedding is the output layer where neither key nor tensor says otherwise.
        theta: rotary base where no key says it.
        rotated: part of a head that is rotated where no key says it; 0: it cannot be said.
        head_size: key of the size of a head; empty where it is hidden size over heads.
        experts: keys of how many experts there are; empty for none.
        used: key of how many of them a token uses.
        renormalized: weights of the chosen experts add up to 1; ``None``: a key says it.
        biases: keys that say which weights have biases.
        text: the keys of the text model are below ``text_config``.
        defaults: values of keys that are not always written.
    """

    style: str
    table: Table = field(default_factory=lambda: names.LLAMA)
    windows: Windows = "none"
    window_every: int = 0
    epsilon: str = "rms_norm_eps"
    activation: str = "hidden_act"
    shift: float = 0.0
    tied: bool = False
    theta: float = 10000.0
    rotated: float = 0.0
    head_size: str = "head_dim"
    experts: tuple[str, ...] = ()
    used: str = "num_experts_per_tok"
    renormalized: bool | None = True
    biases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    text: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict)


_QKV = ("attn_q", "attn_k", "attn_v")
_ATTENTION = {"attention_bias": (*_QKV, "attn_output")}
_MLP = {"mlp_bias": ("ffn_gate", "ffn_up", "ffn_down")}
_ALL = {"use_bias": (*_QKV, "attn_output", "ffn_up", "ffn_down")}
_GEMMA3 = {
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "rms_norm_eps": 1e-6,
    "max_position_embeddings": 131072, "query_pre_attn_scalar": 256, "sliding_window": 4096,
    "hidden_activation": "gelu_pytorch_tanh", "vocab_size": 262208,
}  # fmt: skip
_GEMMA4 = {
    "hidden_activation": "gelu_pytorch_tanh", "rms_norm_eps": 1e-6, "global_head_dim": 512,
    "max_position_embeddings": 131072, "sliding_window": 512, "head_dim": 256,
    "num_key_value_heads": 4, "hidden_size_per_layer_input": 256,
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        "full_attention": {
            "rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6,
        },
    },
}  # fmt: skip
_UNIFIED = {
    **_GEMMA4, "max_position_embeddings": 262144, "sliding_window": 1024,
    "hidden_size_per_layer_input": 0,
}  # fmt: skip


def _gemma3(*, text: bool) -> Family:
    return Family(
        "gemma3", names.GEMMA3, "types", 6, "rms_norm_eps", "hidden_activation", 1.0, True,
        1e6, biases=_ATTENTION, text=text, defaults=_GEMMA3,
    )  # fmt: skip


def _gemma4(defaults: Mapping[str, Any], *, text: bool) -> Family:
    return Family(
        "gemma4", names.GEMMA4, "types", 6, "rms_norm_eps", "hidden_activation", 0.0, True,
        1e6, experts=("num_experts",), used="top_k_experts", biases=_ATTENTION, text=text,
        defaults=defaults,
    )  # fmt: skip


FAMILIES: dict[str, Family] = {
    "LlamaForCausalLM": Family("llama", biases={**_ATTENTION, **_MLP}),
    "MistralForCausalLM": Family("llama", windows="all"),
    "MixtralForCausalLM": Family(
        "llama", names.MIXTRAL, "all", theta=1e6, experts=("num_local_experts",)
    ),
    "Qwen2ForCausalLM": Family("qwen2", windows="asked types"),
    "Qwen2MoeForCausalLM": Family(
        "qwen2moe", names.QWEN2_MOE, "asked types", 2, experts=("num_experts",), renormalized=None,
        biases={"qkv_bias": _QKV},
    ),
    "Qwen3ForCausalLM": Family("qwen3", names.QWEN3, "asked types", biases=_ATTENTION),
    "Qwen3MoeForCausalLM": Family(
        "qwen3moe", names.QWEN3_MOE, "asked all", experts=("num_experts", "num_local_experts"),
        renormalized=None, biases=_ATTENTION,
    ),
    "Phi3ForCausalLM": Family("phi3", names.PHI3, "all", rotated=1.0),
    "GemmaForCausalLM": Family("gemma", shift=1.0, tied=True, biases=_ATTENTION),
    "Gemma2ForCausalLM": Family(
        "gemma2", names.GEMMA2, "types", 2, activation="hidden_activation", shift=1.0, tied=True,
        biases=_ATTENTION,
    ),
    "Gemma3ForCausalLM": _gemma3(text=False),
    "Gemma3ForConditionalGeneration": _gemma3(text=True),
    "Gemma4ForCausalLM": _gemma4(_GEMMA4, text=False),
    "Gemma4ForConditionalGeneration": _gemma4(_GEMMA4, text=True),
    "Gemma4UnifiedForCausalLM": _gemma4(_UNIFIED, text=False),
    "Gemma4UnifiedForConditionalGeneration": _gemma4(_UNIFIED, text=True),
    "Olmo2ForCausalLM": Family("olmo2", names.OLMO2, biases=_ATTENTION),
    "GraniteForCausalLM": Family("granite", biases={**_ATTENTION, **_MLP}),
    "SmolLM3ForCausalLM": Family(
        "smollm3", windows="asked types", tied=True, theta=2e6, biases={**_ATTENTION, **_MLP}
    ),
    "StableLmForCausalLM": Family(
        "stablelm", names.STABLELM, epsilon="layer_norm_eps", rotated=0.25, head_size="",
        biases={"use_qkv_bias": _QKV},
    ),
    "Starcoder2ForCausalLM": Family(
        "starcoder2", names.STARCODER2, "all", epsilon="norm_epsilon", tied=True, biases=_ALL
    ),
    "GptOssForCausalLM": Family(
        "gpt-oss", names.GPT_OSS, "types", 2, theta=150000.0, experts=("num_local_experts",),
        biases=_ATTENTION,
    ),
}  # fmt: skip
