"""A static cache: TensorScatter, then Attention over what is valid."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from rewriter.lowering import lower
from tests import htp, ort
from tests.attention import F32, I64, QNN
from tests.graphs import Builder


def static_cache(batch: int, tokens: int, layers: int = 2) -> ir.Model:
    """The layout of a static cache: TensorScatter, then Attention over what is valid."""
    b = Builder()
    starts, lengths = (b.input(n, I64, (batch,)) for n in ("write_indices", "nonpad_kv_seqlen"))
    mixed = b.input("x", F32, (batch, 4, tokens, 8))
    outputs = []
    for layer in range(layers):
        rows = [
            b.op("TensorScatter", b.input(f"{kind}{layer}", F32, (batch, 2, 8, 8)),
                 b.input(f"new_{kind}{layer}", F32, (batch, 2, tokens, 8)), starts,
                 name=f"present_{kind}{layer}", axis=-2)
            for kind in ("key", "value")
        ]  # fmt: skip
        mixed = b.op("Attention", mixed, *rows, None, None, None, lengths, name=f"mixed{layer}",
                     is_causal=1)  # fmt: skip
        outputs += [(row, F32, (batch, 2, 8, 8)) for row in rows]
    return b.model([(mixed, F32, (batch, 4, tokens, 8)), *outputs], opset=24)


STATIC = [(1, 4, (0,)), (2, 3, (0, 5)), (2, 1, (3, 7))]


def static_feeds(model: ir.Model, tokens: int, starts: tuple[int, ...]) -> ort.Arrays:
    rng = np.random.default_rng(0)
    feeds = {
        v.name: rng.standard_normal(v.shape.numpy()).astype(np.float32)
        for v in model.graph.inputs
        if v.name and v.shape and v.dtype == F32
    }
    return feeds | {
        "write_indices": np.array(starts),
        "nonpad_kv_seqlen": np.array(starts) + tokens,
    }


@pytest.mark.parametrize(("batch", "tokens", "starts"), STATIC)
def test_a_static_cache(batch: int, tokens: int, starts: tuple[int, ...]) -> None:
    """Prefill of several tokens must not see the future (mobius did), nor batch 2 break."""
    model = static_cache(batch, tokens)
    feeds = static_feeds(model, tokens, starts)
    expected = ort.run(model, feeds)
    after = lower(model, QNN).ops_after
    assert (after["Where"], after["ReduceMax"], after["ScatterElements"]) == (1, 1, 4)
    for name, array in ort.run(model, feeds).items():
        assert ort.worst(expected[name], array) < 2e-6


@htp.needs_qnn
@pytest.mark.parametrize(("batch", "tokens", "starts"), STATIC[1:])
def test_htp_runs_a_static_cache_whole(
    batch: int, tokens: int, starts: tuple[int, ...], tmp_path: Path
) -> None:
    model = static_cache(batch, tokens)
    feeds = static_feeds(model, tokens, starts)
    expected = ort.run(model, feeds)
    lower(model, QNN)
    htp.check(model, feeds, expected, tmp_path, least=1e-7)
