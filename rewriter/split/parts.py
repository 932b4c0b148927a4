"""A model cut into models that run one after the other and compute the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import onnx_ir as ir

from rewriter.cache_layout import CacheLayout, cache_layout, forget
from rewriter.errors import BadInput
from rewriter.split.balance import balance, require_layers
from rewriter.split.flow import Flow, captured, inner_nodes, walk
from rewriter.split.stages import Stages, stages
from rewriter.split.trunk import Trunk, trunk
from rewriter.split.twins import without_twins

Name = Literal["embedding", "layers", "head"]

WHOLE_NAME = "rewriter.value"
"""Key of an interface value's metadata: its name in the whole graph."""


@dataclass(frozen=True, slots=True)
class Part:
    """One model of several.

    Attributes:
        name: what it holds of the whole.
        model: its constants are those of the whole, stored where they are.
    """

    name: Name
    model: ir.Model


def foresee(model: ir.Model, parts: int) -> None:
    """Before a model is lowered: whether it will have layers for so many parts, as far as is known.

    Fused ops and missing types may hide its layers, and then nothing is said: :func:`split` will.

    Raises:
        BadInput: its layers are fewer.
    """
    flow = Flow(model)
    try:
        count = stages(flow, trunk(flow)).layers
    except BadInput:
        return
    require_layers(count, parts)


def split(model: ir.Model, parts: int | None) -> list[Part]:
    """Cut a transformer between layers.

    Args:
        model: left as it is; its weights are not read.
        parts: parts for the layers, beside one for the embedding and one for the head; ``None``
            for as few as keep each at most :data:`rewriter.split.balance.LIMIT` bytes of weights.

    Returns:
        The parts in the order they run: an embedding, unless the model is given embedded tokens;
        layers; a head, unless the last layer computes the outputs.

    Raises:
        BadInput: the layers cannot be told apart, or are fewer than the parts.
    """
    flow = Flow(without_twins(model))
    found = trunk(flow)
    staged = stages(flow, found)
    layers = [
        flow.stored(i for i, stage in staged.of.items() if stage == k + 1)
        for k in range(staged.layers)
    ]
    runs: list[tuple[Name, range]] = [
        ("layers", range(run.start + 1, run.stop + 1)) for run in balance(layers, parts)
    ]
    head = staged.layers + 1
    kinds: list[tuple[Name, range]] = [
        ("embedding", range(1)),
        *runs,
        ("head", range(head, head + 1)),
    ]
    kinds = [kind for kind in kinds if any(stage in kind[1] for stage in staged.of.values())]
    cut = _Cut(flow, found, staged, [run for _, run in kinds])
    made = [Part(name, cut.part(k)) for k, (name, _) in enumerate(kinds)]
    for part in made:
        _note_caches(part)
    return made


def _note_caches(part: Part) -> None:
    """Caches are in the layers; what is noted of them is of those that a part has."""
    layout = cache_layout(part.model, part.name)
    forget(part.model)
    if layout is not None and part.name == "layers":
        inputs = {v.name for v in part.model.graph.inputs}
        windows = {name: rows for name, rows in layout.windows.items() if name in inputs}
        CacheLayout(layout.alignment, windows).note(part.model)


