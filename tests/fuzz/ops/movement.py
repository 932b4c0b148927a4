"""Ops that move, copy or cut: Tile, Trilu, Where, Slice, Pad, Concat, Cast, Range, ReduceMax."""

from __future__ import annotations

import numpy as np

from tests.fuzz.case import BOOL, F16, F32, I32, I64, Arg, Case, Draw, draws
from tests.fuzz.case import arg as stored


def _numbers(d: Draw, shape: tuple[int, ...], *kinds: object, const: bool | None = False) -> Arg:
    kind = d.pick(*kinds)
    if kind in {F32, F16}:
        return d.floats(shape, kind, const=const)  # type: ignore[arg-type]  # loosely typed in tests
    return d.integers(0, 2, shape, BOOL, const=const) if kind == BOOL else d.integers(
        -9, 9, shape, kind, const=const  # type: ignore[arg-type]  # loosely typed in tests
    )  # fmt: skip


@draws("Tile")
def tile(d: Draw, op: str) -> Case:
    shape = d.shape(1, 5, 4)
    x = _numbers(d, shape, F32, F16, I64, I32, BOOL)
    repeats = [d.pick(1, 1, 2, 3) for _ in shape]
    inputs = {"input": x, "repeats": d.given(repeats, I64, const=not d.rarely())}
    return Case(op, inputs, [x.tensor.dtype], {}, d.opset(13, 24), symbolic=d.rarely())


@draws("Trilu")
def trilu(d: Draw, op: str) -> Case:
    x = _numbers(d, d.shape(2, 5, 5), F32, F16, I64, BOOL, I32)
    inputs = {"input": x}
    if d.flag():
        inputs["k"] = d.given(d.integer(-6, 6), I64, const=not d.rarely())
    said = d.attributes(upper=[None, 0, 1])
    return Case(op, inputs, [x.tensor.dtype], said, d.opset(14, 24), symbolic=d.rarely())


@draws("Where")
def where(d: Draw, op: str) -> Case:
    shape, kind, one = d.shape(1, 5, 4), d.pick(I64, I32), d.pick((), (1,), (1, 1))
    first, second = d.pick((one, shape), (shape, one), (one, one))
    inputs = {
        "condition": _numbers(d, shape, BOOL),
        "X": _numbers(d, first, kind, const=d.flag()),
        "Y": _numbers(d, second, kind, const=d.flag()),
    }
    return Case(op, inputs, [kind], {}, d.opset(13, 24), symbolic=d.rarely())


@draws("CumSum")
def cum_sum(d: Draw, op: str) -> Case:
    shape = d.shape(1, 4, 6)
    x = _numbers(d, shape, F32, I32, I64, F16)
    axis = d.integer(-len(shape), len(shape) - 1)
    at = d.given(np.reshape(axis, d.pick((), (1,))), d.pick(I32, I64), const=not d.rarely())
    said = d.attributes(exclusive=[None, 0, 1], reverse=[None, 0, 1])
    return Case(
        op, {"x": x, "axis": at}, [x.tensor.dtype], said, d.opset(14, 24), symbolic=d.rarely()
    )


@draws("Range")
def range_(d: Draw, op: str) -> Case:
    kind = d.pick(I64, I32, F32)
    start, delta = d.integer(-5, 5), d.pick(1, 1, 2, -1, -3)
    count = d.integer(1, 6)
    last = start + delta * count - d.pick(0, 0, 1 if abs(delta) > 1 else 0)
    const = [d.flag() for _ in range(3)]
    values = zip(("start", "limit", "delta"), (start, last, delta), const, strict=True)
    inputs = {name: d.given(v, kind, const=c) for name, v, c in values}
    return Case(op, inputs, [kind], {}, d.opset(13, 24))


