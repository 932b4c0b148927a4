"""EmbedLayerNormalization."""

from __future__ import annotations

from typing import Any

from tests.fuzz.case import I32, MS, Arg, Case, Draw, draws


@draws(f"{MS}EmbedLayerNormalization")
def embeddings(d: Draw, op: str) -> Case:
    kind = d.kind()
    batch, tokens, width = d.integer(1, 3), d.integer(1, 5), d.integer(2, 9)
    words, places, segments = d.integer(2, 9), tokens + d.integer(0, 4), d.integer(1, 3)
    with_segments = d.flag()
    inputs: dict[str, Arg | None] = {
        "input_ids": d.integers(0, words, (batch, tokens), I32),
        "segment_ids": d.integers(0, segments, (batch, tokens), I32) if with_segments else None,
        "word_embedding": d.floats((words, width), kind, const=None),
        "position_embedding": d.floats((places, width), kind, const=None),
        "segment_embedding": d.floats((segments, width), kind, const=None)
        if with_segments
        else None,
        "gamma": d.floats((width,), kind, const=None, shift=1),
        "beta": d.floats((width,), kind, const=None),
    }
    masked, positioned = d.flag(), d.flag()
    if masked or positioned:
        inputs["mask"] = d.integers(0, 2, (batch, tokens), I32) if masked else None
    if positioned:
        rows = d.pick(1, batch)
        inputs["position_ids"] = d.integers(0, places, (rows, tokens), I32, const=None)
    outputs: Any = d.pick([kind], [kind, I32], [kind, I32, kind], [kind, None, kind])
    said = d.attributes(epsilon=[None, 1e-5, 0.1], mask_index_type=[None, None, 0, 1])
    return Case(op, inputs, outputs, said, d.opset(13, 24), symbolic=d.rarely(), tolerance=2e-5)
