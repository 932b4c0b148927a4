"""The settings that make ORT's QMoE exact, against the formula; without them it rounds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from rewriter.cli import main
from rewriter.parity.settings import EXACT, drop_accuracy_level
from rewriter.runtime import child
from tests import ort
from tests.experts import Toy, feeds, formula, model

ROUNDS = [
    Toy(bits=2, block=block, points=points, activation="swiglu", fusion=1, inner=128,
        shape=(1, 5, 128))
    for block in (32, 64, 128)
    for points in (False, True)
] + [
    Toy(bits=8, block=32, points=True, activation="swiglu", fusion=1, biased=True),
    Toy(bits=4, block=32, more=(("accuracy_level", 4),)),
]  # fmt: skip


@pytest.mark.parametrize("toy", ROUNDS, ids=str)
def test_both_sides_of_a_comparison_are_exact(toy: Toy, tmp_path: Path) -> None:
    mixture, given, path = model(toy), feeds(toy), tmp_path / "model.onnx"
    expected = formula(toy, mixture, given)
    ir.save(mixture, path)
    as_it_is = child.run(child.Job(path, optimize=True, feeds=[given])).outputs[0]["y"]
    assert ort.worst(expected, as_it_is.astype(np.float64)) > 5e-4, "else nothing is tested"
    drop_accuracy_level(mixture)
    ir.save(mixture, path)
    exact = child.run(child.Job(path, config=EXACT, feeds=[given])).outputs[0]["y"]
    assert ort.worst(expected, exact.astype(np.float64)) < 2e-6


def test_blocks_that_are_exact_stay() -> None:
    for toy in (replace(ROUNDS[0], block=16), replace(ROUNDS[0], block=0), ROUNDS[6]):
        mixture = model(toy)
        assert drop_accuracy_level(mixture) == 0


def test_scales_that_are_not_stored_stay() -> None:
    mixture = model(ROUNDS[0])
    value = mixture.graph.initializers.pop("fc1_s")
    mixture.graph.inputs.append(value)
    value.const_value = None
    assert drop_accuracy_level(mixture) == 0


@pytest.mark.parametrize("toy", [ROUNDS[1], ROUNDS[6]], ids=str)
def test_the_command_compares_exactly(toy: Toy, tmp_path: Path) -> None:
    source, report = tmp_path / "model.onnx", tmp_path / "report.json"
    ir.save(model(toy), source)
    words = [str(source), "--ep", "qnn@2.7.0", "--no-place", "-o", str(tmp_path / "out")]
    assert main([*words, "--report", str(report)]) == 0
    (graph,) = json.loads(report.read_text(encoding="utf-8"))["graphs"]
    (output,) = graph["parity"]["model"]["outputs"]
    (site,) = graph["parity"]["sites"]
    assert output["max_std"] < 1e-5
    assert site["max_rel"] < 1e-5
