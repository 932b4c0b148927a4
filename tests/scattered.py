"""A decoder with a buffer that TensorScatter writes into: ai.onnx Attention of opset 24."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tests.graphs import Builder

F32, I64 = ir.DataType.FLOAT, ir.DataType.INT64
HEADS, SIZE, VOCABULARY = 2, 8, 48


def scattered() -> ir.Model:
    """One layer, with ``write_indices`` and ``nonpad_kv_seqlen`` as inputs."""
    b = Builder(0)
    hidden = HEADS * SIZE
    ids = b.input("input_ids", I64, ("batch", "seq"))
    where = b.input("write_indices", I64, ("batch",))
    valid = b.input("nonpad_kv_seqlen", I64, ("batch",))
    table = b.const("embed", b.rng.standard_normal((VOCABULARY, hidden)).astype(np.float32))
    x = b.op("Gather", table, ids, name="x")
    split = b.const("split", np.array([0, 0, HEADS, SIZE]))
    heads = []
    for part in "qkv":
        wide = b.linear(x, part, hidden, hidden, "fp32")
        apart = b.op("Reshape", wide, split, name=f"{part}/apart")
        heads.append(b.op("Transpose", apart, name=f"{part}/heads", perm=[0, 2, 1, 3]))
    presents = []
    for part, new in zip(("key", "value"), heads[1:], strict=True):
        cache = b.input(f"{part}_cache.0", F32, ("batch", HEADS, "max", SIZE))
        presents.append(b.op("TensorScatter", cache, new, where, name=f"present.0.{part}", axis=2))
    mixed = b.op("Attention", heads[0], *presents, None, None, None, valid, name="mixed",
                 is_causal=1)  # fmt: skip
    turned = b.op("Transpose", mixed, name="turned", perm=[0, 2, 1, 3])
    flat = b.op("Reshape", turned, b.const("flat", np.array([0, 0, hidden])), name="flat_x")
    logits = b.linear(flat, "logits", hidden, VOCABULARY, "fp32")
    cache_shape = ("batch", HEADS, "max", SIZE)
    outputs = [(value, F32, cache_shape) for value in presents]
    return b.model([(logits, F32, ("batch", "seq", VOCABULARY)), *outputs], 24)
