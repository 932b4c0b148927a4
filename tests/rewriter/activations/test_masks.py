"""The mask value that calibration chooses hides keys to half a step of a softmax in 16 bits."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from rewriter.activations.masks import replace_masks, sites_of, value_for
from rewriter.activations.model import Range
from tests import ort
from tests.graphs import Builder

F32, BOOL = ir.DataType.FLOAT, ir.DataType.BOOL
KEYS = 32


def masked() -> ir.Model:
    b = Builder()
    scores = b.input("scores", F32, (1, 2, 4, KEYS))
    seen = b.input("seen", BOOL, (1, 1, 4, KEYS))
    zero = b.const("zero", np.float32(0))
    low = b.const("low", np.float32(np.finfo(np.float32).min))
    mask = b.op("Where", seen, zero, low, name="mask")
    y = b.op("Softmax", b.op("Add", scores, mask, name="sum"), name="y", axis=-1)
    return b.model([(y, F32, (1, 2, 4, KEYS))])


def test_a_softmax_of_scores_far_apart_changes_by_less_than_half_a_step() -> None:
    model, rng = masked(), np.random.default_rng(0)
    scores = rng.uniform(-30, 30, (1, 2, 4, KEYS)).astype(np.float32)
    seen = np.arange(KEYS) <= np.arange(4)[:, None] + 8
    scores[..., 20:] = 30  # hidden ones as high as they come
    scores[..., :20] = -30
    feeds = {"scores": scores, "seen": seen[None, None]}
    before = ort.run(model, feeds)["y"]
    value = value_for(sites_of(model), {"scores": Range(-30, 30), "mask": Range(-3.4e38, 0)})
    assert value is not None
    assert -100 < value < -60  # the width of the scores, and little more
    assert replace_masks(model, value) == []
    after = ort.run(model, feeds)["y"]
    assert before.max() < 0.2
    assert np.abs(after - before).max() <= 0.5 / 65535


def test_a_graph_without_a_mask_keeps_what_it_has() -> None:
    b = Builder()
    y = b.op("Softmax", b.input("x", F32, (1, 4)), name="y", axis=-1)
    model = b.model([(y, F32, (1, 4))])
    assert value_for(sites_of(model), {"x": Range(-1, 1)}) is None
