"""com.microsoft QMoE with integer weights, as a few MatMulNBits that all experts share.

Codes stay packed as they are: MatMulNBits reads the same bytes (low bits first, zero point
2^(bits-1) where none is given). Scales per row become scales per block with one value repeated.
Without ``router_weights`` the weights of the selected experts are the softmax over their logits,
whatever ``normalize_routing_weights`` says; with them, they are taken (and normalized if it says
so), and what is not above 0 is left out (ORT 1.32 contrib docs, ``moe_quantization_cpu.cc``).
"""

from __future__ import annotations

import onnx_ir as ir

from rewriter.rule import lowers
from rewriter.rules.parts import experts as parts
from rewriter.rules.parts import moe_inputs as inputs
from rewriter.rules.parts import routing
from rewriter.rules.parts.expert_arrangement import Arrangement, Order
from rewriter.rules.parts.expert_linears import PackedLinear
from rewriter.site import Site
from rewriter.tape import Tape

_LAYOUT = (
    "weights_prepacked=1 is a layout of the provider the file was made for: "
    "export with weights_prepacked=0"
)


@lowers(
    "com.microsoft::QMoE",
    emits=(*parts.EMITS, *routing.EMITS, "com.microsoft::MatMulNBits"),
    opset=20,
)
def dense_packed_experts(op: Tape, site: Site) -> ir.Value:
    """[W2_0 W2_1 ...] · (w · act([W1_0; W1_1; ...] · x + b1)) + w · b2, W as MatMulNBits."""
    site.ignore("accuracy_level")  # leave to round activations, not a part of the function
    quant = site.attribute("quant_type")
    site.require(quant == "int", f"quant_type={quant} is no integer format")
    site.require(site.integer("weights_prepacked") in {-1, 0}, _LAYOUT)
    act = inputs.activation(site)
    hidden = site.shape(site.input("input"), "input")[-1]
    codes = site.stored(site.input("fc1_experts_weights"), "fc1_experts_weights")
    count, rows = (int(d) for d in codes.shape.numpy()[:2])
    separate = act.gated and site.optional("fc3_experts_weights") is not None
    inner = rows // (2 if act.gated and not separate else 1)

    def linear(name: str, rows: int, columns: int, arrangement: Arrangement) -> PackedLinear:
        return _linear(site, name, (count, rows, columns), arrangement)

    first = [linear("fc1", rows, hidden, Arrangement(inputs.order(site, act)))]
    if separate:
        first.append(linear("fc3", inner, hidden, Arrangement(Order.plain)))
    experts = parts.DenseExperts(
        count,
        inner,
        tuple(first),
        act,
        linear("fc2", hidden, inner, inputs.SIDE_BY_SIDE),
        inputs.second_bias(op, site, hidden, count),
    )
    mixing = site.optional("router_weights")
    normalize = site.integer("normalize_routing_weights") == 1 or mixing is None
    return inputs.mixture(op, site, experts, normalize=normalize, mixing=mixing)


def _linear(
    site: Site, fc: str, sizes: tuple[int, int, int], arrangement: Arrangement
) -> PackedLinear:
    count, rows, columns = sizes
    bits = site.integer(f"{fc}_expert_weight_bits", site.integer("expert_weight_bits"))
    site.require(bits in {2, 4, 8}, f"{fc} has {bits}-bit codes, which MatMulNBits has not")
    value = site.input(f"{fc}_experts_weights")
    codes = site.stored(value, f"{fc}_experts_weights")
    site.require(codes.dtype == ir.DataType.UINT8, f"{fc}_experts_weights are {codes.dtype}")
    _require(site, f"{fc}_experts_weights", codes, (count, rows, columns * bits // 8))
    scales = site.stored(site.input(f"{fc}_scales"), f"{fc}_scales")
    dtype = site.input("input").dtype
    site.require(scales.dtype == dtype, f"{fc}_scales are {scales.dtype}, the input is {dtype}")
    block = site.attribute("block_size") or 0
    blocks = columns // block if block else 1
    site.require(not block or blocks * block == columns, f"{columns} is no multiple of {block}")
    _require(site, f"{fc}_scales", scales, (count, rows, blocks) if block else (count, rows))
    points = site.optional(f"{fc}_zero_points")
    packed = None if points is None else site.stored(points, f"{fc}_zero_points")
    if packed is not None:
        site.require(packed.dtype == ir.DataType.UINT8, f"{fc}_zero_points are {packed.dtype}")
        width = -(-(blocks if block else rows) * bits // 8)
        shape = (count, rows, width) if block else (count, width)
        _require(site, f"{fc}_zero_points", packed, shape)
    added = None
    if arrangement is not inputs.SIDE_BY_SIDE:
        added = inputs.bias(site, f"{fc}_experts_bias", rows, count)
    found = PackedLinear(value, codes, scales, packed, bits, arrangement, added)
    site.require(found.block >= 16, f"{fc} has blocks of {found.block}; MatMulNBits wants 16")
    return found


def _require(site: Site, name: str, tensor: ir.TensorProtocol, wanted: tuple[int, ...]) -> None:
    inputs.require_shape(site, name, tuple(int(d) for d in tensor.shape.numpy()), wanted)
