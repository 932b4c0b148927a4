"""LoRA adapters in the layout of PEFT, in the folder ``lora_adapters`` of a checkpoint."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from frontends.safetensors.assembled import StoredTensor
from frontends.safetensors.folder import json_of
from frontends.safetensors.header import Stored, tensors_of
from frontends.safetensors.keys import Config
from rewriter.errors import BadInput

FOLDER = "lora_adapters"
_CONFIG, _FILE = "adapter_config.json", "adapter_model.safetensors"
_NAME = re.compile(r"base_model\.model\.(.+)\.lora_(A|B)\.(?:default\.)?weight")
_IDLE = (
    "auto_mapping", "base_model_name_or_path", "eva_config", "exclude_modules", "inference_mode",
    "init_lora_weights", "layers_pattern", "layers_to_transform", "loftq_config", "lora_dropout",
    "megatron_core", "peft_version", "qalora_group_size", "revision", "runtime_config",
    "target_modules", "task_type",
)  # fmt: skip
"""Training, and which modules are adapted, which the tensors show."""
_OFF: dict[str, object] = {
    "alpha_pattern": {}, "bias": "none", "ensure_weight_tying": False, "fan_in_fan_out": False,
    "lora_bias": False, "modules_to_save": [], "peft_type": "LORA", "rank_pattern": {},
    "target_parameters": [], "use_dora": False, "use_qalora": False,
}  # fmt: skip
"""What has to be so."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """What is added to a weight's product: x · firstᵀ · scale · secondᵀ.

    Attributes:
        names: of its tensors.
        first: (r, K).
        second: (N, r).
        scale: a number.
    """

    names: tuple[str, str]
    first: Stored
    second: Stored
    scale: float

    def tensor(self, part: Literal["first", "second"] | str) -> StoredTensor:
        """One of its tensors."""
        if part == "first":
            return StoredTensor(self.names[0], self.first)
        return StoredTensor(self.names[1], self.second)


def adapters_of(folder: Path, prefix: str) -> dict[str, Adapter]:
    """Adapters of a checkpoint by module; none where it has no such folder.

    Args:
        folder: of the checkpoint.
        prefix: of the text model's tensors, which adapters may leave at ``model.``.

    Raises:
        BadInput: a file is missing or damaged, or asks for more than LoRA.
    """
    path = folder / FOLDER
    if not path.is_dir():
        return {}
    if not (path / _FILE).is_file():
        raise BadInput(f"{path}: has no {_FILE}; download it again, or remove the folder")
    scale = _scale(path / _CONFIG)
    tensors = tensors_of(path / _FILE)
    found: dict[str, dict[str, str]] = {}
    for name in tensors:
        match = _NAME.fullmatch(name)
        if match is None:
            raise BadInput(
                f"{path / _FILE}: holds the tensor '{name}', which is no LoRA weight of a linear "
                "layer; without it this would be another model"
            )
        module = match[1]
        if not module.startswith(prefix) and module.startswith("model."):
            module = prefix + module.removeprefix("model.")
        found.setdefault(module, {})[match[2]] = name
    adapters = {}
    for module, parts in found.items():
        if len(parts) < 2:
            (there,) = parts.values()
            raise BadInput(f"{path / _FILE}: '{there}' has no second half; download it again")
        first, second = parts["A"], parts["B"]
        adapters[module] = Adapter((first, second), tensors[first], tensors[second], scale)
    return adapters


def _scale(path: Path) -> float:
    config = Config(path, json_of(path))
    for key in _IDLE:
        config.get(key)
    for key, value in _OFF.items():
        config.only(key, value)
    rank, alpha = config.size("r"), config.number("lora_alpha")
    rooted = config.flag("use_rslora", False)
    config.require_understood("LoRA")
    return alpha / (math.sqrt(rank) if rooted else rank)
