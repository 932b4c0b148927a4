"""Checkpoints that are quantized already: the seam where a method is chosen by its name.

A method looks at the tensors of a checkpoint and says which of them are together one weight, under
the name that weight would have if it were not quantized. Everything after that (names, stacks,
shapes, what is missing or too many) is as for floats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from frontends.decoder.weights import Weight
from frontends.safetensors.columns import Found
from frontends.safetensors.folder import CONFIG, Checkpoint
from frontends.safetensors.gptq import awq_weights, gptq_weights
from frontends.safetensors.keys import Config
from frontends.safetensors.mxfp4 import mxfp4_weights
from frontends.safetensors.quark import quark_weights
from rewriter.errors import BadInput

_KEY = "quantization_config"


@dataclass(frozen=True, slots=True)
class Packed:
    """A weight in the form of some method.

    Attributes:
        tensors: what it is made of, by name.
        shape: (N, K), or (E, N, K) of stacked experts.
        method: in words, for the report: ``MXFP4``, ``GPTQ 4 bits``.
        weight: makes it; called once.
    """

    tensors: tuple[str, ...]
    shape: tuple[int, ...]
    method: str
    weight: Callable[[], Weight]


Method = Callable[[Checkpoint, Config], Mapping[str, Packed]]
"""Of a checkpoint and its ``quantization_config``, the weights by the names they would have.

A method reads every key of the configuration that changes the value of a weight, and raises
``BadInput`` where it cannot honour one; keys that nobody asked for are an error afterwards.
"""


def _mxfp4(checkpoint: Checkpoint, config: Config) -> Mapping[str, Packed]:
    config.get("modules_to_not_convert")
    return {
        name: Packed(tensors, shape, "MXFP4", weight)
        for name, tensors, shape, weight in mxfp4_weights(checkpoint.tensors)
    }


def _by(find: Callable[[Checkpoint, Config], Iterator[Found]]) -> Method:
    return lambda checkpoint, config: {
        name: Packed(tensors, shape, method, weight)
        for name, tensors, shape, method, weight in find(checkpoint, config)
    }


METHODS: dict[str, Method] = {
    "awq": _by(awq_weights),
    "gptq": _by(gptq_weights),
    "mxfp4": _mxfp4,
    "quark": _by(quark_weights),
}
"""By ``quant_method``."""


def packed_weights(checkpoint: Checkpoint) -> Mapping[str, Packed]:
    """The weights of a checkpoint that are quantized; none where it does not say that some are.

    Raises:
        BadInput: the method is not known, or not as this version can read it.
    """
    path = checkpoint.folder / CONFIG
    top = Config(path, checkpoint.config)
    found = next(
        (keys for keys in (top, top.part("text_config")) if _KEY in keys),
        None,
    )
    if found is None:
        return {}
    config = found.part(_KEY)
    name = config.needed("quant_method")
    method = METHODS.get(name) if isinstance(name, str) else None
    if method is None:
        raise BadInput(
            f"{path}: the weights are quantized by '{name}', which cannot be read; known: "
            f"{', '.join(METHODS)}; give the checkpoint that is not quantized"
        )
    weights = method(checkpoint, config)
    config.require_understood(str(name))
    if not weights:
        raise BadInput(
            f"{path}: says that the weights are quantized by '{name}', and no tensor of the files "
            f"is; remove '{_KEY}', or download the model again"
        )
    return weights
