"""An RMS norm that is written out, raised to one op.

x / sqrt(mean(x²) + epsilon) · w over the last axis. HTP computes x² in fp16, so the written-out
form is wrong from |x| of some hundreds on (measured/README.md, trap 9), and it cannot finalize it
at all when the weight comes first (lowering.md, trap 3); the one op is right in both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from rewriter.rule import fuses
from rewriter.site import Site
from rewriter.tape import Tape


def _pattern(*, weight_first: bool) -> Callable[..., Any]:
    def pattern(op: Any, x: Any, w: Any, two: Any, axes: Any, epsilon: Any, one: Any) -> Any:
        from onnxscript.rewriter.pattern import OrValue

        squares = OrValue([op.Pow(x, two), op.Mul(x, x)])
        mean = OrValue(
            [
                op.ReduceMean(squares, axes, _outputs=["mean"]),
                op.ReduceMean(squares, _outputs=["mean"]),
            ]
        )
        root = op.Sqrt(op.Add(mean, epsilon))
        normed = OrValue(
            [
                op.Mul(x, op.Reciprocal(root)),
                op.Mul(x, op.Div(one, root)),
                op.Div(x, root),
            ]
        )
        normed = OrValue([normed, op.Cast(normed, _outputs=["narrow"])])
        return op.Mul(w, normed) if weight_first else op.Mul(normed, w)

    return pattern


def _number(site: Site, name: str) -> float:
    found = site.constant(site.bound[name], name)
    site.require(found.size == 1, f"{name} is no single number")
    return float(found.reshape(-1)[0])


def _source(site: Site) -> ir.Value:
    """What is normalized: x, or what a Cast widened to x if the result is narrowed again."""
    x, scale = site.bound["x"], site.bound["w"]
    narrow = site.others.get("narrow")
    if narrow is not None:
        site.require(narrow.integer("to") == scale.dtype, "the cast goes to another type than w's")
    if x.dtype == scale.dtype:
        return x
    producer = x.producer()
    widened = producer is not None and producer.op_type == "Cast" and narrow is not None
    site.require(widened, "x and w differ in type")
    source = producer.inputs[0] if producer is not None else None
    if source is None or source.dtype != scale.dtype or x.dtype != ir.DataType.FLOAT:
        site.refuse("x and w differ in type")
    return source


def _raise(op: Tape, site: Site) -> ir.Value:
    for name, number in (("two", 2), ("one", 1)):
        if name in site.bound:
            found = _number(site, name)
            site.require(found in {number}, f"{found:g} stands where {number} has to")
    x, scale = site.bound["x"], site.bound["w"]
    _check_mean(site, site.rank(x, "x"))
    width = x.shape[-1] if x.shape is not None else None
    site.require(site.shape(scale, "w") == (width,), "w is not one row of the last axis")
    epsilon = float(np.float32(_number(site, "epsilon")))
    name = "RMSNormalization" if site.opset >= 23 else "SimplifiedLayerNormalization"
    attributes = {"axis": -1, "epsilon": epsilon, "stash_type": 1}
    return op.emit(name, (_source(site), scale), attributes)[0]


def _check_mean(site: Site, rank: int) -> None:
    mean = site.others["mean"]
    axes = mean.attribute("axes")
    if "axes" in site.bound:
        axes = site.constant(site.bound["axes"], "axes").tolist()
    site.require([a % rank for a in axes or ()] == [rank - 1], "the mean is not over the last axis")
    site.require(mean.integer("keepdims") == 1, "the mean drops its axis")
    mean.ignore("noop_with_empty_axes")


_EMITS = ("RMSNormalization", "SimplifiedLayerNormalization")


@fuses("Mul", pattern=_pattern(weight_first=True), emits=_EMITS, order=0)
def rms_norm_weight_first(op: Tape, site: Site) -> ir.Value:
    """W · x / sqrt(mean(x²) + epsilon) as RMSNormalization (below opset 23: Simplified...)."""
    return _raise(op, site)


@fuses("Mul", pattern=_pattern(weight_first=False), emits=_EMITS, order=1)
def rms_norm_weight_last(op: Tape, site: Site) -> ir.Value:
    """X / sqrt(mean(x²) + epsilon) · w as RMSNormalization (below opset 23: Simplified...)."""
    return _raise(op, site)
