"""The graphs of a written folder, as a driver sees them: names, shapes, caches; no weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnx_ir as ir

from rewriter.cache_layout import CacheLayout, cache_layout
from rewriter.graph_names import compiled_file, graph_name, plain_file
from rewriter.nodes import op_of
from rewriter.source import CONTEXT

STAGES = {"model": "decoder", "prefill": "context", "decode": "iterator"}
"""What the stages of a phase are called in a pipeline; phases in their order."""


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output.

    Attributes:
        dtype: of its elements.
        shape: a number where a dim is fixed.
    """

    dtype: ir.DataType | None
    shape: tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class GraphFile:
    """One written graph.

    Attributes:
        name: of the file to run: the compiled one if there is one.
        phase: ``model``, ``prefill`` or ``decode``; empty for what helps them.
        part: its place among the parts of the phase, from 1; 0 if it is whole.
        inputs: by name, in the graph's order.
        outputs: the same.
        layout: of its caches; nothing if it has none.
        context: positions that it serves, where that was noted.
        in_place: caches may be given with room for new rows, which are then written into them.
        optional: inputs besides, that hold something where nobody gives them.
        forwards: outputs that have other names where they are read.
        pad: the token that is taken for padding, where that matters.
    """

    name: str
    phase: str
    part: int
    inputs: Mapping[str, Port]
    outputs: Mapping[str, Port]
    layout: CacheLayout | None
    context: int | None = None
    in_place: bool = False
    optional: tuple[str, ...] = ()
    forwards: Mapping[str, str] = field(default_factory=dict)
    pad: int | None = None

    @property
    def stage(self) -> str:
        """The id of its stage in a pipeline."""
        return STAGES[self.phase] + plain_file(Path(self.name)).stem.removeprefix(self.phase)


def graph_files(folder: Path) -> list[GraphFile]:
    """What a folder holds, in the order it runs.

    Raises:
        BadInput: the note on the caches of a graph is damaged.
    """
    found = [(graph_name(path), path) for path in folder.glob("*.onnx")]
    own = [(name, path) for name, path in found if not name.component and not name.compiled]
    files = [_read(path, name.phase, name.part) for name, path in own]
    return sorted(files, key=lambda file: ([*STAGES].index(file.phase), file.part))


def of_phase(graphs: Sequence[GraphFile], phase: str) -> list[GraphFile]:
    """The graphs of one phase."""
    return [graph for graph in graphs if graph.phase == phase]


def taken(graphs: Sequence[GraphFile]) -> dict[str, Port]:
    """What the parts of a phase take from outside: no part before them makes it."""
    made: set[str] = set()
    needed: dict[str, Port] = {}
    for graph in graphs:
        needed |= {n: p for n, p in graph.inputs.items() if n not in made | set(needed)}
        made |= set(graph.outputs)
    return needed


def given(graphs: Sequence[GraphFile]) -> dict[str, Port]:
    """What the parts of a phase make that no part after them takes."""
    inner = {name for graph in graphs for name in graph.inputs}
    return {n: p for graph in graphs for n, p in graph.outputs.items() if n not in inner}


def _read(path: Path, phase: str, part: int) -> GraphFile:
    model = ir.load(path)
    compiled = compiled_file(path)
    return GraphFile(
        name=compiled.name if compiled.is_file() else path.name,
        phase=phase,
        part=part,
        inputs=ports_of(model.graph.inputs),
        outputs=ports_of(model.graph.outputs),
        layout=cache_layout(model, path.name) or _grown(model),
        context=int(model.metadata_props.get(CONTEXT, 0)) or None,
        in_place=_in_place(model),
    )


def _grown(model: ir.Model) -> CacheLayout | None:
    """Caches of a graph without a note: those of any length can only grow."""
    pasts = [v.shape for v in model.graph.inputs if (v.name or "").startswith("past")]
    if not pasts or any(s is None or len(s) != 4 or isinstance(s[2], int) for s in pasts):
        return None
    return CacheLayout("growing")


def _in_place(model: ir.Model) -> bool:
    """Only GroupQueryAttention reads them: it takes the valid length from elsewhere."""
    pasts = [v for v in model.graph.inputs if (v.name or "").startswith("past")]
    ops = {op_of(use.node) for past in pasts for use in past.uses()}
    return ops == {"com.microsoft::GroupQueryAttention"}


def ports_of(values: Sequence[ir.Value]) -> dict[str, Port]:
    """Inputs or outputs by name."""
    return {
        value.name or "": Port(
            value.dtype, tuple(d if isinstance(d, int) else str(d) for d in value.shape or ())
        )
        for value in values
    }
