"""GroupQueryAttention: prompts, steps and chunks, caches that grow or stay, and all its inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rewriter.probe.case import FLOATS, Case, Forms, Outputs, cases
from rewriter.probe.cases.parts import declared, shaped
from rewriter.probe.graph import Given, Graph
from rewriter.probe.operands import Operand, const, exactly, fed, run, uniform, value

KV, D, ROWS = 2, 16, 8
"""Heads of keys, the size of a head, and the rows of a buffer."""
SET: dict[str, dict[str, str]] = {
    "": {},
    "qnn": {"op_affinity": '{"op_type":{"GroupQueryAttention":"htp"}}'},
    "openvino-ep": {"hint_enable_gqa": "True"},
}
"""Without which options an EP leaves it, by the EP."""


@dataclass(frozen=True)
class Node:
    """One node: its tokens, the keys behind them, its layout and what else it is given.

    ``known`` presents have declared dims, whatever they follow from.
    """

    tokens: int = 1
    total: int = 6
    heads: int = 4
    batch: int = 1
    packed: bool = False
    rotary: bool = False
    grows: bool = False
    known: bool = False
    more: Mapping[str, Operand] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def operands(self) -> list[Given]:
        """All inputs in order."""
        tokens = (self.batch, self.tokens)
        widths = [self.heads, KV, KV] if not self.packed else [self.heads + 2 * KV]
        qkv: list[Given] = [run(*tokens, width * D) for width in widths]
        past = self.total - self.tokens if self.grows else ROWS
        cache = run(self.batch, KV, past, D) if past else None
        valid = value([self.total - 1] * self.batch, "int32")
        angles = np.outer(np.arange(16), 100.0 ** -(np.arange(0, D, 2) / D))
        tables = [const(16, D // 2, draw=exactly(f(angles))) for f in (np.cos, np.sin)]
        given: dict[str, Given] = {
            "past_key": cache,
            "past_value": cache,
            "seqlens_k": fed(valid),
            "total_sequence_length": value(self.total, "int32"),
            "cos_cache": tables[0] if self.rotary else None,
            "sin_cache": tables[1] if self.rotary else None,
            **dict.fromkeys(NAMES),
        }
        return [*qkv, *[None] * (3 - len(qkv)), *(given | dict(self.more)).values()]

    def case(self, form: Forms, what: str, dtype: str, outputs: int = 3, **settings: Any) -> Case:
        """The case of the node."""
        rows: int | str = self.total if self.grows else ROWS
        if "total_sequence_length" in self.more and not self.known:  # which it follows from
            rows = "rows"
        y, present = (self.batch, self.tokens, self.heads * D), (self.batch, KV, rows, D)
        scores = (self.batch, self.heads, self.tokens, self.total)
        heads = {"num_heads": self.heads, "kv_num_heads": KV, "do_rotary": int(self.rotary)}
        shapes = [y, present, present, scores][:outputs]
        return declared(form, what, dtype, self.operands(), shapes,
                        {**heads, **self.attributes}, **settings)  # fmt: skip


NAMES = (
    "position_ids", "attention_bias", "head_sink", "k_scale", "v_scale", "q_norm_weight",
    "k_norm_weight", "query_seqlens",
)  # fmt: skip
STEPS = {
    "decode": Node(),
    "chunk": Node(tokens=3),
    "prefill": Node(tokens=3, total=3),
}
LAYOUTS: dict[str, dict[str, Any]] = {
    "buffer": {},
    "buffer, packed": {"packed": True},
    "buffer, rotary": {"rotary": True},
    "buffer, packed rotary": {"packed": True, "rotary": True},
    "growing": {"grows": True},
    "window": {"attributes": {"local_window_size": 2}},
    "softcap": {"attributes": {"softcap": 2.0}},
    "scale": {"attributes": {"scale": 0.5}},
    "smooth softmax": {"attributes": {"smooth_softmax": 1}},
    "interleaved": {"rotary": True, "attributes": {"rotary_interleaved": 1}},
    "no mask of later tokens": {"attributes": {"causal": 0}},
}
FIRST = {"buffer", "growing", "window", "softcap", "smooth softmax", "no mask of later tokens",
         "buffer, rotary", "interleaved"}  # fmt: skip


def given(node: Node) -> dict[str, Mapping[str, Operand]]:
    """Optional inputs by the words for them."""
    bias = run(1, 1, node.tokens, node.total)
    places = np.arange(node.total - node.tokens, node.total)[None]
    scale = run(1, dtype="f32", draw=uniform(0.5, 1))
    norm = const(D, draw=uniform(0.5, 1.5))
    total, valid = value(node.total, "int32"), value([node.total - 1], "int32")
    return {
        "run-time total": {"total_sequence_length": fed(total)},
        "stored seqlens_k": {"seqlens_k": valid},
        "position_ids": {"position_ids": run(*places.shape, dtype="int64", draw=exactly(places))},
        "attention_bias": {"attention_bias": bias},
        "head_sink": {"head_sink": const(node.heads)},
        "k_scale": {"k_scale": scale, "v_scale": scale},
        "q_norm_weight": {"q_norm_weight": norm, "k_norm_weight": norm},
        "query_seqlens": {"query_seqlens": run(1, dtype="int32", draw=exactly([node.tokens]))},
    }


@cases("com.microsoft::GroupQueryAttention")
def layouts(form: Forms) -> Iterator[Case]:
    """Caches and attributes, in every step, with an EP's own option and without."""
    for ep, options in SET.items():
        eps = (ep,) if ep else ()
        where = f"{next(iter(options))}, " if options else ""
        for step, node in STEPS.items():
            for layout, changes in LAYOUTS.items():
                for dtype in FLOATS:
                    first = step == "chunk" and layout in FIRST
                    quick = dtype == "f32" and (first or (step, layout) == ("prefill", "growing"))
                    one = replace(node, **changes)
                    yield one.case(form, f"{where}{step}, {layout}", dtype, eps=eps,
                                   options=options, quick=quick)  # fmt: skip


