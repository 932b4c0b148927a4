"""What the long runs found, each as the smallest example; all are expected to be lowered right."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter import packing
from rewriter.lowering import lower
from tests.fuzz.case import F32, I64, MS, Arg, Case, arg
from tests.fuzz.check import check
from tests.fuzz.place import Place, model

_RNG = np.random.default_rng(0)


def f(*shape: int, const: bool = False) -> Arg:
    return arg(_RNG.standard_normal(shape).astype(np.float32), const=const)


def i(values: Any, kind: Any = np.int64, *, const: bool = False) -> Arg:
    return arg(np.asarray(values, kind), const=const)


def _prompt(tokens: int, *, const: bool) -> Case:
    """A first prompt with positions that do not follow each other."""
    angles = _RNG.uniform(-3, 3, (16, 8))
    inputs: dict[str, Arg | None] = {
        "query": f(2, tokens, 32), "key": f(2, tokens, 16), "value": f(2, tokens, 16),
        "past_key": f(2, 1, 6, 16), "past_value": f(2, 1, 6, 16),
        "seqlens_k": i([tokens - 1] * 2, np.int32),
        "total_sequence_length": i(tokens, np.int32, const=const),
        "cos_cache": arg(np.cos(angles).astype(np.float32)),
        "sin_cache": arg(np.sin(angles).astype(np.float32)),
        "position_ids": i(_RNG.integers(0, 10, (2, tokens))),
    }  # fmt: skip
    said = {"num_heads": 2, "kv_num_heads": 1, "do_rotary": 1}

    def defined(at: int, array: Any) -> Any:
        return array if at == 0 else array[:, :, :tokens]

    return Case(f"{MS}GroupQueryAttention", inputs, [F32] * 3, said, defined=defined)


def _buffer() -> Case:
    """A cache with room, whose rows a branch declares as past and new ones together."""
    inputs: dict[str, Arg | None] = {
        "query": f(1, 3, 16), "key": f(1, 3, 16), "value": f(1, 3, 16),
        "past_key": f(1, 1, 10, 16), "past_value": f(1, 1, 10, 16),
        "seqlens_k": i([9], np.int32), "total_sequence_length": i(10, np.int32),
    }  # fmt: skip
    said = {"num_heads": 1, "kv_num_heads": 1, "scale": 0.3}
    return Case(f"{MS}GroupQueryAttention", inputs, [F32] * 3, said)


SYMBOLIC = Case(
    f"{MS}PackedAttention",
    {"input": f(3, 4), "weights": f(4, 12, const=True), "bias": f(12),
     "token_offset": i([[0, 1, 2]], np.int32, const=True),
     "cumulative_sequence_length": i([0, 3], np.int32, const=True)},
    attributes={"num_heads": 2}, symbolic=True, oracle=lambda: [np.ones((3, 4), np.float32)],
)  # fmt: skip
BLOCKS = Case(
    "DequantizeLinear",
    {"x": arg(packing.integers(_RNG.integers(-8, 8, 48), ir.DataType.INT4), const=True),
     "x_scale": f(3, const=True)},
    attributes={"block_size": 16, "axis": -1},
)  # fmt: skip
GEMM = Case("Gemm", {"A": f(2, 2), "B": f(3, 2)}, attributes={"transB": 1, "alpha": 0.5}, opset=17)
SCATTER = Case(
    "ScatterElements",
    {
        "data": f(2, 2, 2, 2, 2),
        "indices": i(np.ones((2,) * 5), const=True),
        "updates": f(*(2,) * 5),
    },
)
GATHER = Case(
    "Gather", {"data": i([4, 7], const=True), "indices": i([[1], [0]], np.int32, const=True)}, [I64]
)
COUNT = Case(
    "Range", {n: i(v, const=True) for n, v in (("start", 4), ("limit", 5), ("delta", 1))}, [I64]
)

SEEDS: dict[str, tuple[Case, str, Place, str]] = {
    # a first prompt turns by the first of position_ids and what follows it (schema), not by all
    "positions of a prompt": (_prompt(3, const=True), "qnn@2.7.0", Place.TOP, "lowered"),
    "positions of a prompt of one": (_prompt(1, const=True), "qnn@2.4.0", Place.TOP, "lowered"),
    "a prompt by its total": (_prompt(3, const=False), "onnx-standard", Place.TOP, "stuck"),
    "a prompt of one by its total": (
        _prompt(1, const=False), "onnx-standard", Place.TOP, "lowered",
    ),
    # wrong: the cache grew instead of staying as long as it is
    "a buffer in a branch": (_buffer(), "onnx-standard@22", Place.BRANCH, "stuck"),
    # crashed: the inference wants a condition; then the Loop was left with one input
    "a loop without condition": (SCATTER, "qnn@2.7.0", Place.BODY, "stuck"),
    # crashed: the types of a function's inputs are not known
    "a function's types": (GEMM, "qnn@2.7.0", Place.PARAMETERS, "stuck"),
    # crashed: dims that are not known
    "dims with names": (SYMBOLIC, "onnx-standard", Place.TOP, "stuck"),
    # crashed: one zero point for all blocks
    "blocks without zero points": (BLOCKS, "qnn@2.3.0", Place.TOP, "stuck"),
    # ONNX Runtime's kernel does not transpose it
    "a flipped matrix before a vector": (
        Case(f"{MS}FusedMatMul", {"A": f(2, 4), "B": f(2)}, [F32], {"transA": 1}),
        "onnx-standard", Place.TOP, "stuck",
    ),
    # a second run folded what the first one built, and wrote notes of the inference to the file
    "constants that are reshaped": (SCATTER, "qnn@2.4.0", Place.TOP, "lowered"),
    "constants that are gathered": (GATHER, "qnn@2.4.0", Place.TOP, "lowered"),
    "a constant range": (COUNT, "onnx-standard without Range", Place.BODY, "lowered"),
}  # fmt: skip


@pytest.mark.parametrize("name", SEEDS)
def test_seed(name: str) -> None:
    case, ep, place, label = SEEDS[name]
    known, _, op = ep.partition(" without ")
    assert check(case, target(known, illegal=[op] if op else []), place).label == label


def test_an_output_without_a_declared_shape() -> None:
    """Crashed: that it gets one is no change."""
    case = Case(
        f"{MS}QuantizeLinear", {"x": f(3, 3), "y_scale": arg(np.float32(0.1))},
        [ir.DataType.UINT8],
    )  # fmt: skip
    lowered = model(case, Place.TOP)
    report = lower(lowered, target("onnx-standard"))
    assert [fired.rule for fired in report.fired] == ["standard_quantize"]
