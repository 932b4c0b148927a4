"""Names of weights: what transformers calls them, and what the builder does.

A table maps what follows ``layers.N.`` to the builder's name. A module's ``weight`` and ``bias``
go along; a parameter that is neither is written out. ``*`` stands for numbers, of experts or
heads: such tensors are stacked in their order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """A weight of the builder within a tensor of the checkpoint.

    Attributes:
        name: as the builder calls it.
        start: first row.
        step: rows between two of its rows.
        turned: floats are stored (E, K, N), not (E, N, K).
    """

    name: str
    start: int = 0
    step: int = 1
    turned: bool = False


Table = Mapping[str, str | tuple[Part, ...]]

MODEL: Table = {
    "embed_tokens": "token_embd",
    "embed_tokens_per_layer": "per_layer_token_embd",
    "norm": "output_norm",
    "per_layer_model_projection": "per_layer_model_proj",
    "per_layer_projection_norm": "per_layer_proj_norm",
}
HEAD, TIED = "output.weight", "token_embd.weight"

_ATTENTION: Table = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
}
_MLP: Table = {f"mlp.{name}_proj": f"ffn_{name}" for name in ("gate", "up", "down")}
_HEADS: Table = {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
_AFTER: Table = {
    "post_attention_layernorm": "post_attention_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_FUSED: Table = {
    "mlp.experts.gate_up_proj": (Part("ffn_gate_up_exps.weight"),),
    "mlp.experts.down_proj": (Part("ffn_down_exps.weight"),),
}
"""Experts as transformers 5 keeps them in memory."""

_NORMS: Table = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}

LLAMA: Table = {**_ATTENTION, **_MLP, **_NORMS}
MIXTRAL: Table = {
    **_ATTENTION,
    **_NORMS,
    **_FUSED,
    "mlp.gate": "ffn_gate_inp",
    "block_sparse_moe.gate": "ffn_gate_inp",
    "block_sparse_moe.experts.*.w1": "ffn_gate_exps",
    "block_sparse_moe.experts.*.w3": "ffn_up_exps",
    "block_sparse_moe.experts.*.w2": "ffn_down_exps",
}
_SPARSE: Table = {
    **_FUSED,
    "mlp.gate": "ffn_gate_inp",
    **{f"mlp.experts.*.{n}_proj": f"ffn_{n}_exps" for n in ("gate", "up", "down")},
}
QWEN3: Table = {**LLAMA, **_HEADS}
QWEN3_MOE: Table = {**QWEN3, **_SPARSE}
QWEN2_MOE: Table = {
    **LLAMA,
    **_SPARSE,
    **{f"mlp.shared_expert.{n}_proj": f"ffn_{n}_shexp" for n in ("gate", "up", "down")},
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
}
PHI3: Table = {
    **_NORMS,
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
OLMO2: Table = {**_ATTENTION, **_MLP, **_HEADS, **_AFTER}
GEMMA2: Table = {
    **_ATTENTION,
    **_MLP,
    **_AFTER,
    "input_layernorm": "attn_norm",
    "pre_feedforward_layernorm": "ffn_norm",
}
GEMMA3: Table = {**GEMMA2, **_HEADS}
GEMMA4: Table = {
    **GEMMA3,
    "post_feedforward_layernorm_1": "post_ffw_norm_1",
    "post_feedforward_layernorm_2": "post_ffw_norm_2",
    "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
    "layer_scalar": (Part("layer_output_scale.weight"),),
    "per_layer_input_gate": "inp_gate",
    "per_layer_projection": "proj",
    "post_per_layer_input_norm": "post_norm",
    "router.proj": "ffn_gate_inp",
    "router.scale": (Part("ffn_gate_inp.scale"),),
    "router.per_expert_scale": (Part("ffn_down_exps.scale"),),
    "experts.gate_up_proj": (Part("ffn_gate_up_exps.weight"),),
    "experts.down_proj": (Part("ffn_down_exps.weight"),),
    **{f"experts.*.{n}_proj": f"ffn_{n}_exps" for n in ("gate", "up", "down")},
}
STABLELM: Table = {
    **LLAMA,
    "self_attn.q_layernorm.norms.*": "attn_q_norm",
    "self_attn.k_layernorm.norms.*": "attn_k_norm",
}
STARCODER2: Table = {**_ATTENTION, **_NORMS, "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}
GPT_OSS: Table = {
    **_ATTENTION,
    "self_attn.sinks": (Part("attn_sinks.weight"),),
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "post_attention_norm",
    "mlp.router": "ffn_gate_inp",
    "mlp.experts.gate_up_proj": (
        Part("ffn_gate_exps.weight", 0, 2, turned=True),
        Part("ffn_up_exps.weight", 1, 2, turned=True),
    ),
    "mlp.experts.gate_up_proj_bias": (
        Part("ffn_gate_exps.bias", 0, 2),
        Part("ffn_up_exps.bias", 1, 2),
    ),
    "mlp.experts.down_proj": (Part("ffn_down_exps.weight", turned=True),),
    "mlp.experts.down_proj_bias": (Part("ffn_down_exps.bias"),),
}

_LAYER = re.compile(r"layers\.(\d+)\.(.+)")
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a weight of the builder comes from.

    Attributes:
        tensors: of the checkpoint; more than one are stacked.
        part: which of their rows.
        numbers: those of the stacked tensors, empty where there is one without a number.
    """

    tensors: tuple[str, ...]
    part: Part
    numbers: tuple[int, ...] = ()

    def without(self, count: int) -> str:
        """The first of so many stacked tensors that is not there; empty if none is missing."""
        missing = sorted(set(range(count)) - set(self.numbers))
        if not missing or not self.numbers:
            return ""
        front, _, back = self.tensors[0].rpartition(f".{self.numbers[0]}.")
        return f"{front}.{missing[0]}.{back}"


