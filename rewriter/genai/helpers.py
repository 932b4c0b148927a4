"""Small graphs of a pipeline that feed the others; the runtime runs them on the CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx_ir as ir

from rewriter.genai.copies import COPY, copies_graph
from rewriter.genai.graphs import GraphFile, of_phase, ports_of, taken
from rewriter.genai.lengths import AFTER, BEFORE, PAD, lengths_graph
from rewriter.genai.names import filled, interface, names_of

LENGTHS, CACHES = "lengths.onnx", "caches.onnx"


def helpers(base: Mapping[str, Any], graphs: Sequence[GraphFile]) -> dict[str, ir.Model]:
    """What graphs of fixed sizes need, by the name of the file.

    Args:
        base: what is known of the model.
        graphs: of all phases.
    """
    model = base.get("model", {})
    inputs, outputs = names_of(model.get("decoder", {}))
    chain = of_phase(graphs, "prefill")
    if not chain:
        return {}
    found = interface(chain, inputs, outputs)
    rows, pad = int(found.pasts[0][0].shape[2]), int(model.get("pad_token_id", 0))
    alignment = alignment_of(chain)
    made = {LENGTHS: lengths_graph(alignment, found.step, inputs, rows, pad)}
    pairs = (("present_key_names", "past_key_names"), ("present_value_names", "past_value_names"))
    names = {filled(outputs[o], i): filled(inputs[p], i) for i in found.pasts for o, p in pairs}
    if found.crossing:
        crossing = {name: names[name] for name in found.crossing}
        made[CACHES] = copies_graph(crossing, taken(chain))
    return made


def helper_files(models: Mapping[str, ir.Model]) -> list[GraphFile]:
    """The same as a driver sees them."""
    return [_file(name, model) for name, model in models.items()]


def read_helpers(folder: Path) -> list[GraphFile]:
    """Those that lie in a folder."""
    found = [folder / name for name in (LENGTHS, CACHES)]
    return helper_files({path.name: ir.load(path) for path in found if path.is_file()})


def alignment_of(graphs: Sequence[GraphFile]) -> str:
    """How the caches of a phase are laid out."""
    return next(graph.layout.alignment for graph in graphs if graph.layout is not None)


def _file(name: str, model: ir.Model) -> GraphFile:
    inputs, outputs = ports_of(model.graph.inputs), ports_of(model.graph.outputs)
    optional = tuple(v.name or "" for v in model.graph.inputs if v.const_value is not None)
    forwards = {made: made.removesuffix(COPY) for made in outputs if made.endswith(COPY)}
    forwards |= {AFTER: BEFORE} if AFTER in outputs else {}
    return GraphFile(
        name=name,
        phase="",
        part=0,
        inputs={n: port for n, port in inputs.items() if n not in optional},
        outputs=outputs,
        layout=None,
        optional=optional,
        forwards=forwards,
        pad=int(model.metadata_props[PAD]) if PAD in model.metadata_props else None,
    )
