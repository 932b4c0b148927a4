"""Attention lowered where its mask hides rows whole: by which number decides what they give."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.lowering import lower
from rewriter.passes.fix_dims import fix_dims
from tests import htp, ort
from tests.attention import F16, F32, LOWEST
from tests.graphs import Builder
from tests.growing import Growing, growing

BOOL = ir.DataType.BOOL
QNN = target("qnn", "2.7.0")
H, S, T, D = 2, 4, 6, 8
SEEN = np.tri(S, T, T - S, dtype=bool)
SEEN[0] = SEEN[2] = False
"""Two rows see nothing."""
NUMBERS = (-1000.0, -1e4, -65504.0, -1e5, -1e9, -3e38, LOWEST, -np.inf)


def model(
    number: float, dtype: ir.DataType = F32, *, causal: bool = False, least: float | None = None
) -> ir.Model:
    """Attention with Where(seen, 0, number), as exporters write it, and maybe no less than that."""
    b = Builder()
    q, k, v = (b.input(n, dtype, (1, H, rows, D)) for n, rows in (("q", S), ("k", T), ("v", T)))
    pair = (b.const(n, np.array(x, dtype.numpy())) for n, x in (("zero", 0), ("low", number)))
    mask = b.op("Where", b.input("seen", BOOL, (S, T)), *pair, name="mask")
    if least is not None:
        mask = b.op("Max", mask, b.const("least", np.array(least, dtype.numpy())), name="finite")
    y = b.op("Attention", q, k, v, mask, name="y", is_causal=int(causal))
    return b.model([(y, dtype, (1, H, S, D))], 23)


def feeds(dtype: ir.DataType = F32) -> ort.Arrays:
    rng = np.random.default_rng(3)
    found: ort.Arrays = {
        name: rng.standard_normal((1, H, rows, D)).astype(dtype.numpy())
        for name, rows in (("q", S), ("k", T), ("v", T))
    }
    return {**found, "seen": SEEN}


def exact(number: float, given: ort.Arrays, *, causal: bool) -> np.ndarray:
    """softmax(q·kᵀ/√D + mask)·v in double precision, where ``number`` is one like any other."""
    q, k, v = (given[name].astype(np.float64) for name in "qkv")
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(D) + np.where(SEEN, 0, number)
    if causal:
        scores = np.where(np.tri(S, T, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True) @ v)


def expected(number: float, given: ort.Arrays, *, causal: bool) -> np.ndarray:
    """ONNX Runtime's, whose float32 loses the scores below -1e8; above it loses bits of them."""
    if number > -1e8:
        return exact(number, given, causal=causal)
    return ort.run(model(number, causal=causal), given)["y"]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("number", NUMBERS)
def test_rows_that_see_nothing(number: float, causal: bool) -> None:
    given, found = feeds(), model(number, causal=causal)
    reference = expected(number, given, causal=causal)
    assert (not reference[:, :, 2].any()) is (number <= LOWEST)
    lower(found, QNN)
    assert "Attention" not in {node.op_type for node in found.graph}
    assert ort.worst(reference, ort.run(found, given)["y"]) < 2e-6


@pytest.mark.parametrize("number", [LOWEST, -np.inf])
def test_rows_of_numbers_that_were_raised(number: float) -> None:
    """As masks of fixed caches, and of attentions that were written out, are: equal weights."""
    given, found = feeds(), model(number, least=-1e30)
    reference = ort.run(found, given)["y"]
    np.testing.assert_allclose(reference[:, :, 2], given["v"].mean(axis=2), atol=1e-6)
    lower(found, QNN)
    assert ort.worst(reference, ort.run(found, given)["y"]) < 2e-6


@htp.needs_qnn
@pytest.mark.parametrize("dtype", [F32, F16], ids=str)
@pytest.mark.parametrize("stored", [False, True], ids=["run-time", "stored"])
def test_rows_that_see_nothing_on_htp(stored: bool, dtype: ir.DataType, tmp_path: Path) -> None:
    """Every number in one model; the native op is wrong for all but two (M14 of the evidence)."""
    numbers = [number for number in NUMBERS if dtype == F32 or number > -65504 or number < LOWEST]
    given, one, causal = feeds(dtype), Builder(), not stored
    inputs = [one.input(n, dtype, given[n].shape) for n in "qkv"]
    seen = one.input("seen", BOOL, (S, T))
    zero, outputs = np.array(0, dtype.numpy()), []
    for i, number in enumerate(numbers):
        low = np.array(number, dtype.numpy())
        pair = one.const(f"zero{i}", zero), one.const(f"low{i}", low)
        mask = (
            one.const(f"mask{i}", np.where(SEEN, zero, low))
            if stored
            else one.op("Where", seen, *pair, name=f"mask{i}")
        )
        y = one.op("Attention", *inputs, mask, name=f"y{i}", is_causal=int(causal))
        outputs.append((y, dtype, (1, H, S, D)))
    together = one.model(outputs, 23)
    lower(together, QNN)
    wide = {n: a.astype(np.float32) if a.dtype != bool else a for n, a in given.items()}
    references = {f"y{i}": expected(x, wide, causal=causal) for i, x in enumerate(numbers)}
    htp.check(together, given, references, tmp_path)


def padded(size: dict[str, int]) -> ort.Arrays:
    """Two sequences, the first with pads in front: of its cache, and of the chunk if that is empty.

    A pad sees no key at all.
    """
    rng, (batch, past, seq) = np.random.default_rng(5), size.values()
    mask = np.ones((batch, past + seq), np.int64)
    mask[0, : (past or seq) - 1] = 0
    places = np.maximum(mask.cumsum(axis=1) - 1, 0)[:, past:]
    found: ort.Arrays = {
        "input_ids": rng.integers(0, 48, (batch, seq)), "attention_mask": mask,
        "position_ids": places,
    }  # fmt: skip
    for layer in range(2):
        for part in ("key", "value"):
            rows = rng.standard_normal((batch, 2, past, 8)).astype(np.float32)
            found[f"past_key_values.{layer}.{part}"] = rows
    return found


@htp.needs_qnn
@pytest.mark.parametrize(("hides", "past"), [(-np.inf, 0), (LOWEST, 3), (-1e9, 3)])
def test_a_decoder_with_pads_in_front_on_htp(hides: float, past: int, tmp_path: Path) -> None:
    """Rows of pads included: ONNX Runtime's numbers everywhere, and no node on the CPU."""
    size = {"batch": 2, "past": past, "seq": 5 if not past else 2}
    decoder = growing(Growing("attention", hides=hides))
    fix_dims(decoder, size)
    given = padded(size)
    reference = ort.run(decoder, given)
    report = lower(decoder, QNN)
    assert sum(site.rule == "scaled_products" for site in report.fired) == 2
    found = ort.run(decoder, given)
    assert all(ort.worst(array, found[name]) < 1e-5 for name, array in reference.items())
    htp.check(decoder, given, reference, tmp_path)