@cases("com.microsoft::GroupQueryAttention")
def more_inputs(form: Forms) -> Iterator[Case]:
    """Everything else it can be given, in a chunk."""
    node = STEPS["chunk"]
    for ep, options in SET.items():
        eps = (ep,) if ep else ()
        where = f"{next(iter(options))}, " if options else ""
        for dtype in FLOATS:
            settings: dict[str, Any] = {"eps": eps, "options": options, "quick": dtype == "f32"}
            for what, more in given(node).items():
                one = replace(node, more=more, rotary=what == "position_ids")
                # it may grow, and OpenVINO's rows take it for growing
                judged = ("qnn",) if what == "run-time total" else eps
                yield one.case(form, f"{where}chunk, {what}", dtype, **{**settings, "eps": judged})
            one = replace(node, more=given(node)["run-time total"], known=True)
            what = f"{where}chunk, run-time total, dims declared"
            yield one.case(form, what, dtype, **settings)
            scores = replace(node, attributes={"qk_output": 1})
            yield scores.case(form, f"{where}chunk, scores", dtype, 4, **settings)
            two = replace(STEPS["decode"], batch=2)
            yield two.case(form, f"{where}decode, two sequences", dtype, **settings)


@cases("com.microsoft::GroupQueryAttention")
def as_many_tokens_as_heads(form: Forms) -> Iterator[Case]:
    """Which takes one for the other in some version, where it turns them itself."""
    for ep, options in SET.items():
        eps = (ep,) if ep else ()
        where = f"{next(iter(options))}, " if options else ""
        for step, total in (("chunk", 7), ("prefill", 4)):
            for layout in ("buffer", "buffer, rotary", "buffer, packed rotary", "interleaved"):
                node = replace(Node(tokens=4, total=total), **LAYOUTS[layout])
                for dtype in FLOATS:
                    what = f"{where}{step} of as many tokens as heads, {layout}"
                    yield node.case(form, what, dtype, eps=eps, options=options,
                                    quick=(layout, dtype) == ("buffer, rotary", "f32"))  # fmt: skip


@cases("com.microsoft::GroupQueryAttention")
def rotated_before(form: Forms) -> Iterator[Case]:
    """As many tokens as heads, turned by a RotaryEmbedding of rank 3, on a cache of 2."""
    node = Node(tokens=4, total=6)
    for dtype in FLOATS:

        def build(graph: Graph) -> Outputs:
            query, key, *others = node.operands()
            turned = []
            for x, heads in ((query, node.heads), (key, KV)):
                angles = [const(1, 4, D // 2, draw=uniform(-1, 1)) for _ in range(2)]
                turned.append(graph.op("RotaryEmbedding", x, *angles, num_heads=heads))
            attributes = {"num_heads": node.heads, "kv_num_heads": KV}
            y, *present = graph.ops(form.op, [*turned, *others], attributes, 3)
            return [y, *(shaped(cache, 1, KV, ROWS, D) for cache in present)]

        yield form.graph("as many tokens as heads, rotated before", dtype, build, opset=23,
                         quick=dtype == "f32")  # fmt: skip