class _Cut:
    """Which part computes what, and what parts hand on."""

    def __init__(self, flow: Flow, found: Trunk, staged: Stages, runs: Sequence[range]) -> None:
        self._flow = flow
        self._of = {
            i: next(k for k, run in enumerate(runs) if stage in run)
            for i, stage in staged.of.items()
        }
        self._count = len(runs)
        self._needed = [self._closure(k) for k in range(self._count)]
        self._given = [self._incoming(k) for k in range(self._count)]
        self._names = self._named(found)

    def part(self, k: int) -> ir.Model:
        """One part as a model."""
        graph = self._flow.model.graph
        outputs = [v for v in self._passed(k) if not v.is_graph_output()]
        outputs += [v for v in graph.outputs if self._home(v) == k]
        return _induced(self._flow, self._needed[k], self._given[k], outputs, self._names)

    def _closure(self, k: int) -> set[int]:
        """The nodes of a part, and what it computes again."""
        own = {i for i, part in self._of.items() if part == k}
        own |= {
            i
            for v in self._flow.model.graph.outputs
            if (i := self._loose(v)) is not None and self._home(v) == k
        }

        def above(i: int) -> Iterable[int]:
            return [j for j in self._flow.makers(i) if j not in self._of]

        return walk(own, above)

    def _loose(self, value: ir.Value) -> int | None:
        """The node of an output that belongs to no part."""
        i = self._flow.source(value)
        return None if i is None or i in self._of else i

    def _home(self, output: ir.Value) -> int:
        """The part that computes an output of the model: the last, if any could."""
        made = self._flow.source(output)
        return self._of.get(-1 if made is None else made, self._count - 1)

    def _incoming(self, k: int) -> list[ir.Value]:
        """What a part reads of others, in the order it is computed."""
        read = {v for i in self._needed[k] for v in self._flow.reads(i)}
        made = {v: i for v in read if (i := self._flow.source(v)) is not None}
        return sorted(
            (v for v, i in made.items() if self._of.get(i, k) != k),
            key=lambda v: (made[v], self._flow.nodes[made[v]].outputs.index(v)),
        )

    def _passed(self, k: int) -> list[ir.Value]:
        later = dict.fromkeys(v for given in self._given for v in given)
        return [v for v in later if self._home(v) == k]

    def _named(self, found: Trunk) -> dict[ir.Value, str]:
        """Names of what is handed on: ``hidden_states.K`` for the stream, K being its part."""
        taken = {v.name for v in self._flow.model.graph.inputs}
        taken |= {v.name for v in self._flow.model.graph.initializers.values()}
        taken |= {v.name for node in self._flow.nodes for v in node.outputs}
        stream = {found.start}
        for end in found.ends:
            node = self._flow.nodes[end]
            stream.update(self._flow.reads(end) if found.inside else node.outputs)
        names: dict[ir.Value, str] = {}
        for k in range(self._count):
            for role in ("hidden_states", "shared"):
                mine = [v for v in self._passed(k) if (v in stream) == (role == "hidden_states")]
                for at, value in enumerate(v for v in mine if not v.is_graph_output()):
                    _typed(value)
                    many = role == "shared" or len(mine) > 1
                    name = f"{role}.{k + 1}" + (f".{at}" if many else "")
                    while name in taken:
                        name += "_"
                    taken.add(name)
                    names[value] = name
        return names


def _typed(value: ir.Value) -> None:
    if value.dtype is None or value.shape is None:
        raise BadInput(
            f"--split: the type or shape of '{value.name}', which one part would hand to another, "
            "is not known; infer the shapes of the model first"
        )


def _induced(
    flow: Flow,
    nodes: set[int],
    given: Sequence[ir.Value],
    outputs: Sequence[ir.Value],
    names: Mapping[ir.Value, str],
) -> ir.Model:
    """Some nodes of a model as a model, by removing the others from a copy."""
    model = flow.model.clone()
    graph = model.graph
    copies = list(graph)
    inputs = dict(zip(flow.model.graph.inputs, graph.inputs, strict=True))

    def copied(value: ir.Value) -> ir.Value:
        i = flow.source(value)
        if i is None:
            return inputs.get(value) or graph.initializers[str(value.name)]
        return copies[i].outputs[flow.nodes[i].outputs.index(value)]

    graph.outputs[:] = [copied(value) for value in outputs]
    for value in outputs:
        _rename(copied(value), value, names)
    received = []
    for value in given:
        old = copied(value)
        new = ir.Value(name=old.name, type=old.type, shape=old.shape)
        new.metadata_props.update(old.metadata_props)
        _rename(new, value, names)
        ir.convenience.replace_all_uses_with(old, new)
        received.append(new)
    _remove(graph, [node for i, node in enumerate(copies) if i not in nodes])
    read = {v for node in graph for v in [*node.inputs, *captured(node)]} | {*graph.outputs}
    graph.inputs[:] = [*received, *(v for v in graph.inputs if v in read)]
    for name, value in list(graph.initializers.items()):
        if value not in read:
            del graph.initializers[name]
    return model


def _rename(copy: ir.Value, value: ir.Value, names: Mapping[ir.Value, str]) -> None:
    if value in names:
        copy.metadata_props[WHOLE_NAME] = str(value.name)
        copy.name = names[value]


def _remove(graph: ir.Graph, nodes: Sequence[ir.Node]) -> None:
    """Take nodes out; graphs inside them let go of what they read."""
    for node in nodes:
        for inner in inner_nodes(node):
            for at in range(len(inner.inputs)):
                inner.replace_input_with(at, None)
    graph.remove(nodes, safe=True)
