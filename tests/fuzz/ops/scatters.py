"""Writing and reading rows: TensorScatter, ScatterElements, GatherND, Gather."""

from __future__ import annotations

import numpy as np

from tests.fuzz.case import BOOL, F16, F32, I32, I64, Arg, Case, Draw, draws


@draws("TensorScatter")
def tensor_scatter(d: Draw, op: str) -> Case:
    kind = d.pick(F32, F16, I32, I64)
    shape = list(d.shape(2, 4, 5))
    axis = d.integer(1, len(shape) - 1)
    update = list(shape)
    update[axis] = d.integer(1, shape[axis])
    circular = d.flag()
    last = shape[axis] - 1 if circular else shape[axis] - update[axis]
    number = d.integers if kind in {I32, I64} else None
    past, new = (
        number(-9, 9, s, kind, const=False) if number else d.floats(s, kind)
        for s in (shape, update)
    )
    inputs: dict[str, Arg | None] = {"past_cache": past, "update": new}
    if d.flag():
        inputs["write_indices"] = d.integers(0, last + 1, (shape[0],), I64, const=None)
    said = d.attributes(axis=[axis, axis - len(shape), *([None] if axis == len(shape) - 2 else [])])
    if circular or d.rarely():
        said["mode"] = "circular" if circular else "linear"
    return Case(op, inputs, [kind], said, 24, symbolic=d.rarely())


@draws("ScatterElements")
def scatter_elements(d: Draw, op: str) -> Case:
    kind = d.pick(F32, F16, I32)
    shape = d.shape(5, 5, 4) if d.flag() else d.shape(1, 5, 4)
    axis = d.integer(0, len(shape) - 1)
    part = [d.pick(n, n, n, d.integer(1, n)) for n in shape]
    reduction = d.pick(None, None, "none", "add", "mul", "max", "min")
    if reduction in {None, "none"}:  # indices must not repeat
        order = np.argsort(d.rng.random([*part[:axis], shape[axis], *part[axis + 1 :]]), axis=axis)
        indices = np.take(order, range(part[axis]), axis=axis)
    else:
        indices = d.rng.integers(0, shape[axis], part)
    indices = np.where(d.rng.random(part) < 0.2, indices - shape[axis], indices)
    data, updates = (
        d.integers(-9, 9, s, I32) if kind == I32 else d.floats(s, kind) for s in (shape, part)
    )
    inputs: dict[str, Arg | None] = {
        "data": data,
        "indices": d.given(indices, d.pick(I64, I32), const=None),
        "updates": updates,
    }
    said = d.attributes(axis=[axis, axis - len(shape)])
    if reduction:
        said["reduction"] = reduction
    return Case(op, inputs, [kind], said, d.opset(18 if reduction else 13, 24))


@draws("GatherND")
def gather_nd(d: Draw, op: str) -> Case:
    kind = d.pick(F32, F16, I32, I64, BOOL)
    shape = d.shape(1, 4, 4)
    batch = d.integer(0, len(shape) - 1)
    count = d.integer(1, len(shape) - batch)
    middle = d.shape(0, 2, 3)
    whole = (*shape[:batch], *middle, count)
    sizes = np.array(shape[batch : batch + count])
    data = d.floats(shape, kind) if kind in {F32, F16} else d.integers(0, 2, shape, kind)
    inputs: dict[str, Arg | None] = {
        "data": data,
        "indices": d.integers(-sizes, sizes, whole, I64, const=None),
    }
    said = {"batch_dims": batch} if batch or d.flag() else {}
    return Case(op, inputs, [kind], said, d.opset(13, 24), symbolic=d.rarely())


@draws("GatherElements")
def gather_elements(d: Draw, op: str) -> Case:
    kind, shape = d.pick(F32, F16, I32, I64), d.shape(1, 4, 4)
    axis = d.integer(0, len(shape) - 1)
    data = d.floats(shape, kind) if kind in {F32, F16} else d.integers(-9, 9, shape, kind)
    taken = tuple(d.integer(1, 5) if i == axis else size for i, size in enumerate(shape))
    indices = d.integers(-shape[axis], shape[axis], taken, d.pick(I64, I32), const=not d.rarely())
    said = d.attributes(axis=[axis, axis - len(shape)])
    inputs = {"data": data, "indices": indices}
    return Case(op, inputs, [kind], said, d.opset(13, 24), symbolic=d.rarely())


@draws("Gather")
def gather(d: Draw, op: str) -> Case:
    kind = d.pick(I64, I64, F32)
    shape = d.shape(1, 4, 4)
    axis = d.integer(0, len(shape) - 1)
    data = (
        d.integers(-9, 9, shape, kind, const=None)
        if kind == I64
        else d.floats(shape, kind, const=None)
    )
    indices = d.integers(-shape[axis], shape[axis], d.shape(0, 2, 3), d.pick(I64, I32), const=None)
    said = d.attributes(axis=[axis, axis - len(shape)])
    return Case(op, {"data": data, "indices": indices}, [kind], said, d.opset(13, 24))
