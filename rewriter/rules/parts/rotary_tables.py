"""Cosines and sines as written-out rotations multiply with them, narrowed to one angle a pair.

Exporters hold (or compute) the angle of a pair of features twice, once for each of the two. That
both are equal is checked on the numbers of a constant, and follows from Concat(a, a) where they
are computed; tables with an angle for every feature (2-D rotations of vision models) stay as they
are (D13 of the public reports).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from rewriter.nodes import dims_of
from rewriter.rules.parts.patterns import any_of, integers, number, site_of, value_of
from rewriter.site import Site
from rewriter.tape import Tape

Array = npt.NDArray[Any]


def rotary_table(op: Any, kind: Any, name: str) -> Any:
    """Cosines or sines for all heads: computed, looked up by position, or anything with one head.

    Args:
        op: the pattern builder.
        kind: ``op.Cos`` or ``op.Sin``.
        name: what the parts are called.
    """
    from onnxscript.rewriter.pattern import Var

    half = Var(f"{name} angles")
    computed = kind(
        op.Concat(half, half, _outputs=[f"{name} twice"]), _outputs=[f"{name} computed"]
    )
    found = op.Gather(Var(f"{name} rows"), Var(f"{name} positions"), _outputs=[f"{name} found"])
    either = any_of(computed, found)
    factored = any_of(op.Mul(either, number(f"{name} factor")), either)
    cast = any_of(op.Cast(factored, _outputs=[f"{name} cast"]), factored)
    spread = op.Unsqueeze(cast, Var(f"{name} axis"))
    return any_of(spread, Var(f"{name} itself", check=_one_head), name=name)


def _one_head(_context: Any, value: ir.Value) -> bool:
    dims = dims_of(value)
    return dims is not None and (len(dims) < 3 or dims[-3] == 1)


def narrowed(
    op: Tape, site: Site, name: str, x: ir.Value, *, neighbours: bool
) -> tuple[ir.Value, ir.Value | None]:
    """A table for RotaryEmbedding, with the positions to look up in it where it is not by token.

    Args:
        op: the tape.
        site: a match of :func:`rotary_table`.
        name: of the table in the pattern.
        x: what is rotated, (B, H, S, R), dims known.
        neighbours: features 2i and 2i + 1 are a pair, not i and i + R/2.
    """
    batch, _, tokens, size = dims_of(x) or ()
    assert batch is not None
    assert tokens is not None
    assert size is not None
    if f"{name} itself" in site.bound:
        stored = site.constant(site.bound[name], f"the table of {name}")
        given = stored.reshape((1,) * (4 - stored.ndim) + stored.shape)
        fits = given.shape[0] in {1, batch} and given.shape[1:] == (1, tokens, size)
        site.require(fits, f"the {name} of shape {stored.shape} do not fit {x.shape}")
        rows = np.broadcast_to(
            _narrow(site, given[:, 0], name, neighbours), (batch, tokens, size // 2)
        )
        return op.const(np.ascontiguousarray(rows), x.dtype, name=name), None
    site.require(integers(site, f"{name} axis") in [[1], [-3]], "heads are not the second axis")
    if f"{name} found" in site.bound:
        return _looked_up(op, site, name, x, neighbours=neighbours)
    site.require(not neighbours, f"the {name} repeat by halves, and the rotation by neighbours")
    angles, twice = site.bound[f"{name} angles"], site_of(site, site.bound[f"{name} twice"])
    site.require(twice.integer("axis") in {-1, 2}, f"the angles of {name} repeat by another axis")
    fits = dims_of(angles) == (batch, tokens, size // 2)
    site.require(fits, f"the angles {angles.shape} of {name} do not fit {x.shape}")
    table = site.bound[f"{name} computed"]
    kind = site_of(site, table).node.op_type
    factor, dtype = _factor(site, name), _cast(site, name, table)

    def build() -> ir.Value:
        y = op.emit(kind, (angles,))[0]
        if factor != 1:
            assert y.dtype is not None
            y = op.Mul(y, op.const(factor, y.dtype, name="factor"))
        return y if y.dtype == dtype else op.Cast(y, to=dtype)

    return op.once(("narrowed", kind, angles, factor, dtype), build), None


def _looked_up(
    op: Tape, site: Site, name: str, x: ir.Value, *, neighbours: bool
) -> tuple[ir.Value, ir.Value]:
    batch, _, tokens, size = dims_of(x) or ()
    table, positions = site.bound[f"{name} rows"], site.bound[f"{name} positions"]
    axis = site_of(site, site.bound[f"{name} found"]).integer("axis")
    shape = site.shape(table, f"the table of {name}")
    fits = axis == 0 and len(shape) == 2 and shape[1] == size
    site.require(fits, f"the table {shape} of {name} does not fit {x.shape}")
    fits = dims_of(positions) == (batch, tokens) and positions.dtype == ir.DataType.INT64
    site.require(fits, f"the positions {positions.shape} do not fit {x.shape}, or are no int64")
    rows = _narrow(site, site.constant(table, f"the table of {name}"), name, neighbours)
    factor, dtype = _factor(site, name), _cast(site, name, table)
    return op.const(rows * rows.dtype.type(factor), dtype, name=name), positions


def _factor(site: Site, name: str) -> float:
    return value_of(site, f"{name} factor") if f"{name} factor" in site.bound else 1.0


def _cast(site: Site, name: str, before: ir.Value) -> ir.DataType | None:
    """The type of a table in the end."""
    if f"{name} cast" not in site.bound:
        return before.dtype
    cast = site_of(site, site.bound[f"{name} cast"])
    cast.ignore("saturate", "round_mode")  # they are about 8-bit floats
    return ir.DataType(cast.integer("to"))


def _narrow(site: Site, table: Array, name: str, neighbours: bool) -> Array:
    """One angle a pair of features."""
    half = table.shape[-1] // 2
    parts = (
        (table[..., ::2], table[..., 1::2])
        if neighbours
        else (table[..., :half], table[..., half:])
    )
    equal = table.shape[-1] % 2 == 0 and np.array_equal(*parts)
    site.require(equal, f"the two features of a pair have different {name}")
    return parts[0]
