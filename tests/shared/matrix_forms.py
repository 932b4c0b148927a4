"""The smallest graph of each form that ``../shared/measured/qnn_matrix.tsv`` names.

Group A is onnx's own node tests; ``[const params]`` there means that every input but the first is
stored in the model. For the other groups one builder per op reads the words of the form's name.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
from onnx.backend.test.case.node import collect_testcases

from rewriter import packing
from tests.graphs import Builder

F32, F16, I32 = ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.INT32
MS = "com.microsoft::"
Shape = Sequence[int]
Builds = Callable[[str, str, ir.DataType], ir.Model]

BUILDERS: dict[str, Builds] = {}
"""By the case's name: what builds it, from that name, the form's and a float type."""


def build(group: str, case: str, form: str, dtype: str) -> ir.Model:
    """The graph of a line of the matrix."""
    if group == "A":
        return official(case, form)
    return BUILDERS[case](case, form, {"f16": F16, "f32": F32}[dtype])


@cache
def _official() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numpy, about the infinities in the expected outputs
        return {case.name.removeprefix("test_"): case for case in collect_testcases("")}


def official(op: str, form: str) -> ir.Model:
    """A node test of onnx by its name."""
    name, const, _ = form.partition(" [const params]")
    case = _official()[name]
    model: ir.Model = ir.from_proto(case.model)
    if const:
        given, _ = case.data_sets[0]
        for value, array in zip(list(model.graph.inputs)[1:], given[1:], strict=True):
            model.graph.inputs.remove(value)
            value.const_value = ir.tensor(array, name=value.name)
            model.graph.initializers.add(value)
    assert any(node.op_type == op for node in model.graph)
    return model


def builds(*cases: str) -> Callable[[Builds], Builds]:
    """Register a builder for cases of the matrix."""

    def register(builder: Builds) -> Builds:
        BUILDERS.update(dict.fromkeys(cases, builder))
        return builder

    return register


class FormBuilder(Builder):
    """A builder of one node in one float type."""

    def __init__(self, dtype: ir.DataType) -> None:
        super().__init__()
        self.dtype = dtype
        self._count = 0

    def x(self, *shape: int, dtype: ir.DataType | None = None) -> ir.Value:
        """A graph input."""
        self._count += 1
        return self.input(f"x{self._count}", dtype or self.dtype, shape)

    def w(self, *shape: int) -> ir.Value:
        """A stored weight."""
        return self.c(self.rng.standard_normal(shape).astype(self.dtype.numpy()))

    def c(self, array: npt.ArrayLike | ir.TensorProtocol) -> ir.Value:
        """A stored constant."""
        self._count += 1
        return self.const(f"c{self._count}", array)

    def one(
        self,
        op: str,
        inputs: Sequence[ir.Value | None],
        *shapes: Shape | None,
        opset: int = 22,
        second: ir.DataType | None = None,
        **attributes: Any,
    ) -> ir.Model:
        """The model of a node with outputs of these shapes; ``None`` is one that is left out.

        ``second`` is the type of the outputs after the first, where it is another.
        """
        names = ["" if shape is None else f"y{i}" for i, shape in enumerate(shapes)]
        values = self.node(op, inputs, names, **attributes)
        kinds = [self.dtype, *[second or self.dtype] * (len(shapes) - 1)]
        given = zip(values, kinds, shapes, strict=True)
        outputs = [(value, kind, shape) for value, kind, shape in given if shape is not None]
        return self.model(outputs, opset)


@builds("Attention(ms)")
def _ms_attention(_case: str, form: str, dtype: ir.DataType) -> ir.Model:
    b = FormBuilder(dtype)
    inputs = [b.x(2, 4, 32), b.w(32, 96), b.w(96)]
    causal = int(form == "unidirectional")
    return b.one(f"{MS}Attention", inputs, (2, 4, 32), num_heads=2, unidirectional=causal)


@builds("BiasGelu", "BiasSplitGelu", "FastGelu")
def _gelu(case: str, form: str, dtype: ir.DataType) -> ir.Model:
    b, split = FormBuilder(dtype), case == "BiasSplitGelu"
    width = 2560 if split else 16
    inputs = [b.x(2, 3, width), *([b.w(width)] if case != "FastGelu" or form == "bias" else [])]
    return b.one(MS + case, inputs, (2, 3, width // 2 if split else width))


@builds("GatherBlockQuantized")
def _gather_block_quantized(_case: str, form: str, dtype: ir.DataType) -> ir.Model:
    b, rows, width = FormBuilder(dtype), 16, 128
    words = form.split()
    block = int(words[-1].removeprefix("bs") if words[0] != "u8" else words[2].removeprefix("bs"))
    blocks = width // block
    inputs: list[ir.Value | None]
    if words[0] != "u8":
        kind = {"int4": ir.DataType.INT4, "uint4": ir.DataType.UINT4}[words[0]]
        low = -8 if words[0] == "int4" else 0
        codes = b.rng.integers(low, low + 16, (rows, width))
        small = codes.astype(np.int8 if low else np.uint8)
        inputs, bits = [b.c(packing.integers(small, kind))], 4
    else:
        bits = int(words[1].removeprefix("bits"))
        codes = b.rng.integers(0, 256, (rows, width * bits // 8))
        inputs = [b.c(codes.astype(np.uint8))]
    inputs += [b.x(2, 3, dtype=ir.DataType.INT64), b.w(rows, blocks)]
    if words[-1] == "zp":
        inputs.append(b.c(b.rng.integers(0, 256, (rows, blocks * bits // 8)).astype(np.uint8)))
    sizes: dict[str, Any] = {
        "bits": bits,
        "block_size": block,
        "gather_axis": 0,
        "quantize_axis": 1,
    }
    return b.one(f"{MS}GatherBlockQuantized", inputs, (2, 3, width), **sizes)


@builds("GroupQueryAttention")
def _group_query_attention(_case: str, form: str, dtype: ir.DataType) -> ir.Model:
    b, kv, rows = FormBuilder(dtype), 2, 32
    heads = 8 if "Hq8" in form else 4
    size = 128 if "D128" in form else 64 if "D64" in form else 16
    tokens = 1 if form.startswith("decode") else 4 if "chunk" in form else 8
    total = rows if "total=32" in form else 9 if "chunk" in form else 17 if tokens == 1 else 8
    widths = [(heads + 2 * kv) * size] if "packed" in form else [heads * size, *[kv * size] * 2]
    qkv: list[ir.Value | None] = [b.x(1, tokens, width) for width in widths]
    qkv += [None] * (3 - len(qkv))
    past = 0 if "empty past" in form else rows
    present = (1, kv, past or tokens, size)
    caches = [b.x(1, kv, past, size), b.x(1, kv, past, size)]
    lengths = b.x(*((1, 1) if "seqlens rank2" in form else (1,)), dtype=I32)
    count = b.x(dtype=I32) if "tl-input" in form else b.c(np.array(total, np.int32))
    rotary = any(word in form for word in ("rotary", "D128", "D64"))
    tables = [b.w(64, size // 2), b.w(64, size // 2)] if rotary else [None, None]
    bias = b.x(1, 1, tokens, total) if "attention_bias" in form else None
    sink = b.w(heads) if "head_sink" in form else None
    attributes: dict[str, Any] = {"num_heads": heads, "kv_num_heads": kv}
    attributes |= {"do_rotary": int(rotary), "rotary_interleaved": int("interleaved" in form)}
    for word, name, value in (
        ("softcap", "softcap", 30.0),
        ("window", "local_window_size", 4),
        ("smooth", "smooth_softmax", 1),
        ("scale attr", "scale", 0.5),
    ):
        attributes |= {name: value} if word in form else {}
    inputs = [*qkv, *caches, lengths, count, *tables, None, bias, sink]
    shapes = (1, tokens, heads * size), present, present
    return b.one(f"{MS}GroupQueryAttention", inputs, *shapes, **attributes)


@builds("MatMulNBits")
def _matmul_nbits(_case: str, form: str, dtype: ir.DataType) -> ir.Model:
    b, n = FormBuilder(dtype), 64
    found = re.match(r"bits(\d) bs(\d+)", form)
    assert found is not None
    bits, block = int(found[1]), int(found[2])
    k = 144 if "K=144" in form else 128
    blocks = -(-k // block)
    lead = (8,) if "rank2" in form else (1, 8)
    codes = b.rng.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8)
    inputs: list[ir.Value | None] = [b.x(*lead, k), b.c(codes), b.w(n, blocks), None, None, None]
    if "float zp" in form:
        inputs[3] = b.w(n, blocks)
    elif "zp" in form:
        inputs[3] = b.c(b.rng.integers(0, 256, (n, blocks * bits // 8)).astype(np.uint8))
    if "g_idx" in form:
        inputs[4] = b.c(b.rng.permutation(np.arange(k) // block).astype(np.int32))
    if "bias" in form:
        inputs[5] = b.w(n)
    sizes: dict[str, Any] = {"K": k, "N": n, "bits": bits, "block_size": block}
    return b.one(f"{MS}MatMulNBits", inputs, (*lead, n), **sizes)


@builds("MoE")
def _moe(_case: str, form: str, dtype: ir.DataType) -> ir.Model:
    b, experts, width, inner = FormBuilder(dtype), 4, 32, 64
    up = b.w(experts, inner, width)
    inputs: list[ir.Value | None] = [b.x(8, width), b.x(8, experts), up, None]
    inputs += [b.w(experts, width, inner), None]
    if form.startswith("silu"):
        inputs.append(b.w(experts, inner, width))
    kind, k = form.split()
    attributes: dict[str, Any] = {"activation_type": kind, "k": int(k.removeprefix("k"))}
    return b.one(f"{MS}MoE", inputs, (8, width), **attributes)


@builds("QMoE")
def _qmoe(_case: str, form: str, dtype: ir.DataType) -> ir.Model:
    b, experts, width, inner = FormBuilder(dtype), 4, 64, 64
    kind, bits, k = form.split()
    size = int(bits.removesuffix("bit"))
    fused = 2 if kind == "swiglu" else 1

    def codes(rows: int, columns: int) -> ir.Value:
        packed = (experts, rows, columns * size // 8)
        return b.c(b.rng.integers(0, 256, packed).astype(np.uint8))

    inputs: list[ir.Value | None] = [b.x(8, width), b.x(8, experts)]
    inputs += [codes(fused * inner, width), b.w(experts, fused * inner), None]
    inputs += [codes(width, inner), b.w(experts, width), None]
    attributes: dict[str, Any] = {"activation_type": kind, "k": int(k.removeprefix("k"))}
    attributes |= {"expert_weight_bits": size, "swiglu_fusion": int(fused == 2)}
    return b.one(f"{MS}QMoE", inputs, (8, width), **attributes)


@builds("MultiHeadAttention")
def _multi_head_attention(_case: str, form: str, dtype: ir.DataType) -> ir.Model:
    b, batch, tokens, heads, size = FormBuilder(dtype), 2, 4, 2, 16
    width, past = heads * size, 6 if form == "past present" else 0
    inputs: list[ir.Value | None] = [b.x(batch, tokens, width) for _ in range(3)]
    inputs += [None] * 5
    keys = tokens + past
    if form == "packed qkv":
        b.inputs.clear()
        inputs[:3] = [b.x(batch, tokens, heads, 3, size), None, None]
    if form == "cross k/v rank4":
        b.inputs[1:] = []
        keys = 6
        inputs[1:3] = [b.x(batch, heads, keys, size), b.x(batch, heads, keys, size)]
    if form == "bias":
        inputs[3] = b.w(3 * width)
    if form == "key_padding_mask":
        inputs[4] = b.x(batch, keys, dtype=I32)
    if form == "attention_bias":
        inputs[5] = b.x(batch, heads, tokens, keys)
    if past:
        inputs[6:] = [b.x(batch, heads, past, size), b.x(batch, heads, past, size)]
    attributes: dict[str, Any] = {"num_heads": heads}
    attributes |= {"scale": 0.5} if form == "scale" else {}
    attributes |= {"unidirectional": 1} if form == "unidirectional" else {}
    present = [(batch, heads, keys, size)] * 2 if past else []
    return b.one(f"{MS}MultiHeadAttention", inputs, (batch, tokens, width), *present, **attributes)


@builds("RotaryEmbedding(ms)")
def _ms_rotary_embedding(_case: str, form: str, dtype: ir.DataType) -> ir.Model:
    b, batch, tokens, heads, size = FormBuilder(dtype), 2, 4, 2, 16
    shape = (batch, heads, tokens, size) if "rank4" in form else (batch, tokens, heads * size)
    part = size // 2 if "partial" in form else size
    position = (1,) if "scalar position" in form else (batch, tokens)
    named = ("rank3" in form and "no num_heads" not in form) or "rank4 num_heads" in form
    attributes: dict[str, Any] = {}
    if named or "partial" in form:
        attributes |= {"num_heads": heads}
    if "partial" in form:
        attributes |= {"rotary_embedding_dim": part}
    if "explicit" in form:
        attributes |= {"interleaved": 0, "rotary_embedding_dim": 0, "scale": 1.0}
    if "interleaved" in form:
        attributes |= {"interleaved": 1}
    opset = re.search(r"opset(\d+)", form)
    inputs = [b.x(*shape), b.x(*position, dtype=ir.DataType.INT64)]
    inputs += [b.w(32, part // 2), b.w(32, part // 2)]
    return b.one(f"{MS}RotaryEmbedding", inputs, shape, opset=int(opset[1]) if opset else 22,
                 **attributes)  # fmt: skip


@builds("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
def _skip(case: str, form: str, dtype: ir.DataType) -> ir.Model:
    b, shape = FormBuilder(dtype), (2, 3, 16)
    inputs: list[ir.Value | None] = [b.x(*shape), b.x(*shape), b.w(16)]
    inputs += [b.w(16)] if case == "SkipLayerNormalization" else []
    inputs += [b.w(16)] if form == "bias in" else []
    outputs = [shape, None, None, shape] if form == "sum out" else [shape]
    return b.one(MS + case, inputs, *outputs, epsilon=1e-5)


@builds("RMSNormalization", "SimplifiedLayerNormalization")
def _norm(case: str, form: str, dtype: ir.DataType) -> ir.Model:
    b, outputs = FormBuilder(dtype), 2 if "2 outs" in form else 1
    shape: tuple[int, ...] = (2, 3, 16)
    if "x" in form:
        shape = tuple(int(size) for size in form.split()[0].split("x"))
    epsilon = re.search(r"eps=(\S+)", form)
    attributes: dict[str, Any] = {"axis": -1}
    if epsilon and epsilon[1] != "None":
        attributes |= {"epsilon": float(epsilon[1])}
    shapes = [shape, (*shape[:-1], 1)][:outputs]
    inputs = [b.x(*shape), b.w(shape[-1])]
    return b.one(case, inputs, *shapes, opset=23, second=F32, **attributes)


@builds("mask Attention23")
def _masked_attention(_case: str, form: str, dtype: ir.DataType) -> ir.Model:
    b, heads, tokens, size = FormBuilder(dtype), 2, 8, 16
    lowest = form.split()[0]
    fill = np.finfo(np.float32).min if lowest == "-FLT_MAX" else float(lowest)
    mask = np.where(np.tri(tokens, dtype=bool), 0, fill).astype(dtype.numpy())
    if "fully masked" in form:
        mask[3] = fill
    inputs = [b.x(1, heads, tokens, size) for _ in range(3)]
    return b.one("Attention", [*inputs, b.c(mask)], (1, heads, tokens, size), opset=23)
