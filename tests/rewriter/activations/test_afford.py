"""A budget cuts calibration data from its end, and says so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from rewriter.activations import Calibration
from rewriter.activations.afford import afforded
from tests.graphs import Builder

F32, I64 = ir.DataType.FLOAT, ir.DataType.INT64
SIZE = 500


@pytest.fixture
def decoder(tmp_path: Path) -> Path:
    """Logits of 4 tokens at a time, by a product with a million weights (not by these alone)."""
    b = Builder()
    ids = b.input("input_ids", I64, (1, 4))
    rows = b.op("Gather", b.const("table", np.zeros((SIZE, 2000), np.float32)), ids, name="rows")
    head = b.const("head", np.zeros((2000, SIZE), np.float32))
    logits = b.op("MatMul", rows, head, name="logits")
    ir.save(b.model([(logits, F32, (1, 4, SIZE))]), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def test_prompts_that_fit_are_kept_whole(decoder: Path) -> None:
    given = Calibration("2 prompts", prompts=(np.arange(4), np.arange(4)))
    assert afforded(given, decoder, 60) == (given, "")


@pytest.mark.parametrize(("seconds", "kept"), [(0.0, 1), (0.009, 2), (0.0135, 3)])
def test_the_first_calls_are_kept(seconds: float, kept: int, decoder: Path) -> None:
    """A call of 4 tokens is 0.0043 s: a thousandth of 3.8 + 4 · 0.12."""
    prompts = tuple(np.arange(4) + at for at in range(4))
    some, told = afforded(Calibration("4 prompts", prompts=prompts), decoder, seconds)
    assert np.array_equal(some.prompts, prompts[:kept])
    assert some.source == f"4 prompts, the first {kept} of 4 calls"
    assert f"the first {kept} of 4 calls of 4 prompts: a quarter of --budget" in told


def test_samples_of_all_inputs_are_cut_too(decoder: Path) -> None:
    feeds = tuple({"input_ids": np.zeros((1, 4), np.int64)} for _ in range(3))
    some, told = afforded(Calibration("3 samples", feeds=feeds), decoder, 0.009)
    assert len(some.feeds) == 2
    assert "the first 2 of 3 calls" in told
