"""The weights of a checkpoint by the builder's names, each read while it is written.

As in GGUF files, floats keep their type: a graph holds float16 and bfloat16 as they are stored,
and computes in float32. Only norms whose weights are shifted become float32.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from frontends.decoder.kinds import Kept, kinds_of
from frontends.decoder.requantize import Kind, Loss, requantized
from frontends.decoder.rows import gathered
from frontends.decoder.weights import Float, Quantized, Weight
from frontends.safetensors.assembled import StoredTensor, shifted, stacked, turned
from frontends.safetensors.beside import Beside, of_input
from frontends.safetensors.folder import Checkpoint
from frontends.safetensors.names import HEAD, TIED, Names, Origin
from frontends.safetensors.quantized import Packed
from rewriter.errors import BadInput
from rewriter.source import WeightKind

_KEPT = ("ffn_gate_inp", "per_layer_model_proj")
"""Weights that are never made smaller, as in GGUF files."""


class CheckpointWeights:
    """Weights by name, of the protocol ``frontends.decoder.weights.Weights``.

    Args:
        checkpoint: opened.
        names: of its weights.
        packed: those that are quantized.
        shift: what norms add to their weights.
        kind: ``int4``, ``int8`` or ``fp16`` to make larger ones smaller, at a loss.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        names: Names,
        packed: Mapping[str, Packed],
        shift: float = 0.0,
        kind: Kind = "exact",
    ) -> None:
        self._checkpoint, self._names, self._packed = checkpoint, names, packed
        self._shift = shift
        self._kind: Kind = kind
        self._asked: dict[str, tuple[Weight, Loss]] = {}
        self._made: dict[str, Weight] = {}
        self._same_head: bool | None = None
        self._beside = Beside(
            checkpoint, names, self._shape_of, self._tensor, self._packed.__contains__
        )

    def __contains__(self, name: str) -> bool:
        if name == HEAD and name in self._names.origins:
            if self._same_head is None:
                adapted = any(one.startswith("output.") for one in self._beside.weights)
                self._same_head = not adapted and self._same(HEAD, TIED)
            return not self._same_head
        return name in self._names.origins or name in self._beside.weights

    def __getitem__(self, name: str) -> Weight:
        """A weight; asking again gives the same one.

        Raises:
            BadInput: there is none of that name, or its type cannot be read.
        """
        if name in self._beside.weights:
            return self._beside.weight(name)
        if name not in self._asked:
            origin = self._names.origins.get(name)
            if origin is None:
                raise self.missing(name)
            weight = self._weight(name, origin)
            kept = any(part in name for part in _KEPT)
            self._asked[name] = requantized(weight, "exact" if kept else self._kind)
        return self._asked[name][0]

    def missing(self, name: str, tensor: str = "") -> BadInput:
        """What to raise where there is no weight of a name, or not all tensors of it."""
        return BadInput(
            f"{self._checkpoint.folder}: has no tensor '{tensor or self._names.called(name)}', "
            "which its architecture needs; download the model again"
        )

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a weight that there is, without asking for it."""
        origin = self._names.origins[name]
        shape = self._shape_of(origin.tensors[0])
        if origin.part.turned and origin.tensors[0] not in self._packed and len(shape) == 3:
            shape = (shape[0], shape[2], shape[1])
        if origin.part.step > 1:
            at = 1  # after the experts, of a weight or of its bias
            rows = len(range(origin.part.start, shape[at], origin.part.step))
            shape = (*shape[:at], rows, *shape[at + 1 :])
        return (len(origin.tensors), *shape) if origin.numbers else shape

    def kinds(self) -> list[WeightKind]:
        """What became of those asked for, by type and form."""
        return kinds_of([*self._kept(), *self._kept_beside()])

    def _kept(self) -> Iterator[Kept]:
        for name, (weight, loss) in self._asked.items():
            origin = self._names.origins[name]
            bytes_in = sum(self._nbytes(tensor) for tensor in origin.tensors) // origin.part.step
            yield Kept(
                self._type(origin), _described(weight), bytes_in, _nbytes(weight), loss.value
            )

    def _kept_beside(self) -> Iterator[Kept]:
        for kind, tensor in self._beside.asked():
            size = int(tensor.nbytes)
            yield Kept(kind, tensor.dtype.name.lower(), size, size, 0.0)

    def _weight(self, name: str, origin: Origin) -> Weight:
        weight: Weight
        if origin.numbers:
            parts = [self._tensor(tensor) for tensor in self._alike(name, origin.tensors)]
            weight = stacked(parts, lambda: self._unequal(origin.tensors))
        else:
            weight = self._tensor(origin.tensors[0])
        part = origin.part
        if part.turned and isinstance(weight, Float) and len(weight.shape) == 3:
            weight = Float(turned(weight.tensor))
        if part.step > 1:
            weight = _every(weight, part.start, part.step)
        if self._shift and "norm" in name and isinstance(weight, Float):
            weight = Float(shifted(weight.tensor, self._shift))
        return weight

    def _alike(self, name: str, tensors: Sequence[str]) -> Sequence[str]:
        """Those that are stacked; in the place of one that is a weight of its own, another one."""
        alone = self._beside.alone.get(name)
        if not alone:
            return tensors
        usual = next(tensor for i, tensor in enumerate(tensors) if i not in alone)
        return [usual if i in alone else tensor for i, tensor in enumerate(tensors)]

    def _tensor(self, name: str) -> Weight:
        if name not in self._made:
            packed = self._packed.get(name)
            self._made[name] = (
                Float(StoredTensor(name, self._checkpoint.tensors[name]))
                if packed is None
                else packed.weight()
            )
        return self._made[name]

    def _shape_of(self, name: str) -> tuple[int, ...]:
        packed = self._packed.get(name)
        return self._checkpoint.tensors[name].shape if packed is None else packed.shape

    def _nbytes(self, name: str) -> int:
        packed = self._packed.get(name)
        names: Sequence[str] = (name,) if packed is None else packed.tensors
        return sum(self._checkpoint.tensors[one].nbytes for one in names if not of_input(one))

    def _type(self, origin: Origin) -> str:
        packed = self._packed.get(origin.tensors[0])
        if packed is not None:
            return packed.method
        return self._checkpoint.tensors[origin.tensors[0]].dtype

    def _unequal(self, tensors: Sequence[str]) -> BadInput:
        return BadInput(
            f"{self._checkpoint.folder}: the tensors '{tensors[0]}' to '{tensors[-1]}' are of "
            "several shapes or forms, and one weight is made of them; download the model again"
        )

    def _same(self, one: str, other: str) -> bool:
        """Whether two weights are equal byte by byte."""
        names = [self._names.origins[name].tensors[0] for name in (one, other)]
        if any(name in self._packed for name in names):
            return False
        first, second = (self._checkpoint.tensors[name] for name in names)
        if (first.dtype, first.shape) != (second.dtype, second.shape):
            return False
        left, right = first.rows(), second.rows()
        step = max(1, (1 << 24) // max(left.shape[1], 1))
        return all(
            np.array_equal(left[i : i + step], right[i : i + step])
            for i in range(0, len(left), step)
        )


def _every(weight: Weight, start: int, step: int) -> Weight:
    """Rows of every expert, or numbers of its bias (E, N)."""
    if len(weight.shape) == 3:
        return gathered(weight, np.arange(start, weight.shape[1], step, dtype=np.intp))
    assert isinstance(weight, Float)
    tensor = weight.tensor

    def read() -> ir.TensorProtocol:
        array: Any = np.ascontiguousarray(tensor.numpy()[:, start::step])
        return ir.Tensor(array, dtype=tensor.dtype)

    count, rows = weight.shape
    shape = ir.Shape((count, len(range(start, rows, step))))
    return Float(ir.LazyTensor(read, tensor.dtype, shape))


def _nbytes(weight: Weight) -> int:
    if isinstance(weight, Float):
        return int(weight.tensor.nbytes)
    tensors = (weight.codes, weight.scales, weight.minimums, weight.zeros)
    return sum(int(tensor.nbytes) for tensor in tensors if tensor is not None)


def _described(weight: Weight) -> str:
    """What a weight is now, in words."""
    if isinstance(weight, Quantized):
        more = " and minimums" if weight.minimums is not None else ""
        more = " and zero points" if weight.zeros is not None else more
        return f"{weight.bits} bits, blocks of {weight.block} with scales{more}"
    return weight.tensor.dtype.name.lower()
