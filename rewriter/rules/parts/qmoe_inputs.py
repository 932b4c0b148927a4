"""The weights of a QMoE, read off a node: packed codes, scales, zero points, biases.

Codes stay packed as they are: MatMulNBits reads the same bytes (low bits first, zero point
2^(bits-1) where none is given). Scales per row become scales per block with one value repeated.
Without ``router_weights`` the weights of the selected experts are the softmax over their logits,
whatever ``normalize_routing_weights`` says; with them, they are taken (and normalized if it says
so), and what is not above 0 is left out (ORT 1.32 contrib docs, ``moe_quantization_cpu.cc``).
"""

from __future__ import annotations

import onnx_ir as ir

from rewriter.rules.parts import moe_inputs as inputs
from rewriter.rules.parts.expert_arrangement import Arrangement, Order
from rewriter.rules.parts.expert_codes import ExpertCodes
from rewriter.rules.parts.expert_products import PackedLinear, Product, matmul_nbits
from rewriter.rules.parts.moe_layer import Layer
from rewriter.site import Site
from rewriter.tape import Tape

_LAYOUT = (
    "weights_prepacked=1 is a layout of the provider the file was made for: "
    "export with weights_prepacked=0"
)


def layer(op: Tape, site: Site, product: Product = matmul_nbits) -> Layer:
    """What a QMoE of integers says, or a refusal.

    Args:
        op: the tape.
        site: the node.
        product: with the weights of chosen experts.
    """
    site.ignore("accuracy_level")  # leave to round activations, not a part of the function
    quant = site.attribute("quant_type")
    site.require(quant == "int", f"quant_type={quant} is no integer format")
    site.require(site.integer("weights_prepacked") in {-1, 0}, _LAYOUT)
    act = inputs.activation(site)
    hidden = inputs.hidden_size(site)
    codes = site.stored(site.input("fc1_experts_weights"), "fc1_experts_weights")
    count, rows = (int(d) for d in codes.shape.numpy()[:2])
    op.note("experts: codes, scales and zero points are put in another order, their values exact")
    separate = act.gated and site.optional("fc3_experts_weights") is not None
    inner = rows // (2 if act.gated and not separate else 1)

    def linear(name: str, rows: int, columns: int, arrangement: Arrangement) -> PackedLinear:
        return _linear(site, name, (count, rows, columns), arrangement, product)

    first = [linear("fc1", rows, hidden, Arrangement(inputs.order(site, act)))]
    if separate:
        first.append(linear("fc3", inner, hidden, Arrangement(Order.plain)))
    mixing = site.optional("router_weights")
    return Layer(
        count,
        inner,
        act,
        tuple(first),
        linear("fc2", hidden, inner, inputs.SIDE_BY_SIDE),
        inputs.second_bias(op, site, hidden, count),
        normalize=site.integer("normalize_routing_weights") == 1 or mixing is None,
        mixing=mixing,
    )


def bits_of(site: Site, fc: str) -> int:
    """Bits of a code of fc1, fc2 or fc3."""
    return site.integer(f"{fc}_expert_weight_bits", site.integer("expert_weight_bits"))


def _linear(
    site: Site,
    fc: str,
    sizes: tuple[int, int, int],
    arrangement: Arrangement,
    product: Product,
) -> PackedLinear:
    count, rows, columns = sizes
    bits = bits_of(site, fc)
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
    weight = ExpertCodes(value, codes, scales, packed, bits, arrangement)
    site.require(weight.block >= 16, f"{fc} has blocks of {weight.block}; MatMulNBits wants 16")
    return PackedLinear(weight, added, product)


def _require(site: Site, name: str, tensor: ir.TensorProtocol, wanted: tuple[int, ...]) -> None:
    inputs.require_shape(site, name, tuple(int(d) for d in tensor.shape.numpy()), wanted)
