"""MoE and QMoE in the one layout of gates and values that ORT CPU has a kernel for.

It takes swiglu with gates and values of fc1 in turns (``swiglu_fusion=1``). Where they lie one
after the other (2), or the values are those of fc3 (0), the rows of fc1 are put in that order for
the comparison: the schema gives all three the same meaning.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from rewriter import packing
from rewriter.nodes import attributes_of, constant, op_of
from rewriter.parity.exact_experts import changed
from rewriter.schemas import schema_of

_OPS = frozenset({"com.microsoft::MoE", "com.microsoft::QMoE"})
_ROWS = ("experts_weights", "scales", "experts_bias", "zero_points")
Array = npt.NDArray[Any]


def interleave(model: ir.Model) -> int:
    """Reorder the stored experts of swiglu in place; returns of how many nodes."""
    return sum(
        op_of(node) in _OPS and _interleave(node) for graph in model.graphs() for node in graph
    )


def _interleave(node: ir.Node) -> bool:
    said = attributes_of(node, 1)
    names = schema_of(op_of(node), 1).inputs
    at = {name: i for i, name in enumerate(names) if i < len(node.inputs) and node.inputs[i]}
    first = [f"fc1_{what}" for what in _ROWS if f"fc1_{what}" in at]
    third = [f"fc3_{what}" for what in _ROWS if f"fc3_{what}" in at]
    fusion = said["swiglu_fusion"]
    fits = not third if fusion == 2 else [n[3:] for n in third] == [n[3:] for n in first]
    if said["activation_type"] != "swiglu" or fusion == 1 or not fits:
        return False
    if any(constant(node.inputs[at[name]]) is None for name in (*first, *third)):
        return False
    bits = int(said.get("fc1_expert_weight_bits") or said.get("expert_weight_bits") or 0)
    values = {name: _array(node, at[name]) for name in (*first, *third)}
    for name in first:
        other = values.get(f"fc3{name[3:]}")
        along = name.endswith("zero_points") and values[name].ndim == 2  # packed along the rows
        count = values[name.replace("zero_points", "scales")].shape[1] if along else 0
        halves = [values[name]] if other is None else [values[name], other]
        value = node.inputs[at[name]]
        assert value is not None
        weave = partial(_in_turns, _woven(halves, bits, count))
        node.replace_input_with(at[name], changed(node, value, weave, "in turns"))
    for name in third:
        node.replace_input_with(at[name], None)
    node.attributes.add(ir.AttrInt64("swiglu_fusion", 1))
    return True


def _array(node: ir.Node, at: int) -> Array:
    stored = constant(node.inputs[at])
    assert stored is not None
    return np.asarray(stored.numpy())


def _in_turns(woven: Array, _: Array) -> Array:
    return woven


def _woven(halves: list[Array], bits: int, packed_rows: int) -> Array:
    """Rows (E, N, ...) of gates and of values in turns, of one array or of two."""
    if packed_rows:
        halves = [packing.unpack_bits(half, bits, packed_rows) for half in halves]
    gates, values = halves if len(halves) == 2 else np.split(halves[0], 2, axis=1)
    count, rows, *rest = gates.shape
    woven = np.stack([gates, values], axis=2).reshape(count, 2 * rows, *rest)
    return packing.pack_bits(woven, bits) if packed_rows else woven
