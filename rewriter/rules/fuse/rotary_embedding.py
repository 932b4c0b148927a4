"""A rotary embedding that is written out, raised to ai.onnx RotaryEmbedding.

x·cos + rotated(x)·sin over (B, H, S, R), where rotated(x) is [-x2, x1] of the two halves, or of
neighbours (interleaved), and cos and sin have the angle of a pair twice. They end as tables of
(B, S, R/2), or of rows that positions look up; what computes them is computed once for all layers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir as ir

from rewriter.nodes import dims_of
from rewriter.rule import fuses
from rewriter.rules.parts.patterns import (
    any_of,
    either,
    integers,
    require_foreign,
    require_private,
    site_of,
)
from rewriter.rules.parts.rotary_tables import narrowed, rotary_table
from rewriter.site import Site
from rewriter.tape import Tape

_PARTS = ("first", "second")


def _rotated(op: Any, x: Any) -> Any:
    """[-x2, x1] by halves or by neighbours, of Slices or of one Split."""
    from onnxscript.rewriter.pattern import Var

    def piece(name: str) -> Any:
        bounds = [Var(f"{name} {bound}") for bound in ("start", "end", "axis")]
        step = Var(f"{name} step", can_match_none=True)
        return op.Slice(x, *bounds, step, _outputs=[name])

    first, second = map(piece, _PARTS)
    left, right = op.Split(x, _allow_other_inputs=True, _outputs=["left", "right"])
    minus = op.Neg(second, _outputs=["minus"])
    pair = (op.Unsqueeze(x, Var(f"axis {i}")) for i, x in enumerate((minus, first)))
    pairs = op.Concat(*pair, _outputs=["pairs"])
    return any_of(
        op.Concat(minus, first, _outputs=["halves"]),
        op.Concat(op.Neg(right), left, _outputs=["halves of two"]),
        op.Reshape(pairs, Var("pairs shape"), _outputs=["neighbours"]),
    )


def _pattern(*, sines_first: bool) -> Callable[..., Any]:
    def pattern(op: Any, x: Any) -> Any:
        straight = either(op.Mul, x, rotary_table(op, op.Cos, "cosines"))
        across = either(op.Mul, _rotated(op, x), rotary_table(op, op.Sin, "sines"))
        return op.Add(across, straight) if sines_first else op.Add(straight, across)

    return pattern


def _raise(op: Tape, site: Site) -> ir.Value:
    require_foreign(site)
    x = site.bound["x"]
    dims = site.shape(x, "what is rotated")
    site.require(len(dims) == 4, f"what is rotated has rank {len(dims)}, not 4")
    require_private(site, _inner(site))
    neighbours = _check_rotation(site, x)
    cos, at_cos = narrowed(op, site, "cosines", x, neighbours=neighbours)
    sin, at_sin = narrowed(op, site, "sines", x, neighbours=neighbours)
    site.require(at_cos is at_sin, "cosines and sines are those of different positions")
    same = cos.dtype == sin.dtype == x.dtype and dims_of(cos) == dims_of(sin)
    site.require(same, "cosines and sines differ in shape, or from x in type")
    positions = [] if at_cos is None else [at_cos]
    return op.RotaryEmbedding(x, cos, sin, *positions, interleaved=int(neighbours))


def _inner(site: Site) -> list[ir.Value]:
    """What is computed from x, down to the two products."""
    names = (*_PARTS, "left", "right", "minus", "pairs", "halves", "halves of two", "neighbours")
    products = [value for value in site.node.inputs if value is not None]
    return products + [site.bound[name] for name in names if name in site.bound]


def _check_rotation(site: Site, x: ir.Value) -> bool:
    """Whether neighbours are rotated; refuses what is neither that nor a rotation of halves."""
    size = (dims_of(x) or ())[-1] or 0
    site.require(size % 2 == 0, f"{size} features are no pairs")
    if "neighbours" in site.bound:
        site_of(site, site.bound["neighbours"]).ignore("allowzero")  # the shape is looked at
        whole = dims_of(site.bound["neighbours"]) == dims_of(x)
        axes = all(integers(site, f"axis {i}") in [[-1], [4]] for i in range(2))
        last = site_of(site, site.bound["pairs"]).integer("axis") in {-1, 4}
        site.require(whole and axes and last, "the rotated pairs are not put side by side")
        _check_pieces(site, ((0, 2), (1, 2)), size)
        return True
    name = "halves of two" if "halves of two" in site.bound else "halves"
    last = site_of(site, site.bound[name]).integer("axis") in {-1, 3}
    site.require(last, "the rotated halves are not put side by side")
    if name == "halves":
        _check_pieces(site, ((0, 1), (size // 2, 1)), size)
    else:
        split = site_of(site, site.bound["left"])
        split.ignore("split", "num_outputs")  # the shapes that come out are looked at
        halves = {(dims_of(site.bound[part]) or (0,))[-1] for part in ("left", "right")}
        plain = halves == {size // 2} and split.integer("axis") in {-1, 3}
        site.require(plain, "the two parts of x are not its halves")
    return False


def _check_pieces(site: Site, wanted: tuple[tuple[int, int], ...], size: int) -> None:
    """The slices start where they have to, and go as far as they can."""
    for name, (start, step) in zip(_PARTS, wanted, strict=True):
        bound = [integers(site, f"{name} {part}") for part in ("start", "axis")]
        stride = site.bound.get(f"{name} step")
        given = [1] if stride is None else site.constant(stride, "the step").tolist()
        half = (dims_of(site.bound[name]) or (0,))[-1] == size // 2
        plain = half and bound[0] == [start] and bound[1] in [[-1], [3]] and given == [step]
        site.require(plain, "the two parts of x are not its halves or neighbours")


_EMITS = ("Cast", "Cos", "Mul", "RotaryEmbedding", "Sin")


@fuses("Add", pattern=_pattern(sines_first=False), emits=_EMITS, order=20, opset=23)
def rotary_embedding_cosines_first(op: Tape, site: Site) -> ir.Value:
    """X·cos + rotated(x)·sin as RotaryEmbedding(x, cos, sin)."""
    return _raise(op, site)


@fuses("Add", pattern=_pattern(sines_first=True), emits=_EMITS, order=21, opset=23)
def rotary_embedding_sines_first(op: Tape, site: Site) -> ir.Value:
    """rotated(x)·sin + x·cos as RotaryEmbedding(x, cos, sin)."""
    return _raise(op, site)
