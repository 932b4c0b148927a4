"""The static sizes of a GroupQueryAttention, from its attributes and the shapes of its inputs."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from rewriter.nodes import constant, dims_of
from rewriter.site import Site


@dataclass(frozen=True, slots=True)
class Sizes:
    """Static sizes of a node; letters as in :mod:`rewriter.rules.parts`.

    ``total`` is an upper bound where ``total_sequence_length`` is given at run time: the cache is
    a buffer then, and whether anything precedes the tokens is known with it.
    """

    batch: int
    tokens: int
    heads: int
    kv_heads: int
    size: int
    capacity: int
    total: int
    window: int
    runtime: bool = False
    ragged: bool = False

    @property
    def groups(self) -> int:
        """G."""
        return self.heads // self.kv_heads

    @property
    def first_prompt(self) -> bool:
        """Nothing precedes the tokens."""
        return self.tokens == self.total and not self.runtime and not self.ragged

    @property
    def present(self) -> int:
        """Rows of a cache that grows or has room."""
        return max(self.capacity, self.total)


def read_sizes(site: Site) -> Sizes:
    """Sizes, from the node's attributes and the shapes of its inputs."""
    heads, kv_heads = site.integer("num_heads"), site.integer("kv_num_heads")
    site.require(heads % kv_heads == 0, f"{heads} heads do not divide by {kv_heads}")
    query = site.shape(site.input("query"), "query")
    site.require(len(query) == 3, f"query has rank {len(query)}, not 3")
    packed = site.optional("key") is None
    size = query[2] // (heads + 2 * kv_heads if packed else heads)
    past = site.optional("past_key")
    capacity = site.shape(past, "past_key")[2] if past is not None else 0
    window = site.integer("local_window_size")
    site.require(window != 0, "local_window_size=0 sees no key")
    total = _total(site, query[1], capacity)
    ragged = site.optional("query_seqlens") is not None
    site.require(
        not ragged or past is not None, "query_seqlens without past_key and past_value is not legal"
    )
    sizes = Sizes(
        query[0], query[1], heads, kv_heads, size, capacity, total or capacity, window,
        total is None, ragged,
    )  # fmt: skip
    several = sizes.batch > 1 and sizes.tokens > 1 and past is not None
    site.require(
        not several or ragged or sizes.first_prompt,
        f"{sizes.tokens} tokens of {sizes.batch} sequences behind a past need query_seqlens",
    )
    return sizes


def _total(site: Site, tokens: int, capacity: int) -> int | None:
    """``total_sequence_length`` if a constant or a shape says it; else it is up to the capacity."""
    given = site.input("total_sequence_length")
    stored = constant(given)
    if stored is not None:
        return int(stored.numpy().reshape(-1)[0])
    if site.optional("past_key") is None:
        return tokens
    bias = site.optional("attention_bias")
    if bias is not None:
        return site.shape(bias, "attention_bias")[-1]
    present = site.node.outputs[1] if len(site.node.outputs) > 1 else None
    rows = None if present is None else (dims_of(present) or (None,) * 3)[2]
    # Of a value inside the graph only inference tells the rows, and it says past + new always.
    declared = present is not None and present.is_graph_output() and _outermost(site.node)
    if declared and rows is not None and rows > capacity:
        return rows
    site.require(rows == capacity, "total_sequence_length is not a constant")
    return None


def _outermost(node: ir.Node) -> bool:
    """Whether a node is in no branch or body: those import no opsets of their own."""
    return isinstance(node.graph, ir.Graph) and bool(node.graph.opset_imports)
