"""Fused attentions of com.microsoft but GroupQueryAttention, and the embedding of BERT."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rewriter.probe.case import FLOATS, Case, Forms, cases
from rewriter.probe.cases.parts import declared
from rewriter.probe.graph import Given
from rewriter.probe.operands import Draw, Operand, below, const, exactly, run, scaled, value

B, S, H, D, T = 2, 4, 2, 8, 12
"""Batch, tokens, heads, the size of a head, and the rows of a buffer."""
WIDTH = H * D
X, Y = run(B, S, WIDTH), (B, S, WIDTH)
Shapes = list[tuple[int, ...] | None]


def flags(*shape: int) -> Operand:
    """Flags of keys; the first one of every row is seen."""

    def draw(rng: np.random.Generator, dims: tuple[int, ...]) -> Any:
        drawn = rng.integers(0, 2, dims)
        drawn[..., 0], drawn[..., -1] = 1, 0
        return drawn

    return run(*shape, dtype="int32", draw=draw)


def ints(numbers: Any) -> Operand:
    """Whole numbers that are fed."""
    array = np.asarray(numbers)
    return run(*array.shape, dtype="int32", draw=exactly(array))


SMALL: Draw = scaled(0.3)
WEIGHTS, BIAS = const(WIDTH, 3 * WIDTH, draw=SMALL), const(3 * WIDTH)
PACKED = ints([2, 3, 0, 2, 5, 0, 2, 5])
"""Lengths of two sequences of keys, and where those of queries and keys begin and end."""


@cases("com.microsoft::Attention")
def of_one_product(form: Forms) -> Iterator[Case]:
    """Queries, keys and values by one weight."""
    past = run(2, B, H, 3, D)
    wide: dict[str, Any] = {"qkv_hidden_sizes": [WIDTH, WIDTH, WIDTH + 8]}
    forms: dict[str, tuple[list[Given], dict[str, Any], Shapes]] = {
        "plain": ([X, WEIGHTS, BIAS], {}, [Y]),
        "no bias": ([X, WEIGHTS], {}, [Y]),
        "causal": ([X, WEIGHTS, BIAS], {"unidirectional": 1}, [Y]),
        "lengths": ([X, WEIGHTS, BIAS, ints([3, 4])], {}, [Y]),
        "flags": ([X, WEIGHTS, BIAS, flags(B, S)], {}, [Y]),
        "flags of each token": ([X, WEIGHTS, BIAS, flags(B, S, S)], {}, [Y]),
        "another filter value": ([X, WEIGHTS, BIAS, flags(B, S)], {"mask_filter_value": -2.0}, [Y]),
        "lengths of packed sequences": ([X, WEIGHTS, BIAS, PACKED], {}, [Y]),
        "scale": ([X, WEIGHTS, BIAS], {"scale": 1.5}, [Y]),
        "past, causal": ([X, WEIGHTS, BIAS, None, past], {"unidirectional": 1},
                         [Y, (2, B, H, 7, D)]),
        "attention bias": ([X, WEIGHTS, BIAS, None, None, run(B, H, S, S)], {}, [Y]),
        "wider values": ([X, const(WIDTH, 3 * WIDTH + 8, draw=SMALL), const(3 * WIDTH + 8)], wide,
                         [(B, S, WIDTH + 8)]),
    }  # fmt: skip
    decides = {"plain", "no bias", "another filter value", "lengths of packed sequences", "scale"}
    for what, (operands, attributes, shapes) in forms.items():
        for dtype in FLOATS:
            yield declared(form, what, dtype, operands, shapes, {"num_heads": H, **attributes},
                           quick=dtype == "f32" and what in decides)  # fmt: skip


def multi_head_forms() -> dict[str, tuple[list[Given], dict[str, Any], Shapes]]:
    """By their words: operands, attributes, and shapes of outputs."""
    qkv: list[Given] = [X, X, X]
    cache = run(B, H, T, D)
    past: list[Given] = [run(B, H, 3, D)] * 2
    present = (B, H, 7, D)
    heads: list[Given] = [X, run(B, H, 6, D), run(B, H, 6, D)]
    none: list[Given] = [None]
    buffer: list[Given] = [*qkv, None, None, None, cache, cache, ints([5])]
    return {
        "plain": (qkv, {}, [Y]),
        "causal": (qkv, {"unidirectional": 1}, [Y]),
        "scale": (qkv, {"scale": 0.5}, [Y]),
        "bias": ([*qkv, BIAS], {}, [Y]),
        "keys of another sequence": (heads, {}, [Y]),
        "bias, keys of another sequence": ([*heads, BIAS], {}, [Y]),
        "flags": ([*qkv, None, flags(B, S)], {}, [Y]),
        "flags of each token": ([*qkv, None, flags(B, S, S)], {}, [Y]),
        "lengths": ([*qkv, None, ints([3, 4])], {}, [Y]),
        "another filter value": ([*qkv, None, flags(B, S)], {"mask_filter_value": -2.0}, [Y]),
        "attention bias": ([*qkv, None, None, run(B, H, S, S)], {}, [Y]),
        "past": ([*qkv, *none * 3, *past], {}, [Y, present, present]),
        "past, causal": ([*qkv, *none * 3, *past], {"unidirectional": 1}, [Y, present, present]),
        "scores": (qkv, {}, [Y, None, None, (B, H, S, S)]),
        "buffer": (buffer, {}, [Y, (B, H, T, D), (B, H, T, D)]),
    }


@cases("com.microsoft::MultiHeadAttention")
def multi_head(form: Forms) -> Iterator[Case]:
    """Everything it can be given."""
    for what, (operands, attributes, shapes) in multi_head_forms().items():
        for dtype in FLOATS:
            quick = dtype == "f32" and what in {"plain", "bias, keys of another sequence"}
            yield declared(form, what, dtype, operands, shapes, {"num_heads": H, **attributes},
                           quick=quick)  # fmt: skip


@cases("com.microsoft::DecoderMaskedMultiHeadAttention")
def of_one_token(form: Forms) -> Iterator[Case]:
    """A token at a row of a buffer, or over another sequence."""
    x, cache, start = run(B, 1, WIDTH), run(B, H, T, D), ints([5])
    shared = {"num_heads": H, "past_present_share_buffer": 1}
    y, present = (B, 1, WIDTH), (B, H, T, D)
    other = run(B, H, 6, D)
    for what, operands in {
        "plain": [x, x, x, None, None, cache, cache, start],
        "mask": [x, x, x, flags(B, 6), None, cache, cache, start],
        "attention bias": [x, x, x, None, run(B, H, 1, 6), cache, cache, start],
        "bias": [x, x, x, None, None, cache, cache, start, None, None, BIAS],
        "stored start": [x, x, x, None, None, cache, cache, value([5], "int32")],
    }.items():
        yield declared(form, what, "f32", operands, [y, present, present], shared,
                       quick=what == "plain")  # fmt: skip
    yield declared(form, "another sequence", "f32", [x, other, other], [y], {"num_heads": H})


@cases("com.microsoft::PackedAttention", "com.microsoft::PackedMultiHeadAttention")
def packed(form: Forms) -> Iterator[Case]:
    """Sequences without pads, one behind the other; only CUDA has kernels."""
    tokens, offsets = value([[0, 1, 2], [3, 4, 5]], "int32"), value([0, 3, 5], "int32")
    x, heads = run(5, WIDTH), {"num_heads": H}
    first = [x, WEIGHTS, BIAS] if form.op.endswith("PackedAttention") else [x, x, x, None]
    given = [*first, tokens, offsets]
    yield declared(form, "plain", "f32", given, [(5, WIDTH)], heads, quick=True)


@cases("com.microsoft::EmbedLayerNormalization")
def embedding(form: Forms) -> Iterator[Case]:
    """Sums of rows of three tables, and the lengths of sequences."""
    ids = run(B, 3, dtype="int32", draw=below(11))
    segments = run(B, 3, dtype="int32", draw=below(2))
    words, places, kinds = const(11, 16), const(8, 16), const(2, 16)
    gains: list[Given] = [const(16), const(16)]
    mask = ints([[1, 1, 0], [2, 1, 3]])
    y = (B, 3, 16)
    eps: dict[str, Any] = {"epsilon": 1e-5}
    alone = {"mask_index_type": 0}
    for what, (segment, kind) in {
        "one output": (segments, kinds),
        "no segments": (None, None),
    }.items():
        given = [ids, segment, words, places, kind, *gains]
        yield declared(form, what, "f32", given, [y], alone, quick=what == "one output")
    typed = {**eps, "mask_index_type": 1}
    whole: list[Given] = [ids, segments, words, places, kinds, *gains, mask]
    yield form("mask", "f32", *whole, outputs=2, quick=True, **typed)
