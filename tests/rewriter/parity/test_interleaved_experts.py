"""Layouts of gates and values that ORT CPU has no kernel for, as parity compares them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from rewriter.cli import main
from rewriter.parity.settings import drop_accuracy_level
from tests import ort
from tests.experts import Toy, feeds, formula, model

FLOATS = Toy(activation="swiglu", fusion=2, more=(("swiglu_limit", 0.75),))
QMOE = replace(FLOATS, bits=4)
TOYS = [
    FLOATS,
    replace(FLOATS, fusion=0, biased=True),
    replace(QMOE, points=True, biased=True),
    replace(QMOE, fusion=0, points=True, biased=True),
    replace(QMOE, fusion=0, points=True, block=16),
    replace(QMOE, bits=2, points=True, block=16, inner=48),
    replace(QMOE, fusion=0, bits=8, biased=True),
]


@pytest.mark.parametrize("toy", TOYS, ids=str)
def test_the_kernel_computes_what_the_schema_says(toy: Toy) -> None:
    mixture, given = model(toy), feeds(toy)
    expected = formula(toy, mixture, given)
    with pytest.raises(Exception, match=r"(?i)swiglu"):
        ort.run(mixture, given)
    assert drop_accuracy_level(mixture) == 1
    assert ort.worst(expected, ort.run(mixture, given)["y"]) < 2e-6
    assert drop_accuracy_level(mixture) == 0


@pytest.mark.parametrize(
    "toy", [replace(FLOATS, fusion=1), Toy(), Toy(activation="geglu", fusion=2)]
)
def test_other_experts_are_left_alone(toy: Toy) -> None:
    mixture = model(toy)
    before = ir.to_proto(mixture)
    assert drop_accuracy_level(mixture) == 0
    assert ir.to_proto(mixture) == before


def test_weights_that_are_not_stored_stay() -> None:
    mixture = model(FLOATS)
    value = mixture.graph.initializers.pop("fc1_w")
    mixture.graph.inputs.append(value)
    value.const_value = None
    assert drop_accuracy_level(mixture) == 0


@pytest.mark.parametrize(
    ("toy", "ep"),
    [
        (replace(QMOE, points=True), "qnn"),
        (replace(QMOE, fusion=1, dtype=ir.DataType.FLOAT16, biased=True), "ort-cuda"),
        (replace(QMOE, fusion=0, dtype=ir.DataType.FLOAT16), "ort-cuda"),
    ],
    ids=str,
)
def test_the_command_compares_them(toy: Toy, ep: str, tmp_path: Path) -> None:
    source, report = tmp_path / "model.onnx", tmp_path / "report.json"
    ir.save(model(toy), source)
    words = [str(source), "--ep", ep, "--no-place", "-o", str(tmp_path / "out")]
    assert main([*words, "--report", str(report)]) == 0
    (graph,) = json.loads(report.read_text(encoding="utf-8"))["graphs"]
    (output,) = graph["parity"]["model"]["outputs"]
    assert np.isfinite(output["max_std"])
    assert output["ok"]
