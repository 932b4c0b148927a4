"""Attention-like ops of com.microsoft on every measured version of every target: whatever a target
does not run ends as ops that it runs, or is refused with a reason; nothing stays unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import Verdict, target
from capabilities.targets import eps
from rewriter.facts import facts_of
from rewriter.lowering import lower
from tests.contrib import attention_ms as attention
from tests.contrib import bias_add as halves
from tests.contrib import causal_conv_with_state as convolved
from tests.contrib import decoder_masked_multi_head_attention as masked
from tests.contrib import embed_layer_normalization as embed
from tests.contrib import fused_matmul as fused
from tests.contrib import multi_head_attention as multi
from tests.contrib import multi_head_buffer as buffered
from tests.contrib import packed_attention as packed
from tests.contrib import skip_layer_normalization as skip
from tests.graphs import Builder
from tests.grouped_query import Case as Grouped
from tests.grouped_query import node as grouped

F32, F16, I32 = ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.INT32
TARGETS = [
    (ep.name, version)
    for ep in eps()
    if ep.name in {"qnn", "openvino", "onnx-standard"}
    for version in (ep.measured or ("",))
]


def elementwise(op: str, dtype: ir.DataType, *, bias: bool = False, **more: Any) -> ir.Model:
    b = Builder()
    inputs = [b.input("x", dtype, (2, 3, 8))]
    if bias:
        inputs.append(b.const("bias", b.rng.standard_normal(8).astype(dtype.numpy())))
    y = b.op(f"com.microsoft::{op}", *inputs, name="y", **more)
    return b.model([(y, dtype, (2, 3, 8))])


def simplified(*, bias: bool) -> ir.Model:
    b = Builder()
    inputs = [b.input(n, F32, (2, 3, 8)) for n in ("x", "skip")]
    inputs += [b.const(n, np.ones(8, np.float32)) for n in ["gamma", "bias"][: 1 + bias]]
    names = ["y", "", "", "sum"]
    found = b.node("com.microsoft::SkipSimplifiedLayerNormalization", inputs, names)
    return b.model([(v, F32, (2, 3, 8)) for v in found if v.name])


DECODE = Grouped("decode", capacity=16, total=12, valid=(12,))
CHUNK = Grouped("chunk", tokens=4, capacity=16, total=12, valid=(12,))
PROMPT = Grouped("prompt", tokens=4, capacity=0, total=4, valid=(4,), past=False)
GROUPED: dict[str, dict[str, Any]] = {
    "plain": {},
    "softcap": {"softcap": 2.0},
    "smooth softmax": {"smooth_softmax": 1},
    "interleaved": {"rotary_interleaved": 1},
    "not causal": {"causal": 0},
    "scores": {"qk_output": 1},
    "total at run time": {"extra": {"total_sequence_length": (I32, (1,))}},
    "sinks": {"extra": {"head_sink": (F32, (4,))}},
}
ELEMENTWISE = [
    ("Gelu", False), ("BiasGelu", True), ("FastGelu", False), ("FastGelu", True),
    ("QuickGelu", False),
]  # fmt: skip
MODELS: dict[str, Callable[[], ir.Model]] = {
    "GQA padded chunk": partial(grouped, CHUNK, extra={"query_seqlens": (I32, (1,))}),
}
for kind in (DECODE, CHUNK, PROMPT):
    for form, given in GROUPED.items():
        MODELS[f"GQA {kind.name} {form}"] = partial(grouped, kind, **given)
MODELS |= {f"Attention {case.name}": partial(attention.node, case) for case in attention.CASES}
MODELS |= {f"MHA {case.name}": partial(multi.node, case) for case in multi.CASES}
MODELS |= {f"MHA buffer {case.name}": partial(buffered.node, case) for case in buffered.CASES}
MODELS |= {f"DMMHA {case.name}": partial(masked.node, case) for case in masked.CASES}
MODELS |= {f"embed {case.name}": partial(embed.node, case) for case in embed.CASES}
MODELS |= {f"packed {case.name}": partial(packed.node, case) for case in packed.CASES}
MODELS |= {f"SkipSimplified bias {bias}": partial(simplified, bias=bias) for bias in (False, True)}
MODELS |= {f"{op}": partial(halves.node, op) for op in halves.OPS}
MODELS |= {f"CausalConv of {tokens}": partial(convolved.node, tokens) for tokens in (1, 4)}
for a, b, y, more in fused.PLAIN + fused.BATCHES:
    MODELS[f"FusedMatMul {a} {b} {more}"] = partial(fused.node, a, b, y, **more)
for outputs in skip.OUTPUTS:
    for weights in skip.WEIGHTS:
        name = f"SkipLayerNormalization {outputs} {weights}"
        MODELS[name] = partial(skip.node, outputs, weights=weights)
for op, with_bias in ELEMENTWISE:
    for dtype in (F32, F16):
        name = f"{op} {dtype.name} bias {with_bias}"
        MODELS[name] = partial(elementwise, op, dtype, bias=with_bias)


@pytest.mark.parametrize(("ep", "version"), TARGETS)
def test_ends_legal(ep: str, version: str) -> None:
    found = target(ep, version or None)
    left: dict[str, str] = {}
    for name, build in MODELS.items():
        model = build()
        report = lower(model, found, allow_stuck=True, keep_sites=False)
        if report.stuck:
            left[name] = str(report.stuck[0])
            continue
        for node in model.graph:
            judged = found.judge(facts_of(node, model.opset_imports))
            if judged.verdict is not Verdict.LEGAL:
                left[name] = f"{node.op_type} is {judged.verdict}"
    assert not left
