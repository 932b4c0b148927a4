"""Attention of ai.onnx: heads, masks, caches, scores, windows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rewriter.probe.case import FLOATS, Case, Forms, Outputs, cases
from rewriter.probe.cases.parts import without
from rewriter.probe.graph import Given, Graph
from rewriter.probe.operands import Array, Draw, causal, const, exactly, run

B, H, G, S, T, D = 1, 4, 2, 4, 4, 8
"""Batch, heads of queries and of keys, tokens, keys, and the size of a head."""
Q, K, V = run(B, H, S, D), run(B, H, T, D), run(B, H, T, D)
FEW = run(B, G, T, D), run(B, G, T, D)
PAST = run(B, G, 3, D), run(B, G, 3, D)
SEEN = np.tri(S, T, dtype=bool)
HIDING = SEEN & (np.arange(S) != 2)[:, None]
"""Hides all keys from the third token."""
LAST = run(B, dtype="int64", draw=exactly([3]))


def hiding(low: float) -> Draw:
    """A mask that adds ``low`` to later keys, and to all keys of the third token."""

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        mask = np.array(causal(low)(rng, shape))
        mask[..., 2, :] = low
        return mask

    return draw


def forms() -> dict[str, tuple[list[Given], dict[str, Any], int, int]]:
    """By their words: operands, attributes, outputs, opset."""
    mask, rows = run(S, T, draw=hiding(-1000)), run(B, 1, S, T, draw=hiding(-1000))
    stored = const(S, T, draw=causal(-20))
    flags = run(S, T, dtype="bool", draw=exactly(HIDING))
    flat = [run(B, S, H * D), run(B, T, G * D), run(B, T, G * D)]
    heads = {"q_num_heads": H, "kv_num_heads": G}
    return {
        "rank 4": ([Q, K, V], {}, 1, 23),
        "rank 4 causal": ([Q, K, V], {"is_causal": 1}, 1, 23),
        "rank 4 scale": ([Q, K, V], {"scale": 0.2}, 1, 23),
        "rank 4 softcap": ([Q, K, V], {"softcap": 2.0}, 1, 23),
        "rank 4 opset 24": ([Q, K, V], {}, 1, 24),
        "grouped heads": ([Q, *FEW], {}, 1, 23),
        "grouped heads, causal": ([Q, *FEW], {"is_causal": 1}, 1, 23),
        "rank 3": ([run(B, S, H * D), run(B, T, H * D), run(B, T, H * D)],
                   {"q_num_heads": H, "kv_num_heads": H}, 1, 23),
        "rank 3 grouped heads": ([*flat], heads, 1, 23),
        "rank 3 causal": ([*flat], {**heads, "is_causal": 1}, 1, 23),
        "float mask hides a row": ([Q, K, V, mask], {}, 1, 23),
        "float mask hides a row of rank 4": ([Q, K, V, rows], {}, 1, 23),
        "constant float mask": ([Q, K, V, stored], {}, 1, 23),
        "bool mask hides a row": ([Q, K, V, flags], {}, 1, 23),
        "constant bool mask": ([Q, K, V, const(S, T, dtype="bool", draw=exactly(SEEN))], {}, 1, 23),
        "past": ([Q, *FEW, None, *PAST], {}, 3, 23),
        "past, causal": ([Q, *FEW, None, *PAST], {"is_causal": 1}, 3, 23),
        "softmax_precision": ([Q, K, V], {"softmax_precision": 1}, 1, 23),
        "nonpad_kv_seqlen": ([Q, K, V, None, None, None, LAST], {}, 1, 24),
        **{f"scores, mode {mode}": ([Q, K, V, stored],
                                    {"qk_matmul_output_mode": mode}, 4, 23) for mode in range(4)},
        "opset 25": ([Q, K, V], {}, 1, 25),
        "left window": ([Q, K, V], {"left_window_size": 1}, 1, 25),
        "right window": ([Q, K, V], {"right_window_size": 1}, 1, 25),
    }  # fmt: skip


QUICK = {
    "rank 4", "grouped heads", "rank 3", "bool mask hides a row", "constant bool mask",
    "float mask hides a row", "past", "softmax_precision",
    "nonpad_kv_seqlen", "opset 25", "left window", "right window",
}  # fmt: skip


@cases("Attention")
def attention(form: Forms) -> Iterator[Case]:
    """Everything it can be given."""
    for what, (operands, attributes, outputs, opset) in forms().items():
        left = (1, 2) if what.startswith("scores") else ()
        for dtype in FLOATS if "float mask hides" not in what else ("f32",):

            def build(
                graph: Graph,
                operands: list[Given] = operands,
                attributes: dict[str, Any] = attributes,
                outputs: int = outputs,
                left: tuple[int, ...] = left,
            ) -> Outputs:
                return without(graph.ops("Attention", operands, attributes, outputs), *left)

            yield form.graph(what, dtype, build, opset=opset,
                             quick=dtype == "f32" and what in QUICK)  # fmt: skip


def seen_scores(feeds: Mapping[str, Array]) -> Mapping[str, Array]:
    """What the standard says of the scores of later keys: -inf, which ONNX Runtime leaves out."""
    q, k, v = (feeds[f"x{place}"].astype(np.float64) for place in (1, 2, 3))
    scores = np.where(SEEN, q @ k.swapaxes(-1, -2) / np.sqrt(D), -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    y = weights / weights.sum(axis=-1, keepdims=True) @ v
    return {"y1": y.astype(feeds["x1"].dtype), "y4": scores.astype(feeds["x1"].dtype)}


@cases("Attention")
def causal_scores(form: Forms) -> Iterator[Case]:
    """Scores behind the causal mask."""
    for dtype in FLOATS:

        def build(graph: Graph) -> Outputs:
            attributes = {"is_causal": 1, "qk_matmul_output_mode": 2}
            return without(graph.ops("Attention", [Q, K, V], attributes, 4), 1, 2)

        yield form.graph("scores, causal", dtype, build, opset=23, reference=seen_scores,
                         quick=dtype == "f32")  # fmt: skip


@cases("Attention")
def hidden_rows(form: Forms) -> Iterator[Case]:
    """A row that a bool mask hides everywhere; what is right is left to ONNX Runtime."""
    mask = run(S, T, dtype="bool", draw=exactly(HIDING))
    for dtype in FLOATS:
        yield form(
            "bool mask hides a row, opset 25", dtype, Q, K, V, mask, opset=25, quick=dtype == "f32"
        )


@cases("Attention")
def used_caches(form: Forms) -> Iterator[Case]:
    """A present that is no output of the graph."""
    for which, name in ((1, "key"), (2, "value")):
        for dtype in FLOATS:

            def build(graph: Graph, which: int = which) -> Outputs:
                y, *present = graph.ops("Attention", [Q, *FEW, None, *PAST], {}, 3)
                used = graph.op("Relu", present[which - 1])
                return [y, used, present[2 - which]]

            yield form.graph(f"present {name} inside", dtype, build, opset=23, quick=dtype == "f32")
