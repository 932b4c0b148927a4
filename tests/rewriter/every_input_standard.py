"""A node for every op that rules lower, and another value for each thing that it may be given.

A change holds the value of what it is named after, and what has to be there besides; the node
that it is compared with has the latter, and not the former.
"""

# ruff: file-ignore[line-too-long] - a table, one change a line

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from rewriter import packing
from tests.fuzz.case import BOOL, F32, I64, Arg, Case, arg

GONE = None
"""In a change: what the node has is left out."""

_RNG = np.random.default_rng(0)


def f(*shape: int, const: bool = False) -> Arg:
    return arg(_RNG.standard_normal(shape).astype(np.float32), const=const)


def i(values: Any, kind: Any = np.int64, *, const: bool = False) -> Arg:
    return arg(np.asarray(values, kind), const=const)


def codes(*shape: int) -> Arg:
    return arg(_RNG.integers(0, 256, shape).astype(np.uint8), const=True)


def scales(*shape: int) -> Arg:
    return arg((_RNG.uniform(0.5, 1.5, shape) / 8).astype(np.float32), const=True)


def table(rows: int, width: int) -> dict[str, Arg]:
    angles = _RNG.uniform(-3, 3, (rows, width))
    return {
        n: arg(w(angles).astype(np.float32))
        for n, w in (("cos_cache", np.cos), ("sin_cache", np.sin))
    }


Changes = dict[str, dict[str, Any]]


def node(op: str, inputs: dict[str, Arg], outputs: tuple[Any, ...] = (F32,), opset: int = 22, **said: Any) -> Case:  # fmt: skip
    return Case(op, inputs, outputs, said, opset)


