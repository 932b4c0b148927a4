"""A graph of a folder, and how it is fed: its parts, caches and runtime inputs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import onnx_ir as ir

from rewriter.cache_layout import CacheLayout, cache_layout
from rewriter.errors import BadInput
from rewriter.generate.cache import Caches, caches_of, continues
from rewriter.generate.files import load
from rewriter.generate.ports import Port, ports
from rewriter.graph_names import compiled_file, plain_file
from rewriter.nodes import dims_of
from rewriter.passes.dim_fit import attentions, head_size, rotary_rows, windows
from rewriter.shapes import infer_model
from rewriter.source import CONTEXT

_LOGITS_RANK = 3
RUNTIME_INPUTS = frozenset({
    "input_ids", "attention_mask", "position_ids", "cache_position", "token_type_ids",
    "seqlens_k", "past_seq_len", "past_sequence_length", "total_seq_len",
    "total_sequence_length", "write_indices", "nonpad_kv_seqlen",
})  # fmt: skip
"""Inputs that are neither caches nor come from a part before; :mod:`plan` makes their values."""


@dataclass(frozen=True, slots=True)
class Part:
    """One file of a graph, which may be the whole of it.

    Attributes:
        name: of the file, without its ending.
        file: of the model; the compiled one where there is no other.
        compiled: the same for an EP, where it was compiled.
        inputs: by name, in order.
        outputs: by name, in order.
    """

    name: str
    file: Path
    compiled: Path | None
    inputs: Mapping[str, Port]
    outputs: Mapping[str, Port]


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph, in one part or several that run one after the other.

    Attributes:
        name: ``model``, ``prefill`` or ``decode``.
        parts: in the order they run.
        inputs: those that no part gives, caches left out.
        caches: what goes from one call to the next.
        logits: the output of the last part.
        positions: how many tokens it knows positions for, where it says so.
    """

    name: str
    parts: tuple[Part, ...]
    inputs: Mapping[str, Port]
    caches: Caches
    logits: Port
    positions: int | None

    @property
    def width(self) -> int | None:
        """New tokens of one call; nothing where any number will do."""
        return self.inputs["input_ids"].dim(1)

    @property
    def batch(self) -> int | None:
        """Sequences of one call; nothing where any number will do."""
        return self.inputs["input_ids"].dim(0)


def read_graph(name: str, files: Sequence[Path]) -> Graph:
    """Look at the files of a graph.

    Args:
        name: ``model``, ``prefill`` or ``decode``.
        files: in the order they run.

    Raises:
        BadInput: one cannot be read, they do not fit together, or do not generate text.
    """
    models = [load(file) for file in files]
    parts = []
    for file, model in zip(files, models, strict=True):
        compiled = compiled_file(file)
        fed = [v for v in model.graph.inputs if not v.is_initializer()]
        parts.append(
            Part(
                name=plain_file(file).stem,
                file=file,
                compiled=compiled if compiled.is_file() else None,
                inputs=ports(fed, file.name),
                outputs=ports(model.graph.outputs, file.name),
            )
        )
    logits = _logits(parts)
    open_inputs = _open_inputs(parts)
    inputs = {n: port for n, (_, port) in open_inputs.items() if n in RUNTIME_INPUTS}
    if "input_ids" not in inputs:
        raise BadInput(
            f"{parts[0].file.name}: has no input 'input_ids', only {', '.join(open_inputs)}; "
            "'rewrite run' is for models that read tokens"
        )
    made = {n: p for part in parts for n, p in part.outputs.items() if n != "logits"}
    taken = {n for part in parts for n in part.inputs}
    pasts = {n: port for n, (_, port) in open_inputs.items() if n not in RUNTIME_INPUTS}
    paired = continues(pasts, made, [n for n in made if n not in taken])
    if left := [n for n in pasts if n not in paired]:
        raise BadInput(
            f"{open_inputs[left[0]][0]}: nothing gives its input '{left[0]}': no graph before it, "
            "and it is no cache that an output continues; write the folder anew if one is missing, "
            "as 'rewrite run' gives tokens alone"
        )
    caches = caches_of(
        name,
        [(pasts[past], made[present]) for past, present in paired.items()],
        _noted(files, models),
        {past: rows for model in models for past, (_, rows) in windows(model).items()},
        _head_sizes(models),
    )
    return Graph(name, tuple(parts), inputs, caches, logits, _positions(models))


def _logits(parts: Sequence[Part]) -> Port:
    last = parts[-1]
    logits = last.outputs.get("logits")
    if logits is None:
        given = ", ".join(list(last.outputs)[:3])
        advice = (
            "is the last part missing?"
            if len(parts) > 1 or re.search(r"-\d+-", last.name)
            else "an encoder does not generate text"
        )
        raise BadInput(f"{last.file.name}: gives no 'logits', only {given}; {advice}")
    if len(logits.shape) != _LOGITS_RANK:
        raise BadInput(
            f"{last.file.name}: 'logits' is {logits}, where (batch, tokens, vocabulary) is "
            "needed; a classifier does not generate text"
        )
    return logits


def _open_inputs(parts: Sequence[Part]) -> dict[str, tuple[str, Port]]:
    """Inputs that no part before gives, with the file that takes them first."""
    found: dict[str, tuple[str, Port]] = {}
    given: dict[str, Port] = {}
    for part in parts:
        for name, port in part.inputs.items():
            if name not in given:
                found.setdefault(name, (part.file.name, port))
                continue
            other = given[name]
            pairs = zip(port.shape, other.shape, strict=False)
            clash = any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs)
            if clash or len(port.shape) != len(other.shape) or port.dtype != other.dtype:
                raise BadInput(
                    f"{part.file.name}: takes '{name}' as {port.dtype}{port}, and the part before "
                    f"gives {other.dtype}{other}; the parts are not of one graph"
                )
        given.update(part.outputs)
    return found


def _noted(files: Sequence[Path], models: Sequence[ir.Model]) -> CacheLayout | None:
    """What the parts say of their caches, which has to be the same."""
    found: CacheLayout | None = None
    for file, model in zip(files, models, strict=True):
        layout = cache_layout(model, file.name)
        if layout is None:
            continue
        if found is not None and found.alignment != layout.alignment:
            raise BadInput(
                f"{file.name}: its caches are {layout.alignment}, and those of a part before "
                f"{found.alignment}; the parts are not of one graph"
            )
        seen = {} if found is None else found.windows
        found = replace(layout, windows={**seen, **layout.windows})
    return found


def _head_sizes(models: Sequence[ir.Model]) -> dict[str, int]:
    """Head size of each cache that GroupQueryAttention reads: exporters leave it a symbol."""
    found = {}
    for model in models:
        for node in attentions(model):
            free = [v for v in node.inputs[3:5] if v is not None and _free_size(v)]
            if free and head_size(node) is None:
                infer_model(model)
            if free and (size := head_size(node)) is not None:
                found.update({value.name or "": size for value in free})
    return found


def _free_size(past: ir.Value) -> bool:
    return past.is_graph_input() and (dims_of(past) or (None,))[-1] is None


def _positions(models: Sequence[ir.Model]) -> int | None:
    found = []
    for model in models:
        stored = model.metadata_props.get(CONTEXT, "")
        found += [int(stored)] if stored.isdecimal() else []
        found += [rows[0]] if (rows := rotary_rows(model)) else []
    return min(found, default=None)
