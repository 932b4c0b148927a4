"""Metadata of a GGUF file, asked by key: what is missing is named, and so is what nobody asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from frontends.decoder import keys as base
from frontends.decoder.keys import short
from rewriter.errors import BadInput

_IDLE = frozenset(
    {
        "expert_feed_forward_length",
        "expert_shared_count",
        "expert_shared_feed_forward_length",
        "feed_forward_length",
        "rope.scaling.finetuned",
        "rope.scaling.original_context_length",
        "rope.scaling.yarn_log_multiplier",
        "tensor_data_layout",
        "use_parallel_residual",
        "vocab_size",
    }
)
"""Keys that say what the shapes of the weights say, or nothing about the function."""

_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "attention.causal": (True,),
    "attention.clamp_kqv": (0.0,),
    "attention.max_alibi_bias": (0.0,),
    "expert_gating_func": (0, 1, 3),
    "expert_group_count": (0, 1),
    "expert_group_used_count": (0, 1),
    "expert_weights_scale": (0.0, 1.0),
    "leading_dense_block_count": (0,),
    "nextn_predict_layers": (0,),
    "rope.scaling.yarn_ext_factor": (1.0,),
    "router_logit_softcapping": (0.0,),
}
"""Values at which keys that change the function do not; gating by softmax, before or after."""


class Keys(base.Keys):
    """Metadata of one file; names are asked without the ``{arch}.`` they start with.

    Attributes:
        path: of the file.
        arch: name of the architecture.
    """

    advice = "convert the model again"

    def __init__(self, path: Path, metadata: Mapping[str, Any]) -> None:
        self.path = path
        self.arch = str(metadata.get("general.architecture", ""))
        self._metadata = metadata
        self._asked: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        """A value, or what stands for it."""
        self._asked.add(name)
        return self._metadata.get(f"{self.arch}.{name}", default)

    def full(self, name: str) -> str:
        """A key with the architecture in front."""
        return f"{self.arch}.{name}"

    def sizes(self, name: str, layers: int, default: Any = None) -> list[int]:
        """A whole number from 1 for each layer.

        Raises:
            BadInput: one is missing, or none.
        """
        return [self.whole(name, value, 1) for value in self.by_layer(name, layers, default)]

    def by_layer(self, name: str, layers: int, default: Any = None) -> list[Any]:
        """A value for each layer: a list of that length, or one for all."""
        value = self.get(name, default)
        if value is None:
            value = self.needed(name)
        if not isinstance(value, Sequence) or isinstance(value, str):
            return [value] * layers
        if len(value) != layers:
            raise BadInput(
                f"{self.path}: the key '{self.arch}.{name}' holds {len(value)} values for "
                f"{layers} layers; convert the model again"
            )
        return list(value)

    def require_understood(self) -> None:
        """Stop at a key that may change the function and that nothing here reads.

        Raises:
            BadInput: there is one.
        """
        start = f"{self.arch}."
        for key, value in self._metadata.items():
            name = key.removeprefix(start)
            if name == key or name in self._asked or name in _IDLE:
                continue
            if value not in _NEUTRAL.get(name, ()):
                raise BadInput(
                    f"{self.path}: the key '{key}' is {short(value)}, which '{self.arch}' models "
                    "are not known to use; without it this would be another model"
                )