class Names:
    """Weights of a checkpoint by the builder's names.

    Args:
        names: of its tensors.
        table: of the architecture.
        prefix: of the text model's tensors.
        head: name of the output layer's weight.

    Attributes:
        origins: by the builder's name.
        unknown: tensors that are in no table.
    """

    def __init__(self, names: Iterable[str], table: Table, prefix: str, head: str) -> None:
        self.origins: dict[str, Origin] = {}
        self.unknown: list[str] = []
        self._table, self._prefix, self._head = table, prefix, head
        stacks: dict[str, dict[int, str]] = {}
        parts: dict[str, Part] = {}
        for name in names:
            found = self._parts(name)
            if not found:
                self.unknown.append(name)
            for at, part in found:
                if part.name in self.origins or at in stacks.get(part.name, {}):
                    self.unknown.append(name)  # another tensor is this weight already
                elif at is None:
                    self.origins[part.name] = Origin((name,), part)
                else:
                    stacks.setdefault(part.name, {})[at] = name
                    parts[part.name] = part
        for key, numbered in stacks.items():
            ordered = tuple(numbered[i] for i in sorted(numbered))
            if key in self.origins:
                self.unknown.extend(ordered)
            else:
                self.origins[key] = Origin(ordered, parts[key], tuple(sorted(numbered)))

    def _parts(self, name: str) -> list[tuple[int | None, Part]]:
        """What a tensor is to the builder, and its number among those it is stacked with."""
        if name == self._head:
            return [(None, Part(HEAD))]
        if not name.startswith(self._prefix):
            return []
        rest = name.removeprefix(self._prefix)
        layer = _LAYER.fullmatch(rest)
        table, start, rest = (
            (MODEL, "", rest) if layer is None else (self._table, f"blk.{layer[1]}.", layer[2])
        )
        number = _NUMBER.search(rest)
        key = _NUMBER.sub("*", rest)
        at = None if number is None else int(number[0])
        found = table.get(key)
        if found is None:
            module, _, kind = key.rpartition(".")
            stem = table.get(module) if kind in {"weight", "bias"} else None
            found = (Part(f"{stem}.{kind}"),) if isinstance(stem, str) else ()
        elif isinstance(found, str):  # a module is no tensor
            return []
        return [(at, Part(start + p.name, p.start, p.step, p.turned)) for p in found]

    def called(self, name: str) -> str:
        """What a checkpoint calls a weight of the builder."""
        if name == HEAD:
            return self._head
        if name in self.origins:
            return self.origins[name].tensors[0]
        layer = re.fullmatch(r"blk\.(\d+)\.(.+)", name)
        table, rest = (MODEL, name) if layer is None else (self._table, layer[2])
        start = self._prefix + ("" if layer is None else f"layers.{layer[1]}.")
        stem, _, kind = rest.rpartition(".")
        for key, found in table.items():
            if found == stem:
                return f"{start}{key}.{kind}".replace("*", "0")
            if not isinstance(found, str) and rest in {part.name for part in found}:
                return start + key
        return name