@draws("Slice")
def slice_(d: Draw, op: str) -> Case:
    shape = d.shape(1, 5, 5)
    x = _numbers(d, shape, BOOL, BOOL, F32, I64)
    axes = [i for i in range(len(shape)) if d.flag()] or [0]
    starts, ends, steps = [], [], []
    for axis in axes:
        n = shape[axis]
        low = d.integer(0, n - 1)
        high = d.integer(low + 1, n)
        step = d.pick(1, 1, 2, -1)
        first, stop = (low, high) if step > 0 else (high - 1, low - 1 - n if low == 0 else low - 1)
        starts.append(first - n if d.flag() else first)
        ends.append(stop if stop < 0 or stop == n or d.flag() else stop - n)
        steps.append(step)
    kind, const = d.pick(I64, I32), not d.rarely()
    named = [a - len(shape) if d.flag() else a for a in axes]
    parts = (("starts", starts), ("ends", ends), ("axes", named), ("steps", steps))
    inputs: dict[str, Arg | None] = {"data": x}
    inputs |= {name: d.given(v, kind, const=const) for name, v in parts}
    if all(s == 1 for s in steps) and d.flag():
        del inputs["steps"]
    return Case(op, inputs, [x.tensor.dtype], {}, d.opset(13, 24), symbolic=d.rarely())


@draws("Pad")
def pad(d: Draw, op: str) -> Case:
    shape = d.shape(1, 4, 5)
    mode = d.pick(None, "constant", "edge", "reflect", "wrap")
    opset = d.opset(19 if mode == "wrap" else 13, 24)
    x = _numbers(d, shape, F32, F16, I32, I64, *([BOOL] if mode in {None, "constant"} else []))
    axes = list(range(len(shape)))
    if opset >= 18 and d.flag():
        axes = [i for i in axes if d.flag()] or [0]
    most = [
        shape[a] - 1 if mode == "reflect" else (shape[a] if mode == "wrap" else 3) for a in axes
    ]
    counts = [d.integer(0, m) for m in most] + [d.integer(0, m) for m in most]
    if d.rarely() and mode in {None, "constant"} and shape[axes[0]] > 1:
        counts[0] = -1
    inputs: dict[str, Arg | None] = {"data": x, "pads": d.given(counts, I64, const=not d.rarely())}
    kind = x.tensor.dtype
    filled = mode in {None, "constant"} and d.flag()
    if filled:
        fill = d.pick(0, 1, 5) if kind != BOOL else d.pick(0, 1)
        inputs["constant_value"] = d.given(fill, kind, const=not d.rarely())
    if len(axes) < len(shape) or (opset >= 18 and d.rarely()):
        inputs.setdefault("constant_value", None)
        named = [a - len(shape) if d.flag() else a for a in axes]
        inputs["axes"] = d.given(named, d.pick(I64, I32), const=True)
    return Case(op, inputs, [kind], {"mode": mode} if mode else {}, opset, symbolic=d.rarely())


@draws("Concat")
def concat(d: Draw, op: str) -> Case:
    shape = list(d.shape(1, 4, 4))
    axis = d.integer(0, len(shape) - 1)
    kind = d.pick(F32, F16, I64)
    inputs: dict[str, Arg | None] = {}
    for i in range(d.integer(1, 4)):
        shape[axis] = d.pick(0, 1, 3)
        inputs[f"inputs_{i}"] = _numbers(d, tuple(shape), kind)
    said = {"axis": d.pick(axis, axis - len(shape))}
    return Case(op, inputs, [kind], said, d.opset(13, 24))


@draws("Cast")
def cast(d: Draw, op: str) -> Case:
    kind, to = d.pick(F32, F16), d.pick(BOOL, BOOL, I32, F16)
    x = d.floats(d.shape(0, 5), kind).array
    x = np.where(d.rng.random(x.shape) < 0.3, d.pick(0.0, -0.0, 1e-6), x)
    opset = d.opset(13, 24)
    said = {"to": int(to), **(d.attributes(saturate=[None, 0, 1]) if opset >= 19 else {})}
    return Case(op, {"input": d.given(x, kind)}, [to], said, opset, symbolic=d.rarely())


@draws("ReduceMax")
def reduce_max(d: Draw, op: str) -> Case:
    shape = d.shape(1, 4, 5)
    x = _numbers(d, shape, I32, I64, F32)
    said = d.attributes(keepdims=[None, 0, 1])
    axes = [a - len(shape) if d.flag() else a for a in range(len(shape)) if d.flag()]
    opset = d.opset(13, 24)
    inputs = {"data": x}
    if opset < 18:
        said |= {"axes": axes} if axes else {}
    else:
        if axes or d.flag():
            inputs["axes"] = stored(np.array(axes, np.int64), const=not d.rarely())
        said |= d.attributes(noop_with_empty_axes=[None, None, 0, 1])
    return Case(op, inputs, [x.tensor.dtype], said, opset, symbolic=d.rarely())
