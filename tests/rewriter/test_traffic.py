"""Bytes that a run moves, against sums typed out here."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from rewriter.passes.fix_dims import fix_dims
from rewriter.quantization import quantized_weights
from rewriter.traffic import bytes_read, traffic
from tests.decoders import Decoder, decoder
from tests.graphs import Builder
from tests.nbits import nbits

F32, I64 = ir.DataType.FLOAT, ir.DataType.INT64


def test_a_packed_product_reads_codes_scales_and_zero_points() -> None:
    model = nbits(k=128, n=24, zero_points="packed", rows=2)
    (node,) = model.graph
    codes, scales, points = 24 * 128 // 2, 24 * 4 * 4, 24 * 2
    assert bytes_read(node) == codes + scales + points
    found = traffic(model)
    assert (found.weights, found.interface) == (bytes_read(node), 4 * 2 * (128 + 24))
    (weight,) = quantized_weights(model)
    assert weight.bytes == bytes_read(node)


def test_a_weight_that_two_nodes_read_is_read_once() -> None:
    b = Builder()
    x, w = b.input("a", F32, (1, 2, 32)), b.const("w", np.ones((32, 32), np.float32))
    y = b.op("MatMul", b.op("MatMul", x, w, name="h"), w, name="y")
    assert traffic(b.model([(y, F32, (1, 2, 32))])).weights == 32 * 32 * 4


def test_of_a_table_only_the_rows_that_are_looked_up() -> None:
    b = Builder()
    ids = b.input("input_ids", I64, (1, 3))
    y = b.op("Gather", b.const("table", np.ones((100, 16), np.float32)), ids, name="y")
    found = traffic(b.model([(y, F32, (1, 3, 16))]))
    assert (found.weights, found.tokens) == (3 * 16 * 4, 3)
    assert found.per_token == (3 * 16 * 4 + 3 * 8 + 3 * 16 * 4) // 3


def test_of_experts_only_those_that_are_chosen() -> None:
    b = Builder()
    x, router = b.input("x", F32, (2, 8)), b.input("router", F32, (2, 10))
    weights = [b.const(f"fc{i}", np.ones((10, 8, 8), np.float32)) for i in (1, 2)]
    inputs = [x, router, weights[0], None, weights[1]]
    y = b.op("com.microsoft::MoE", *inputs, name="y", k=2)
    expert = 8 * 8 * 4
    assert traffic(b.model([(y, F32, (2, 8))])).weights == 2 * 4 * expert  # 2 tokens, 2 each


def test_a_decoder_moves_its_caches() -> None:
    model = decoder(Decoder(packed=False))
    before = traffic(model)
    assert before.tokens == 0  # lengths are open
    fix_dims(model, {"batch": 1, "seq": 1, "past": 8})
    after = traffic(model)
    caches = [
        v for v in (*model.graph.inputs, *model.graph.outputs) if (v.name or "").endswith("key")
    ]
    sizes = [4 * int(np.prod(v.shape.numpy())) for v in caches if v.shape is not None]
    assert len(caches) == 4
    assert after.tokens == 1
    assert after.interface > 2 * sum(sizes)  # values too, ids and logits
    stored = [v.const_value for v in model.graph.initializers.values()]
    assert after.weights < sum(t.nbytes for t in stored if t is not None)  # of the table, a row