STANDARD: dict[str, tuple[Case, Changes]] = {
    "Attention": (
        node("Attention", {"Q": f(2, 4, 3, 8), "K": f(2, 2, 3, 8), "V": f(2, 2, 3, 8)}, opset=25),
        {
            "attn_mask": {"attn_mask": i([[1, 0, 1], [1, 1, 0], [0, 1, 1]], bool)},
            "past_key": {"past_key": f(2, 2, 2, 8), "past_value": f(2, 2, 2, 8), "outputs": 3},
            "past_value": {"past_key": f(2, 2, 2, 8), "past_value": f(2, 2, 2, 8), "outputs": 3},
            "nonpad_kv_seqlen": {"nonpad_kv_seqlen": i([2, 1])},
            "right_window_size": {"right_window_size": 0},
            "left_window_size": {"left_window_size": 0},
            "qk_matmul_output_mode": {"qk_matmul_output_mode": 3, "outputs": 4},
            "softcap": {"softcap": 0.7},
            "kv_num_heads": {"kv_num_heads": 2, "q_num_heads": 4, "Q": f(2, 3, 32), "K": f(2, 3, 16), "V": f(2, 3, 16)},
            "q_num_heads": {"kv_num_heads": 2, "q_num_heads": 4, "Q": f(2, 3, 32), "K": f(2, 3, 16), "V": f(2, 3, 16)},
            "scale": {"scale": 0.9},
            "is_causal": {"is_causal": 1},
        },
    ),
    "CumSum": (
        node("CumSum", {"x": f(3, 4), "axis": i(1, const=True)}, exclusive=1, reverse=1),
        {"reverse": {"reverse": GONE}, "exclusive": {"exclusive": GONE}},
    ),
    "Concat": (
        node("Concat", {"inputs_0": f(2, 2), "inputs_1": f(2, 2), "inputs_2": arg(np.zeros((2, 0), np.float32))}, axis=1),
        {"axis": {"axis": 0, "inputs_2": arg(np.zeros((0, 2), np.float32))}},
    ),
    "DequantizeLinear": (
        node("DequantizeLinear", {"x": arg(packing.integers(_RNG.integers(-8, 8, (32, 32)), ir.DataType.INT4), const=True), "x_scale": scales(32)}, opset=23),
        {
            "x_zero_point": {"x_zero_point": arg(packing.integers(_RNG.integers(-8, 8, 32), ir.DataType.INT4), const=True)},
            "axis": {"axis": 0},
            "block_size": {"block_size": 16, "axis": 0, "x_scale": scales(2, 32)},
            "output_dtype": {"output_dtype": 10, "kind": ir.DataType.FLOAT16},
        },
    ),
    "Einsum": (
        node("Einsum", {"Inputs_0": f(3, 3), "Inputs_1": f(3, 3)}, equation="ij,jk->ik"),
        {"equation": {"equation": "ij,kj->ki"}},
    ),
    "Elu": (node("Elu", {"X": f(2, 2, 2, 2, 2)}), {"alpha": {"alpha": 0.3}}),
    "Gather": (
        node("Gather", {"data": i(_RNG.integers(0, 9, (3, 3)), const=True), "indices": i([2, 0])}, (I64,)),
        {"axis": {"axis": 1}},
    ),
    "GatherElements": (
        node("GatherElements", {"data": f(3, 2), "indices": i([[-1, 0], [1, -2]], const=True)}),
        {"axis": {"axis": 1}},
    ),
    "GatherND": (
        node("GatherND", {"data": f(2, 2, 2), "indices": i([[1], [0]])}),
        {"batch_dims": {"batch_dims": 1}},
    ),
    "Gelu": (node("Gelu", {"X": f(9)}), {"approximate": {"approximate": "tanh"}}),
    "Gemm": (
        node("Gemm", {"A": f(3, 3), "B": f(3, 3), "C": f(3)}, alpha=0.5, beta=0.3),
        {
            "C": {"C": GONE}, "beta": {"beta": 2.0}, "transB": {"transB": 1},
            "alpha": {"alpha": 3.0}, "transA": {"transA": 1},
        },
    ),
    "HardSigmoid": (
        node("HardSigmoid", {"X": f(2, 2, 2, 2, 2)}),
        {"alpha": {"alpha": 0.3}, "beta": {"beta": 0.1}},
    ),
    "LayerNormalization": (
        node("LayerNormalization", {"X": f(2, 3, 4), "Scale": f(4)}),
        {
            "B": {"B": f(4)}, "epsilon": {"epsilon": 0.5},
            "axis": {"axis": 1, "Scale": f(3, 4)},
        },
    ),
    "Pad": (
        node("Pad", {"data": f(2, 3), "pads": i([0, 1, 1, 2], const=True)}),
        {
            "constant_value": {"constant_value": arg(np.float32(3), const=True)},
            "axes": {"axes": i([1, 0], const=True)}, "mode": {"mode": "edge"},
        },
    ),
    "RMSNormalization": (
        node("RMSNormalization", {"X": f(2, 3, 4), "scale": f(4)}, opset=24),
        {"epsilon": {"epsilon": 0.5}, "axis": {"axis": 1}},
    ),
    "ReduceMax": (
        node("ReduceMax", {"data": i(_RNG.integers(-9, 9, (2, 3)))}, (I64,)),
        {
            "axes": {"axes": i([1], const=True)},
            "noop_with_empty_axes": {"noop_with_empty_axes": 1, "axes": i([], const=True)},
            "keepdims": {"keepdims": 0},
        },
    ),
    "RotaryEmbedding": (
        node("RotaryEmbedding", {"X": f(2, 3, 32), "cos_cache": f(2, 3, 4), "sin_cache": f(2, 3, 4)}, opset=24, num_heads=4),
        {
            "position_ids": {"position_ids": i([[0, 3, 1], [2, 2, 5]]), **table(8, 4)},
            "num_heads": {"num_heads": 2, "rotary_embedding_dim": 8},
            "rotary_embedding_dim": {"rotary_embedding_dim": 4, "cos_cache": f(2, 3, 2), "sin_cache": f(2, 3, 2)},
            "interleaved": {"interleaved": 1},
        },
    ),
    "ScatterElements": (
        node("ScatterElements", {"data": f(2, 2, 2, 2, 2), "indices": i(np.ones((2, 2, 2, 2, 2))), "updates": f(2, 2, 2, 2, 2)}, reduction="add"),
        {"reduction": {"reduction": "max"}, "axis": {"axis": 3}},
    ),
    "Selu": (
        node("Selu", {"X": f(2, 2, 2, 2, 2)}),
        {"alpha": {"alpha": 0.3}, "gamma": {"gamma": 0.7}},
    ),
    "SimplifiedLayerNormalization": (
        node("SimplifiedLayerNormalization", {"X": f(2, 3, 4), "scale": f(4)}),
        {
            "epsilon": {"epsilon": 0.5}, "axis": {"axis": 1, "scale": f(3, 4)},
        },
    ),
    "Slice": (
        node("Slice", {"data": i(_RNG.integers(0, 2, (4, 5)), bool), "starts": i([0], const=True), "ends": i([3], const=True)}, (BOOL,)),
        {
            "axes": {"axes": i([1], const=True)},
            "steps": {"axes": i([1], const=True), "steps": i([2], const=True)},
        },
    ),
    "Swish": (node("Swish", {"X": f(9)}, opset=24), {"alpha": {"alpha": 0.4}}),
    "TensorScatter": (
        node("TensorScatter", {"past_cache": f(2, 4, 4, 4), "update": f(2, 4, 2, 4), "write_indices": i([2, 1])}, opset=24),
        {
            "write_indices": {"write_indices": GONE},
            "mode": {"mode": "circular", "write_indices": i([3, 1])},
            "axis": {"axis": 1, "update": f(2, 2, 4, 4)},
        },
    ),
    "Trilu": (node("Trilu", {"input": f(4, 4)}), {"k": {"k": i(1, const=True)}, "upper": {"upper": 0}}),
}  # fmt: skip
