"""Putting what a rule built in the place of what it replaces, whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import onnx
import onnx_ir as ir

from rewriter.errors import RewriteError
from rewriter.extract import extract, follows, from_constants, leaves
from rewriter.facts import facts_of
from rewriter.nodes import attributes_of, constant, dims_of, op_of, opset_of, present
from rewriter.rule import Rule
from rewriter.schemas import schema_of
from rewriter.shapes import NodeInference, NoShape
from rewriter.site import Refusal, Site
from rewriter.tape import Tape, Workspace

RULE = "rewriter.rule"
SOURCE = "rewriter.source"
"""Keys of ``ir.Node.metadata_props``: the rule that made a node, and the node it stands for."""


class BadBuild(RewriteError):
    """A rule built something it did not declare, or that does not fit; a fault of the rule."""


def check_emitted(rule: Rule, tape: Tape, imports: Mapping[str, int]) -> None:
    """Whether everything on the tape was declared and exists at the model's opset.

    Raises:
        BadBuild: something was not, or does not.
    """
    whole = {emit.op for emit in rule.emits if str(emit.form) == "any"}
    for node in tape.nodes:
        op = op_of(node)
        if op not in whole:
            facts = facts_of(node, imports)
            if not any(emit.covers(facts) for emit in rule.emits):
                raise BadBuild(f"rule {rule.name} built {op}, which it does not declare")
        opset = opset_of(op, imports)
        if schema_of(op, opset).known or "::" in op:
            continue
        newest = onnx.defs.onnx_opset_version()
        raise BadBuild(
            f"rule {rule.name} built {op}, which opset {opset} does not have "
            f"(newest known: {newest})"
        )


class Commit:
    """A replacement that has been built and fits.

    Args:
        rule: the rule that built it.
        site: the node it replaces (the root, for a fusion).
        tape: what was built.
        outputs: values in the place of the node's outputs, in the schema's order.
        replaced: all matched nodes; those that something else still uses stay.

    Raises:
        Refusal: an output that is used was not produced, or is declared as what it is not.
        BadBuild: an output has another dtype than the one it replaces.
    """

    def __init__(
        self,
        rule: Rule,
        site: Site,
        tape: Tape,
        outputs: Sequence[ir.Value | None],
        replaced: Sequence[ir.Node],
    ) -> None:
        self.notes = tuple(tape.notes)
        self._rule = rule
        self._root = site.node
        self._tape = tape
        self._replaced = tuple(replaced)
        self._pairs: list[tuple[ir.Value, ir.Value]] = []
        schema = schema_of(op_of(site.node), site.facts.opset)
        for i, old in enumerate(site.node.outputs):
            if not present(old) or not (old.uses() or old.is_graph_output()):
                continue
            new = outputs[i] if i < len(outputs) else None
            if new is None:
                raise Refusal(f"output {schema.output_name(i)} is used and not produced")
            if old.dtype is not None and new.dtype != old.dtype:
                if _misdeclared(site, i):
                    raise Refusal(f"the model declares '{old.name}' as {old.dtype}, and it is not")
                raise BadBuild(
                    f"rule {rule.name} gives {new.dtype} where '{old.name}' is {old.dtype}"
                )
            self._pairs.append((old, new))

    def discard(self) -> None:
        """Leave the site alone after all."""
        self._tape.discard()

    @property
    def built(self) -> Sequence[ir.Node]:
        """The nodes that would come."""
        return self._tape.nodes

    @property
    def used(self) -> bool:
        """Whether anything uses what is replaced; a dead node has no parity to speak of."""
        return bool(self._pairs)

    def signature(self) -> str:
        """Equal for sites whose parity is the same question."""
        parts = [self._rule.name]
        for node in self._replaced:
            attributes = attributes_of(node, opset_of(op_of(node), {}))
            parts.append(f"{op_of(node)}{sorted((k, str(v)) for k, v in attributes.items())}")
            parts += [_described(value) for value in node.inputs]
        parts += [f"->{self._root.outputs.index(old)}" for old, _ in self._pairs]
        return " ".join(parts)

    def both_sides(self, model: ir.Model) -> tuple[ir.Model, ir.Model]:
        """The original and the replacement as models of the same inputs and outputs.

        They are cut at the inputs of the original nodes; where the replacement reaches further
        up (a table instead of what computes it), at what it reaches. What comes from constants
        alone is no input but computed, and so is what a few nodes make of the other inputs of a
        fusion.
        """
        inner = {value for node in self._replaced for value in node.outputs}
        boundary = {
            value
            for node in self._replaced
            for value in node.inputs
            if value is not None and present(value) and value not in inner
        }
        boundary -= {value for value in boundary if from_constants(value)}
        if len(self._replaced) > 1:  # a fusion may rest on how its inputs depend on each other
            boundary -= {value for value in boundary if follows(value, boundary - {value})}
        names = [old.name or f"output_{i}" for i, (old, _) in enumerate(self._pairs)]
        new = [value for _, value in self._pairs]
        if reached := leaves(new, boundary) - boundary:
            boundary = reached
        before = extract(model, [old for old, _ in self._pairs], names, boundary)
        return before, extract(model, new, names, boundary)

    def apply(self, space: Workspace, meta: Mapping[str, Any]) -> list[ir.Node]:
        """Edit the graph; returns the new nodes."""
        self._place_constants(space.graph)
        self._label(meta)
        self._root_insert(space.graph)
        identities = self._redirect(space)
        self._tape.keep()
        self._remove(space.graph)
        return [*self._tape.nodes, *identities]

    def _place_constants(self, graph: ir.Graph | ir.Function) -> None:
        for value in self._tape.constants:
            if isinstance(graph, ir.Graph):
                graph.register_initializer(value)
                continue
            attribute = ir.Attr("value", ir.AttributeType.TENSOR, value.const_value)
            node = ir.Node("", "Constant", [], [attribute], name=value.name, num_outputs=1)
            output = node.outputs[0]
            output.name, output.type, output.shape = value.name, value.type, value.shape
            value.replace_all_uses_with(output)
            self._tape.nodes.insert(0, node)

    def _label(self, meta: Mapping[str, Any]) -> None:
        source = self._root
        inherited = {k: v for n in reversed(self._replaced) for k, v in n.metadata_props.items()}
        for node in self._tape.nodes:
            node.doc_string = source.doc_string
            node.metadata_props.update(inherited)
            node.metadata_props[RULE] = self._rule.name
            node.metadata_props.setdefault(SOURCE, source.name or op_of(source))
            node.meta.update(source.meta)
            node.meta.update(meta)

    def _root_insert(self, graph: ir.Graph | ir.Function) -> None:
        graph.insert_before(self._root, self._tape.nodes)

    def _redirect(self, space: Workspace) -> list[ir.Node]:
        """Hand every output's uses, and its name, to the value that replaces it."""
        built = set(self._tape.nodes)
        taken: set[ir.Value] = set()
        identities: list[ir.Node] = []
        for old, new in self._pairs:
            replacement = new
            ours = new.producer() in built and new not in taken and not new.is_graph_output()
            if old.is_graph_output() and not ours:
                node = ir.Node("", "Identity", [new], num_outputs=1)
                node.name = space.unique(f"{self._root.name}/Identity")
                node.metadata_props[RULE] = self._rule.name
                space.graph.insert_before(self._root, node)
                identities.append(node)
                replacement, ours = node.outputs[0], True
                replacement.type, replacement.shape = new.type, new.shape
            if ours:
                self._inherit(old, replacement)
            taken.add(replacement)
            old.replace_all_uses_with(replacement, replace_graph_outputs=True)
        return identities

    @staticmethod
    def _inherit(old: ir.Value, new: ir.Value) -> None:
        name, old.name = old.name, None
        new.name = name
        new.doc_string = old.doc_string
        new.metadata_props.update(old.metadata_props)
        if old.is_graph_output() and old.shape is not None:
            new.shape = old.shape

    def _remove(self, graph: ir.Graph | ir.Function) -> None:
        going: set[ir.Node] = set()
        for node in reversed(self._replaced):
            users = {user for value in node.outputs for user in value.consumers()}
            if users <= going and not any(value.is_graph_output() for value in node.outputs):
                going.add(node)
        if going:  # at once: onnx_ir goes through all outputs of the graph each time
            graph.remove(going, safe=True)


def _misdeclared(site: Site, index: int) -> bool:
    """Whether the file says of an output what the op itself contradicts."""
    node = site.node
    inputs = [
        None if v is None else ir.Value(name=v.name, type=v.type, shape=v.shape)
        for v in node.inputs
    ]
    outputs = len(node.outputs)
    alone = ir.Node(
        node.domain, node.op_type, inputs, node.attributes.values(), num_outputs=outputs
    )
    for copy, output in zip(alone.outputs, node.outputs, strict=True):
        copy.name = output.name
    with suppress(NoShape):  # outputs that nobody asked for may get none
        NodeInference({"": site.opset, node.domain: site.facts.opset})(alone)
    return alone.outputs[index].dtype not in {None, node.outputs[index].dtype}


def _described(value: ir.Value | None) -> str:
    if value is None or not present(value):
        return "-"
    dtype = "?" if value.dtype is None else value.dtype.name.lower()
    kind = "const" if constant(value) is not None else "run-time"
    return f"{dtype}{dims_of(value)}{kind}"
