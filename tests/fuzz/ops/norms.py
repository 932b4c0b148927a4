"""Norms, with a skip or without, all outputs."""

from __future__ import annotations

import math
from typing import Any

from tests.fuzz.case import F32, MS, Arg, Case, Draw, draws

EPSILONS = [None, 1e-5, 1e-3, 0.1]


@draws("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization")
def norms(d: Draw, op: str) -> Case:
    kind, shape = d.kind(), d.shape(1, 5)
    if shape[-1] == 1 and d.flag():
        shape = (*shape[:-1], 5)
    axis = d.integer(-len(shape), len(shape) - 1)
    if op != "SimplifiedLayerNormalization" and d.flag():
        axis = -1
    inner = shape[axis % len(shape) :]
    if math.prod(inner) == 1 and op == "LayerNormalization":
        shape = (*shape[:-1], 5)
        inner = shape[axis % len(shape) :]
    weight = inner
    if op == "RMSNormalization" and d.rarely():
        weight = d.pick(inner[-1:], (1,) * len(inner), (1,))
    elif op == "LayerNormalization" and d.rarely():
        weight = d.pick(inner[-1:], (1,))
    inputs: dict[str, Arg | None] = {
        "X": d.floats(shape, kind, spread=d.pick(1, 3, 0.1), shift=d.pick(0, 1))
    }
    name = "Scale" if op == "LayerNormalization" else "scale"
    inputs[name] = d.floats(weight, kind, const=None, shift=1, spread=0.3)
    if op == "LayerNormalization" and d.flag():
        inputs["B"] = d.floats(weight, kind, const=None)
    said = d.attributes(epsilon=EPSILONS, stash_type=[None, None, 1])
    if axis != -1 or d.flag():
        said["axis"] = axis
    outputs: Any = [kind]
    if op == "LayerNormalization":
        outputs = d.pick([kind], [kind], [kind, F32], [kind, None, F32], [kind, F32, F32])
    elif op.startswith("Simple") and d.rarely():
        outputs = [kind, F32]
    low = {"LayerNormalization": 17, "RMSNormalization": 23}.get(op, 13)
    return Case(op, inputs, outputs, said, d.opset(low, 24), symbolic=d.rarely(), tolerance=2e-5)


@draws(f"{MS}SkipLayerNormalization", f"{MS}SkipSimplifiedLayerNormalization")
def skips(d: Draw, op: str) -> Case:
    kind = d.kind()
    batch, tokens, width = d.integer(1, 3), d.integer(1, 5), d.integer(2, 9)
    shape = d.pick((batch, tokens, width), (tokens, width))
    skip = shape
    if len(shape) == 3 and d.rarely():
        skip = d.pick((1, tokens, width), (tokens, width))
    inputs: dict[str, Arg | None] = {
        "input": d.floats(shape, kind),
        "skip": d.floats(skip, kind, const=None),
        "gamma": d.floats((width,), kind, const=None, shift=1),
    }
    if not op.endswith("SimplifiedLayerNormalization"):
        inputs["beta"] = d.floats((width,), kind, const=None) if d.flag() else None
    if d.flag():
        inputs["bias"] = d.floats((width,), kind, const=None)
    outputs: Any = d.pick([kind], [kind, None, None, kind])
    said = d.attributes(epsilon=EPSILONS)
    return Case(op, inputs, outputs, said, d.opset(13, 24), symbolic=d.rarely(), tolerance=2e-5)
