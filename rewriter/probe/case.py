"""Cases: the forms of an op that are measured, each a small model that is built when it is asked.

A module of :mod:`rewriter.probe.cases` registers a generator for an op::

    @cases("Softmax")
    def softmax(form: Forms) -> Iterator[Case]:
        for dtype in FLOATS:
            yield form("last axis", dtype, run(2, 4, 8), axis=-1, quick=True)

What a case is about is read off its model (:mod:`rewriter.facts`): no row is named here.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import onnx_ir as ir

from capabilities import Facts, Target
from rewriter.facts import facts_of
from rewriter.nodes import constant, op_of, opset_of
from rewriter.parity.domains import DOMAINS
from rewriter.probe import cases as modules
from rewriter.probe.graph import Given, Graph
from rewriter.probe.operands import Array
from rewriter.schemas import schema_of

FLOATS = ("f32", "f16")
INTEGERS = ("int32", "int64", "int8", "uint8")
_NAME = re.compile(r"P/[\w:.]+\|[^|;\t\n]+\|\w+")
OPSET = 21
"""Of ai.onnx, unless a case says another: the highest that all measured runtimes read."""

Outputs = ir.Value | Sequence[ir.Value]
Formula = Callable[[Mapping[str, Array]], Mapping[str, Array]]
"""From the feeds to the outputs, both by name (``x1``, ``y1``, ... in the order of the graph)."""


@dataclass(frozen=True, slots=True)
class Built:
    """The model of a case, what it is fed, and the node that it is about.

    ``outside`` says that the model's constants are written to a file beside it; ``options`` are
    the provider's.
    """

    model: ir.Model
    feeds: Mapping[str, Array]
    unit: ir.Node
    outside: bool
    options: Mapping[str, str]

    def facts(self, target: Target, node: ir.Node | None = None) -> Facts:
        """What the table is asked about the unit, or about another node."""
        facts = facts_of(node or self.unit, self.model.opset_imports, target)
        facts = replace(facts, options={**facts.options, **self.options})
        if not self.outside:
            return facts
        stored = {name: replace(one, outside=one.const) for name, one in facts.inputs.items()}
        return replace(facts, inputs=stored)

    def save(self, file: Path) -> None:
        """Write the model, its constants where the case has them."""
        if self.outside:
            ir.save(self.model, file, external_data=f"{file.name}.data", size_threshold_bytes=0)
        else:
            ir.save(self.model, file)

    def digest(self) -> str:
        """Of the model and what it is fed: a result holds for a case as long as this stays."""
        model = ir.to_proto(self.model).SerializeToString(deterministic=True)
        fed = b"".join(array.tobytes() for array in self.feeds.values())
        return f"{crc32(fed, crc32(model)):08x}"

    def defined(self, name: str, array: Array) -> Array:
        """The part of an output that the op defines (:mod:`rewriter.parity.domains`)."""
        op = op_of(self.unit)
        outputs = [value.name for value in self.unit.outputs]
        if op not in DOMAINS or name not in outputs:
            return array
        schema = schema_of(op, opset_of(op, self.model.opset_imports))
        given: dict[str, Array] = {}
        for i, operand in enumerate(self.unit.inputs):
            stored = constant(operand)
            if stored is not None:
                given[schema.input_name(i)] = stored.numpy()
            elif operand is not None and (name_fed := operand.name or "") in self.feeds:
                given[schema.input_name(i)] = self.feeds[name_fed]
        for attribute in self.unit.attributes.values():
            if attribute.type == ir.AttributeType.INT and attribute.as_int():
                given[attribute.name] = np.array(attribute.as_int())
        return DOMAINS[op].defined(schema.output_name(outputs.index(name)), array, given)


@dataclass(frozen=True, slots=True)
class Case:
    """One form of an op in one type.

    Attributes:
        op: ``domain::Type``; the case is about a node of it, the last one if not said otherwise.
        what: which form, in words; with the type it is unique for the op.
        dtype: the record's word for the type, such as ``f32``.
        build: adds nodes to a graph and returns what its outputs are.
        opset: of ai.onnx.
        quick: it decides a row of the newest version, so ``--quick`` runs it.
        reference: None for ONNX Runtime's CPU without optimizations.
        eps: the only EPs it is run on; empty for all.
        options: provider options; one that begins with ``{`` is the content of a file of JSON,
            whose path the provider gets.
        unit: which node of the op it is about.
        outside: constants are stored in a file beside the model's.
    """

    op: str
    what: str
    dtype: str
    build: Callable[[Graph], Outputs]
    opset: int = OPSET
    quick: bool = False
    reference: Formula | None = None
    eps: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    unit: int = -1
    outside: bool = False

    @property
    def name(self) -> str:
        """Of its record."""
        return f"P/{self.op}|{self.what}|{self.dtype}"

    def built(self) -> Built:
        """The model; the same numbers whenever and wherever it is built."""
        graph = Graph(self.dtype, self.opset, np.random.default_rng(crc32(self.name.encode())))
        outputs = self.build(graph)
        model = graph.model([outputs] if isinstance(outputs, ir.Value) else outputs)
        unit = [node for node in model.graph if op_of(node) == self.op][self.unit]
        return Built(model, graph.feeds, unit, self.outside, self.options)


@dataclass(frozen=True, slots=True)
class Forms:
    """What a generator of cases makes them with: it knows the op."""

    op: str

    def __call__(
        self,
        what: str,
        dtype: str,
        /,
        *operands: Given,
        outputs: int = 1,
        opset: int = OPSET,
        quick: bool = False,
        reference: Formula | None = None,
        eps: tuple[str, ...] = (),
        options: Mapping[str, str] | None = None,
        **attributes: Any,
    ) -> Case:
        """A case of the node alone, all its operands inputs or constants of the graph."""

        def build(graph: Graph) -> Outputs:
            return graph.ops(self.op, operands, attributes, outputs)

        return Case(self.op, what, dtype, build, opset, quick, reference, eps, dict(options or {}))

    def graph(
        self, what: str, dtype: str, build: Callable[[Graph], Outputs], /, **settings: Any
    ) -> Case:
        """A case of a node among others; ``settings`` are fields of :class:`Case`."""
        return Case(self.op, what, dtype, build, **settings)


Maker = Callable[[Forms], Iterator[Case]]
_MAKERS: list[tuple[str, Maker]] = []


def cases(*ops: str) -> Callable[[Maker], Maker]:
    """Register a generator for each of some ops."""

    def register(make: Maker) -> Maker:
        _MAKERS.extend((op, make) for op in ops)
        return make

    return register


@cache
def every_case() -> tuple[Case, ...]:
    """All cases, sorted by name.

    Raises:
        ValueError: two have the same name, or one that the table's files cannot hold.
    """
    for module in pkgutil.iter_modules(modules.__path__):
        import_module(f"{modules.__name__}.{module.name}")
    found: dict[str, Case] = {}
    for op, make in _MAKERS:
        for case in make(Forms(op)):
            if case.name in found:
                raise ValueError(f"two cases are called {case.name}")
            if not _NAME.fullmatch(case.name):
                raise ValueError(f"{case.name!r} cannot be the name of a record")
            found[case.name] = case
    return tuple(found[name] for name in sorted(found))


def chosen(ep: str, *, quick: bool, op: str = "") -> list[Case]:
    """The cases of an EP; ``op`` is the type of an op, with or without its domain."""
    return [
        case
        for case in every_case()
        if (not case.eps or ep in case.eps)
        and (case.quick or not quick)
        and (not op or op in {case.op, case.op.rpartition("::")[2]})
    ]
