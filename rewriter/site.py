"""What a rule sees of the place it is asked about.

Every input and attribute that a rule reads is noted. What is given on the node, differs from the
schema's default and was not read makes the engine refuse the site by name: nothing is ignored by
omission. A rule that may ignore something says so with :meth:`Site.ignore`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NoReturn, cast

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from capabilities import Facts
from rewriter.facts import facts_of
from rewriter.nodes import attributes_of, constant, op_of, opset_of, present
from rewriter.schemas import schema_of


class Refusal(Exception):
    """A rule does not take this site; the message is the reason a person reads."""


class Site:
    """A node with typed access to its inputs and attributes.

    Attributes:
        node: the node itself; read it through the methods, so that reading is noted.
        facts: what the table was asked about.
        opset: version of ai.onnx in the model.
        others: the other nodes of a fusion's pattern, by the name the pattern gives their output.
        bound: values of a fusion's pattern, by name.
    """

    def __init__(
        self,
        node: ir.Node,
        imports: Mapping[str, int],
        *,
        facts: Facts | None = None,
        matched: Collection[ir.Value] = (),
        others: Mapping[str, Site] | None = None,
        bound: Mapping[str, ir.Value] | None = None,
    ) -> None:
        self.node = node
        self.facts = facts or facts_of(node, imports)
        self.opset = opset_of("", imports)
        self.others = others or {}
        self.bound = bound or {}
        self._schema = schema_of(op_of(node), self.facts.opset)
        self._attributes = attributes_of(node, self.facts.opset)
        self._read = {
            self._schema.input_name(i) for i, value in enumerate(node.inputs) if value in matched
        }

    def refuse(self, reason: str) -> NoReturn:
        """Leave the node alone, for a reason."""
        raise Refusal(reason)

    def require(self, condition: bool, reason: str) -> None:
        """Refuse unless a condition holds; the reason says what does not."""
        if not condition:
            raise Refusal(reason)

    # -- inputs and outputs ------------------------------------------------------------------

    def optional(self, name: str) -> ir.Value | None:
        """An optional input, by the schema's name; refuses where its type is not known."""
        self._read.add(name)
        for i, value in enumerate(self.node.inputs):
            if self._schema.input_name(i) == name and value is not None and present(value):
                self.require(value.dtype is not None, f"the type of {name} is not known")
                return value
        return None

    def input(self, name: str) -> ir.Value:
        """An input that has to be there."""
        value = self.optional(name)
        if value is None:
            raise Refusal(f"input {name} is missing")
        return value

    def wants(self, name: str) -> bool:
        """Whether an output is used, by the schema's name."""
        return any(
            self._schema.output_name(i) == name and (value.uses() or value.is_graph_output())
            for i, value in enumerate(self.node.outputs)
        )

    # -- attributes, schema defaults applied ---------------------------------------------------

    def attribute(self, name: str) -> Any:
        """Value of an attribute; ``None`` if it is not given and has no default."""
        self._read.add(name)
        given = self.node.attributes.get(name)
        if given is not None and given.is_ref():
            raise Refusal(f"attribute {name} is a parameter of the function around it")
        return self._attributes.get(name)

    def integer(self, name: str, default: int | None = None) -> int:
        """An integer attribute."""
        return cast("int", self._needed(name, default))

    def number(self, name: str, default: float | None = None) -> float:
        """A float attribute."""
        return cast("float", self._needed(name, default))

    def _needed(self, name: str, default: Any) -> Any:
        value = self.attribute(name)
        if value is None:
            value = default
        if value is None:
            raise Refusal(f"attribute {name} is missing")
        return value

    def ignore(self, *names: str) -> None:
        """Name inputs or attributes that do not change the function."""
        self._read.update(names)

    def unread(self) -> list[str]:
        """Given inputs and non-default attributes that the rule did not look at."""
        inputs = [name for name in self.facts.inputs if name not in self._read]
        defaults = self._schema.attributes
        attributes = [
            f"{name}={attribute.value}"
            for name, attribute in self.node.attributes.items()
            if name not in self._read
            and (attribute.is_ref() or attribute.value != defaults.get(name))
        ]
        return inputs + attributes

    # -- values --------------------------------------------------------------------------------

    def rank(self, value: ir.Value, what: str) -> int:
        """Number of dims of a value, or a refusal that names it."""
        if value.shape is None:
            raise Refusal(f"the rank of {what} is not known")
        return len(value.shape)

    def shape(self, value: ir.Value, what: str) -> tuple[int, ...]:
        """Static dims of a value, or a refusal that names it."""
        if value.shape is None:
            raise Refusal(f"the shape of {what} is not known")
        dims = tuple(value.shape)
        if not all(isinstance(d, int) for d in dims):
            raise Refusal(f"{what} has a dim that is not fixed: {value.shape}")
        return cast("tuple[int, ...]", dims)

    def constant(self, value: ir.Value, what: str) -> npt.NDArray[Any]:
        """Content of a constant, or a refusal that names it."""
        stored = constant(value)
        if stored is None:
            raise Refusal(f"{what} is not a constant")
        return np.asarray(stored.numpy())

    def stored(self, value: ir.Value, what: str) -> ir.TensorProtocol:
        """The tensor of a constant without reading it, or a refusal that names it."""
        stored = constant(value)
        if stored is None:
            raise Refusal(f"{what} is not a constant")
        return stored
