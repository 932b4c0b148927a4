"""The tape a rule builds on: nodes and constants that leave no trace until they are committed."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from rewriter.graphs import graphs_inside
from rewriter.schemas import split_op
from rewriter.shapes import NodeInference
from rewriter.site import Refusal

T = TypeVar("T")


class Workspace:
    """What the sites of one graph share during a run: names, equal constants, common values.

    ``masked`` is the mask value that was asked for, if one was.
    """

    def __init__(
        self, graph: ir.Graph | ir.Function, names: set[str], masked: float | None = None
    ) -> None:
        self.graph = graph
        self.names = names
        self.masked = masked
        self.constants: dict[Hashable, ir.Value] = {}
        self.shared: dict[Hashable, Any] = {}

    def unique(self, name: str) -> str:
        """The name, or the name with the first number that makes it unique; it is taken then."""
        candidate, count = name, 0
        while candidate in self.names:
            count += 1
            candidate = f"{name}_{count}"
        self.names.add(candidate)
        return candidate


def names_in(graph: ir.Graph | ir.Function) -> set[str]:
    """Every name of a node or value in a graph and the graphs inside it."""
    names: set[str | None] = set()
    for body in (graph, *graphs_inside(graph)):
        names.update(value.name for value in body.inputs)
        if isinstance(body, ir.Graph):
            names.update(body.initializers)
        for node in body:
            names.add(node.name)
            names.update([value.name for value in node.outputs])
    return {name for name in names if name}


class Tape:
    """Records the replacement of one site.

    ``op.Add(a, b)`` builds a node of ai.onnx with one output; :meth:`ms` one of com.microsoft;
    :meth:`emit` any node. Every value carries dtype and shape at once.
    """

    def __init__(self, space: Workspace, site_name: str, imports: Mapping[str, int]) -> None:
        self.nodes: list[ir.Node] = []
        self.constants: list[ir.Value] = []
        self.notes: list[str] = []
        self._space = space
        self._infer = NodeInference(imports)
        self._site = site_name
        self._parts: Counter[str] = Counter()
        self._new_constants: dict[Hashable, ir.Value] = {}
        self._new_shared: dict[Hashable, Any] = {}
        self._taken: list[str] = []

    @property
    def masked(self) -> float | None:
        """The mask value that was asked for; ``None`` where rules use their own."""
        return self._space.masked

    def __getattr__(self, op_type: str) -> Callable[..., ir.Value]:
        if not op_type[:1].isupper():
            raise AttributeError(op_type)

        def build(*inputs: ir.Value | None, **attributes: Any) -> ir.Value:
            return self.emit(op_type, inputs, attributes)[0]

        return build

    def ms(self, op_type: str, *inputs: ir.Value | None, **attributes: Any) -> ir.Value:
        """A node of com.microsoft with one output."""
        return self.emit(f"com.microsoft::{op_type}", inputs, attributes)[0]

    def emit(
        self,
        op: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, Any] | None = None,
        outputs: int = 1,
    ) -> tuple[ir.Value, ...]:
        """A node of any domain, with any number of outputs."""
        domain, op_type = split_op(op)
        attrs = [
            ir.convenience.convert_attribute(k, v)
            for k, v in (attributes or {}).items()
            if v is not None
        ]
        name = self._name(op_type)
        node = ir.Node(domain, op_type, inputs, attrs, num_outputs=outputs, name=name)
        self.nodes.append(node)
        for i, value in enumerate(node.outputs):
            value.name = name if outputs == 1 else self._take(f"{name}/{i}")
        for given in node.inputs:
            if given is not None and (given.dtype is None or given.shape is None):
                raise Refusal(f"the type or shape of '{given.name}' is not known")
        self._infer(node)
        return tuple(node.outputs)

    def const(
        self, array: npt.ArrayLike, dtype: ir.DataType | None = None, name: str = "const"
    ) -> ir.Value:
        """A constant; equal constants of a graph are stored once."""
        data = np.asarray(array)
        tensor = ir.tensor(data if dtype is None else data.astype(dtype.numpy()), dtype=dtype)
        digest = hashlib.sha256(tensor.tobytes()).digest()
        return self._constant((tensor.dtype, tuple(tensor.shape), digest), tensor, name)

    def weight(self, key: Hashable, tensor: ir.TensorProtocol, name: str) -> ir.Value:
        """A constant that is stored once for a key, and not read before it is saved."""
        return self._constant(key, tensor, name)

    def note(self, sentence: str) -> None:
        """Something the person should know of this site; equal sentences are reported once."""
        self.notes.append(sentence)

    def once(self, key: Hashable, build: Callable[[], T]) -> T:
        """What the sites of a graph share: built by the first, reused by the others."""
        for shared in (self._space.shared, self._new_shared):
            if key in shared:
                found: T = shared[key]
                return found
        value = self._new_shared[key] = build()
        return value

    def _constant(self, key: Hashable, tensor: ir.TensorProtocol, name: str) -> ir.Value:
        known = self._space.constants.get(key) or self._new_constants.get(key)
        if known is not None:
            return known
        value = ir.Value(
            name=self._name(name),
            shape=ir.Shape(tensor.shape.numpy()),
            type=ir.TensorType(tensor.dtype),
            const_value=tensor,
        )
        tensor.name = value.name
        self._new_constants[key] = value
        self.constants.append(value)
        return value

    def _name(self, part: str) -> str:
        count = self._parts[part]
        self._parts[part] += 1
        return self._take(f"{self._site}/{part}" + (f"_{count}" if count else ""))

    def _take(self, name: str) -> str:
        unique = self._space.unique(name)
        self._taken.append(unique)
        return unique

    def discard(self) -> None:
        """Undo everything: names, uses of values, shared values."""
        for node in reversed(self.nodes):
            for i in range(len(node.inputs)):
                node.replace_input_with(i, None)
        self._space.names.difference_update(self._taken)
        self.nodes.clear()
        self.constants.clear()

    def keep(self) -> None:
        """Let later sites share what this one built."""
        self._space.constants.update(self._new_constants)
        self._space.shared.update(self._new_shared)
