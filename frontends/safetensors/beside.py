"""What a checkpoint holds beside its weights, by the builder's names (frontends.decoder.inputs).

Prescales and rotations of Quark, the order of inputs of GPTQ (``g_idx``), and the LoRA adapters of
a folder ``lora_adapters`` in the checkpoint, which are applied where the folder is there.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir

from frontends.decoder.weights import Float, Weight
from frontends.safetensors.assembled import StoredTensor
from frontends.safetensors.folder import Checkpoint
from frontends.safetensors.header import Stored
from frontends.safetensors.lora import Adapter, adapters_of
from frontends.safetensors.names import Names
from frontends.safetensors.order import order_of
from rewriter.errors import BadInput

ROTATION = re.compile(r"shared_input_rotation_\d+")

_LOOKED_UP = ("token_embd", "per_layer_token_embd", "ffn_gate_inp_shexp")
"""Weights that no input is multiplied by as the others are."""


def of_input(tensor: str) -> bool:
    """Whether a tensor of a checkpoint says something of a weight's input."""
    return tensor.endswith((".input_prescale", ".g_idx")) or bool(ROTATION.fullmatch(tensor))


@dataclass
class Beside:
    """Further weights of a checkpoint.

    Args:
        checkpoint: opened.
        names: of its weights.
        shape: of one of its weights, quantized or not, by the checkpoint's name.
        tensor: the weight.
        packed: whether one is quantized.

    Attributes:
        weights: makers by the builder's name.
        alone: of stacked weights, the numbers of those that are not like the others; they are
            weights of their own, ``NAME.E.weight``.

    Raises:
        BadInput: one fits no weight.
    """

    checkpoint: Checkpoint
    names: Names
    shape: Callable[[str], tuple[int, ...]]
    tensor: Callable[[str], Weight]
    packed: Callable[[str], bool]
    weights: dict[str, Callable[[], Weight]] = field(default_factory=dict)
    alone: dict[str, list[int]] = field(default_factory=dict)
    _shared: dict[bytes, Float] = field(default_factory=dict)
    _asked: dict[str, Weight] = field(default_factory=dict)

    def __post_init__(self) -> None:
        adapters = adapters_of(self.checkpoint.folder, self._prefix())
        for name, origin in self.names.origins.items():
            if not name.endswith(".weight") or origin.part.step > 1:
                continue
            stem = name.removesuffix(".weight")
            before = set(self.weights)
            self._inputs(stem, origin.tensors)
            self._adapter(stem, origin.tensors, adapters, stacked=bool(origin.numbers))
            if len(self.weights) > len(before) and stem.rpartition(".")[2] in _LOOKED_UP:
                raise BadInput(
                    f"{self.checkpoint.folder}: something is done to the input of "
                    f"'{origin.tensors[0]}', which has none; give a checkpoint without it"
                )
        for module, adapter in adapters.items():
            raise BadInput(
                f"{adapter.first.path}: adapts '{module}', which this model does not have as a "
                "weight of its own; remove the adapter, or correct it"
            )

    def weight(self, name: str) -> Weight:
        """One of :attr:`weights`."""
        self._asked[name] = self.weights[name]()
        return self._asked[name]

    def asked(self) -> list[tuple[str, ir.TensorProtocol]]:
        """What was asked for, each tensor once, by kind; not weights that stand alone."""
        found = {
            id(weight): ("LoRA" if ".lora_" in name else "inputs", weight.tensor)
            for name, weight in self._asked.items()
            if isinstance(weight, Float) and not name.endswith((".weight", ".lora_scale"))
        }
        return list(found.values())

    def _prefix(self) -> str:
        origin = self.names.origins.get("token_embd.weight")
        return "model." if origin is None else origin.tensors[0].removesuffix("embed_tokens.weight")

    def _inputs(self, stem: str, tensors: Sequence[str]) -> None:
        """Orders, prescales and rotations of a weight, or of each of those that are stacked."""
        if not any(self.packed(tensor) for tensor in tensors):
            return
        kinds = [self._kind(tensor) for tensor in tensors]
        usual = Counter(kinds).most_common(1)[0][0]
        self._place(stem, tensors[kinds.index(usual)])
        for number, kind in enumerate(kinds):
            if kind == usual:
                continue
            self.alone.setdefault(f"{stem}.weight", []).append(number)
            own, tensor = f"{stem}.{number}", tensors[number]
            self.weights[f"{own}.weight"] = partial(self.tensor, tensor)
            self._place(own, tensor)

    def _kind(self, tensor: str) -> tuple[bool, bytes, bytes]:
        """What has to be equal where weights are multiplied by one input."""
        if not self.packed(tensor):
            return False, b"", b""
        stored, order = self._prescale(tensor), self._order(tensor)
        prescale = b"" if stored is None else stored[1].rows().tobytes()
        return True, prescale, b"" if order is None else order.tobytes()

    def _place(self, stem: str, tensor: str) -> None:
        """The input of one tensor."""
        if not self.packed(tensor):
            return
        order, prescale = self._order(tensor), self._prescale(tensor)
        if order is not None:
            self._add(f"{stem}.order", order.tobytes(), lambda: ir.tensor(order.astype(np.int64)))
        if prescale is None:
            return
        name, stored = prescale
        data = stored.dtype.encode() + stored.rows().tobytes()
        self._add(f"{stem}.prescale", data, lambda: StoredTensor(name, stored))
        name = f"shared_input_rotation_{stored.shape[0]}"
        rotation = self.checkpoint.tensors.get(name)
        if rotation is not None:
            self._require(name, rotation, (stored.shape[0],) * 2)
            self._add(f"{stem}.rotation", name.encode(), lambda: StoredTensor(name, rotation))

    def _add(self, name: str, content: bytes, make: Callable[[], ir.TensorProtocol]) -> None:
        """A weight that others of the same content are, too."""
        if content not in self._shared:
            self._shared[content] = Float(make())
        self._keep(name, self._shared[content])

    def _keep(self, name: str, weight: Weight) -> None:
        self.weights[name] = lambda: weight

    def _prescale(self, tensor: str) -> tuple[str, Stored] | None:
        name = f"{tensor.removesuffix('.weight')}.input_prescale"
        stored = self.checkpoint.tensors.get(name)
        if stored is None:
            return None
        self._require(name, stored, self.shape(tensor)[1:])
        return name, stored

    def _order(self, tensor: str) -> Any:
        stem = tensor.removesuffix(".weight")
        groups = self.checkpoint.tensors.get(f"{stem}.g_idx")
        scales = self.checkpoint.tensors.get(f"{stem}.scales")
        if groups is None or scales is None:
            return None
        inputs = self.shape(tensor)[1]
        return order_of(f"{stem}.g_idx", groups, inputs, inputs // scales.shape[0])

    def _adapter(
        self, stem: str, tensors: Sequence[str], adapters: dict[str, Adapter], *, stacked: bool
    ) -> None:
        """The adapter of a weight, or of those that are stacked: zeros where one has none."""
        if not all(tensor.endswith(".weight") for tensor in tensors):
            return  # experts in one tensor have no adapters of this form
        found = [adapters.pop(tensor.removesuffix(".weight"), None) for tensor in tensors]
        there = [adapter for adapter in found if adapter is not None]
        if not there:
            return
        rows, inputs = self.shape(tensors[0])
        rank = there[0].first.shape[0]
        for adapter in there:
            self._require(adapter.names[0], adapter.first, (rank, inputs))
            self._require(adapter.names[1], adapter.second, (rows, rank))
        scale = np.array([there[0].scale], np.float32)
        self._add(f"{stem}.lora_scale", b"scale" + scale.tobytes(), lambda: ir.tensor(scale))
        for part, shape in (("first", (rank, inputs)), ("second", (rows, rank))):
            parts = [None if one is None else one.tensor(part) for one in found]
            tensor = _stack(parts, shape) if stacked else parts[0]
            assert tensor is not None
            key = f"{stem}.lora_{'a' if part == 'first' else 'b'}"
            self._keep(key, Float(tensor))

    def _require(self, name: str, stored: Stored, shape: tuple[int, ...]) -> None:
        if stored.shape != shape:
            raise BadInput(
                f"{stored.path}: the tensor '{name}' has the shape {list(stored.shape)} where the "
                f"weight it belongs to needs {list(shape)}; download the model again"
            )


def _stack(parts: Sequence[ir.TensorProtocol | None], shape: tuple[int, int]) -> ir.TensorProtocol:
    dtypes = {part.dtype for part in parts if part is not None}
    dtype = dtypes.pop() if len(dtypes) == 1 else ir.DataType.FLOAT

    def read() -> ir.TensorProtocol:
        array: Any = np.zeros((len(parts), *shape), dtype.numpy())
        for i, part in enumerate(parts):
            if part is not None:
                array[i] = part.numpy().astype(dtype.numpy())
        return ir.tensor(array, dtype=dtype)

    return ir.LazyTensor(read, dtype, ir.Shape((len(parts), *shape)))
