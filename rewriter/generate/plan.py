"""How tokens become calls, and each call its inputs; nothing here runs anything.

A call has S columns of tokens. With caches at the left the last chunk of a prompt is padded on its
right: its pads count as tokens, and the next call writes over their rows, since its mask counts
the real ones only. A chunk that would reach past the end of the cache begins earlier instead; what
it computes again comes out the same. With caches at the right the first chunk is padded on its
left, and its pads have a 0 in the mask. Caches of a window take no pads at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rewriter.errors import BadInput
from rewriter.generate.folder import Folder
from rewriter.generate.graph import Graph
from rewriter.generate.ports import Port

Array = npt.NDArray[Any]
_LARGER = "write the folder with a larger --max-seq-len"


class CacheFull(BadInput):
    """More tokens than the cache has rows for."""


@dataclass(frozen=True, slots=True)
class Call:
    """One run of a graph.

    Attributes:
        graph: its name.
        start: position of the first real token.
        stop: position after the last real token.
        width: columns, pads included.
        left: how many of them are pads before the tokens; the others follow them.
        new: position of the first token that was not computed before.
    """

    graph: str
    start: int
    stop: int
    width: int
    left: int
    new: int

    @property
    def rows(self) -> slice:
        """Columns of the new tokens."""
        return slice(self.left + self.new - self.start, self.left + self.stop - self.start)


def limit(folder: Folder) -> tuple[int | None, str]:
    """How many tokens a folder serves, and what to say where that is too few."""
    graph = folder.any_graph
    rows = graph.caches.rows
    mask = graph.inputs.get("attention_mask")
    if rows is None and graph.caches.alignment == "left" and mask is not None:
        rows = mask.dim(1)
    if rows is not None:
        return rows, f"the cache has {rows} rows; {_LARGER}"
    if graph.caches.alignment == "none" and graph.width is not None:
        return graph.width, f"the graph has no cache and takes {graph.width} tokens; make it longer"
    if folder.positions is not None:
        return folder.positions, f"the model knows {folder.positions} positions"
    return None, ""


def calls(folder: Folder, done: int, count: int) -> list[Call]:
    """The calls that read tokens.

    Args:
        folder: what is driven.
        done: tokens that were read before.
        count: how many to read.

    Raises:
        CacheFull: they do not fit.
        BadInput: the graphs that are there cannot read so many.
    """
    most, why = limit(folder)
    total = done + count
    if most is not None and total > most:
        raise CacheFull(f"{total} tokens do not fit: {why}")
    graph = folder.any_graph
    if graph.caches.alignment == "none":
        return [Call(graph.name, 0, total, graph.width or total, 0, done)]
    widths = {g.width: name for name, g in folder.graphs.items()}
    if None in widths:
        return [Call(widths[None], done, total, count, 0, done)]
    sizes = {width: name for width, name in widths.items() if width is not None}
    if graph.caches.alignment == "right":
        return _right(folder, sizes, done, total)
    return _left(folder, sizes, done, total)


def _left(folder: Folder, sizes: Mapping[int, str], done: int, total: int) -> list[Call]:
    found: list[Call] = []
    widest, rows = max(sizes), limit(folder)[0]
    chunk = folder.graphs[sizes[widest]]
    # Where only the last column has logits, they must be those of a token.
    padded = not chunk.caches.windowed and (chunk.logits.dim(1) != 1 or widest == 1)
    if rows is not None and rows < widest:
        raise BadInput(f"{chunk.name}: reads {widest} tokens into a cache of {rows}; {_LARGER}")
    while done < total:
        left = total - done
        if left == 1 and 1 in sizes:
            width, start = 1, done
        elif padded:
            width = widest
            start = done if rows is None else max(min(done, rows - width), 0)
        elif left >= widest:
            width, start = widest, done
        else:
            width, start = _single(folder, sizes, left), done
        stop = min(start + width, total)
        found.append(Call(sizes[width], start, stop, width, 0, done))
        done = stop
    return found


def _right(folder: Folder, sizes: Mapping[int, str], done: int, total: int) -> list[Call]:
    found: list[Call] = []
    widest = max(sizes)
    padded = not folder.graphs[sizes[widest]].caches.windowed
    while done < total:
        left = total - done
        first = left % widest
        if first and done == 0 and padded and not (left == 1 and 1 in sizes):
            found.append(Call(sizes[widest], 0, first, widest, widest - first, 0))
            done = first
            continue
        width = widest if left >= widest else _single(folder, sizes, left)
        found.append(Call(sizes[width], done, done + width, width, 0, done))
        done += width
    return found


def _single(folder: Folder, sizes: Mapping[int, str], left: int) -> int:
    if 1 in sizes:
        return 1
    widest = max(sizes)
    raise BadInput(
        f"{folder.path}: the last {left} tokens do not fill a call of {widest}, and there is no "
        "graph that reads one at a time; write the folder with --static both"
    )


def inputs(graph: Graph, call: Call, ids: Array) -> dict[str, Array]:
    """What a graph takes besides caches.

    Args:
        graph: the one that the call is of.
        call: which tokens.
        ids: all tokens (B, T) so far, those of the call included.

    Raises:
        BadInput: an input whose shape is none that such an input has.
    """
    return {name: _value(graph, call, ids, port) for name, port in graph.inputs.items()}


def _value(graph: Graph, call: Call, ids: Array, port: Port) -> Array:
    batch, tokens = ids.shape[0], slice(call.left, call.left + call.stop - call.start)
    alignment = graph.caches.alignment
    # Pads behind the tokens of a buffer at the left count until they are written over.
    total = call.start + call.width if alignment == "left" else call.stop
    if port.name == "attention_mask":
        return _mask(graph, call, port, batch, total)
    row = np.zeros((batch, call.width), np.int64)
    if port.name == "input_ids":
        row[:, tokens] = ids[:, call.start : call.stop]
    elif port.name in {"position_ids", "cache_position"}:
        row[:] = np.maximum(np.arange(call.width) - call.left + call.start, 0)
    elif port.name != "token_type_ids":
        if alignment == "right":
            raise BadInput(
                f"{graph.name}: takes '{port.name}', which says nothing of a cache whose tokens "
                "lie at the right"
            )
        return _number(port, batch, _lengths(call, total)[port.name])
    return _fit(graph, port, row)


def _lengths(call: Call, total: int) -> dict[str, int]:
    """Lengths at run time, as GroupQueryAttention, TensorScatter and Attention count them."""
    last = dict.fromkeys(("seqlens_k", "past_seq_len", "past_sequence_length"), total - 1)
    whole = dict.fromkeys(("total_seq_len", "total_sequence_length", "nonpad_kv_seqlen"), total)
    return {**last, **whole, "write_indices": call.start}


def _mask(graph: Graph, call: Call, port: Port, batch: int, total: int) -> Array:
    """Ones for what may be seen: valid rows of the cache, and the tokens of the call."""
    alignment, rows = graph.caches.alignment, graph.caches.rows
    if alignment == "right":
        assert rows is not None
        row = np.zeros(rows + call.width, np.int64)
        row[rows - call.start : rows] = 1
        row[rows + call.left :] = 1
    else:
        # without a cache, what follows the tokens of a fixed width are pads that no one sees
        fixed = call.width if alignment == "none" else total
        width = port.dim(1) if alignment == "left" else fixed
        row = (np.arange(width or total) < total).astype(np.int64)
    return _fit(graph, port, np.repeat(row[None], batch, axis=0))


def _number(port: Port, batch: int, value: int) -> Array:
    """A length, once or for each sequence."""
    shape: Sequence[int] = [port.dim(axis) or batch for axis in range(len(port.shape))]
    if len(shape) == 2 and port.dim(1) is None:
        shape = [shape[0], 1]
    return np.full(shape, value, port.dtype)


def _fit(graph: Graph, port: Port, row: Array) -> Array:
    """Values (B, S) in the dtype and rank that an input has."""
    if len(port.shape) == 1:
        row = row[0]
    known = [port.dim(axis) for axis in range(len(port.shape))]
    if len(known) == 2 and known[0] == 1:
        row = row[:1]
    if len(known) != row.ndim or any(
        k is not None and k != d for k, d in zip(known, row.shape, strict=True)
    ):
        raise BadInput(
            f"{graph.name}: takes '{port.name}' as {port}, where {row.shape} is what belongs to "
            "its tokens and caches; write the folder anew"
        )
    return row.astype(port.dtype)
