"""What a report says of parts: where they are cut, and how large they are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from rewriter.cost import weight_bytes
from rewriter.nodes import dims_of
from rewriter.split.parts import WHOLE_NAME, Name, Part


@dataclass(frozen=True, slots=True)
class Handed:
    """A value that one part computes and another reads.

    Attributes:
        name: in the parts.
        whole: its name in the whole graph.
        dtype: as ONNX writes it.
        shape: symbols where a dim is none.
        bytes: of one value; nothing if a dim is not a number.
    """

    name: str
    whole: str
    dtype: str
    shape: tuple[int | str | None, ...]
    bytes: int | None


@dataclass(frozen=True, slots=True)
class Cut:
    """One part.

    Attributes:
        name: what it holds of the whole.
        nodes: how many.
        weights: bytes of its constants; what two parts need counts in both.
        reads: what it is handed by parts before it.
        hands: what it hands to parts after it.
        inputs: inputs of the whole that it reads.
        outputs: outputs of the whole that it computes.
    """

    name: Name
    nodes: int
    weights: int
    reads: Sequence[Handed]
    hands: Sequence[Handed]
    inputs: Sequence[str]
    outputs: Sequence[str]


def cut_at(parts: Sequence[Part], model: ir.Model) -> list[Cut]:
    """Where parts are cut.

    Args:
        parts: in the order they run.
        model: the whole.
    """
    given = {v.name for v in model.graph.inputs}
    wanted = {v.name for v in model.graph.outputs}
    later: list[set[str | None]] = [set()]
    for part in reversed(parts):
        later.append(later[-1] | {v.name for v in part.model.graph.inputs})
    return [
        Cut(
            name=part.name,
            nodes=sum(1 for _ in part.model.graph),
            weights=weight_bytes(part.model),
            reads=_handed(v for v in part.model.graph.inputs if v.name not in given),
            hands=_handed(v for v in part.model.graph.outputs if v.name in needed),
            inputs=[str(v.name) for v in part.model.graph.inputs if v.name in given],
            outputs=[str(v.name) for v in part.model.graph.outputs if v.name in wanted],
        )
        for part, needed in zip(parts, later[-2::-1], strict=True)
    ]


def _handed(values: Iterable[ir.Value]) -> list[Handed]:
    return [
        Handed(
            name=str(v.name),
            whole=v.metadata_props.get(WHOLE_NAME, str(v.name)),
            dtype="" if v.dtype is None else v.dtype.name.lower(),
            shape=tuple(d if isinstance(d, int) else d.value for d in v.shape or ()),
            bytes=_size(v),
        )
        for v in values
    ]


def _size(value: ir.Value) -> int | None:
    dims = dims_of(value)
    if dims is None or None in dims or value.dtype is None:
        return None
    return math.ceil(math.prod(d for d in dims if d is not None) * value.dtype.itemsize)
