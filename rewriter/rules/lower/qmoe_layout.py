"""com.microsoft QMoE in the layout that ONNX Runtime's CUDA kernel documents, of the same codes.

The kernel wants gates and values in fc1 (fc3 is checked and not read), takes raw codes (E, N, K)
where ``weights_prepacked=0`` says so, and implies zero points of 2^(bits-1) where none are given
(``contrib_ops/cuda/moe/README.md`` and the schema of ONNX Runtime). A file that leaves
``weights_prepacked`` out is read as one for the CPU: its shapes have to say (E, N, K) too, which
those of codes packed for CUTLASS do not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from rewriter import packing
from rewriter.rule import lowers
from rewriter.rules.parts import moe_inputs as inputs
from rewriter.rules.parts import qmoe_inputs
from rewriter.rules.parts.expert_arrangement import Array
from rewriter.site import Site
from rewriter.tape import Tape

_OP = "com.microsoft::QMoE"
_ORDER = (
    *("input", "router_probs", "fc1_experts_weights", "fc1_scales", "fc1_experts_bias"),
    *("fc2_experts_weights", "fc2_scales", "fc2_experts_bias", "fc3_experts_weights"),
    *("fc3_scales", "fc3_experts_bias", "fc1_zero_points", "fc2_zero_points"),
    *("fc3_zero_points", "router_weights"),
)


@lowers(
    _OP,
    emits=(f"{_OP}[weights_prepacked=0]",),
    form="weights_prepacked=-1",
    order=-3,
    direct=True,
)
def concatenated_experts(op: Tape, site: Site) -> ir.Value:
    """The same with gates before values in fc1, raw codes, and no zero points that are implied."""
    qmoe_inputs.layer(op, site)  # refuses what is not laid out as the schema says
    gated = inputs.activation(site).gated
    given = {name: site.optional(name) for name in _ORDER}
    for what in ("zero_points", "experts_weights", "scales", "experts_bias"):
        first, third = f"fc1_{what}", given.pop(f"fc3_{what}")
        if what == "zero_points":
            given[first] = _unless_middle(site, "fc1", given[first])
            given["fc2_zero_points"] = _unless_middle(site, "fc2", given["fc2_zero_points"])
            third = _unless_middle(site, "fc3", third)
        both = [value for value in (given[first], third) if value is not None]
        if both and gated:
            given[first] = _halves(op, site, what, both)
    ordered = [given.get(name) for name in _ORDER]
    while ordered[-1] is None:
        ordered.pop()
    same = {name: site.attribute(name) for name in site.node.attributes}
    changed = {"weights_prepacked": 0, "swiglu_fusion": 2 if gated else 0}
    if given["router_weights"] is None:  # the CPU's kernel does so whatever it says
        changed["normalize_routing_weights"] = 1
    return op.emit(_OP, ordered, {**same, **changed})[0]


def _unless_middle(site: Site, fc: str, points: ir.Value | None) -> ir.Value | None:
    """Packed zero points, or none where each of them is the one that is implied."""
    if points is None:
        return None
    bits = qmoe_inputs.bits_of(site, fc)
    packed = site.constant(points, f"{fc}_zero_points")
    scales = site.stored(site.input(f"{fc}_scales"), f"{fc}_scales").shape.numpy()
    loose = packing.unpack_bits(packed, bits, int(scales[-1]))
    return None if bool(np.all(loose == 1 << (bits - 1))) else points


def _halves(op: Tape, site: Site, what: str, values: Sequence[ir.Value]) -> ir.Value:
    """Rows (E, N, ...) of gates before those of values: of two tensors, or as one holds them."""
    site.require(
        len(values) == 2 or site.integer("swiglu_fusion") != 0,
        f"fc1 and fc3 do not both have {what}",
    )
    tensors = [site.stored(value, what) for value in values]
    if len(tensors) == 1 and site.integer("swiglu_fusion") == 2:
        return values[0]
    count, rows, *rest = (int(d) for d in tensors[0].shape.numpy())
    shape = (count, rows * len(tensors), *rest)

    def build() -> ir.TensorProtocol:
        array: Array = np.concatenate([tensor.numpy() for tensor in tensors], axis=1)
        if len(tensors) == 1:
            array = np.concatenate([array[:, 0::2], array[:, 1::2]], axis=1)
        return ir.tensor(np.ascontiguousarray(array), dtype=tensors[0].dtype)

    lazy = ir.LazyTensor(build, tensors[0].dtype, ir.Shape(shape))
    return op.weight(("gates before values", *values), lazy, what)
