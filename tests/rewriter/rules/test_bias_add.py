"""BiasAdd and BiasSplitGelu, for which ONNX Runtime's CPU has no kernel, against their formulas."""

from __future__ import annotations

from math import erf
from pathlib import Path

import numpy as np
import pytest

from capabilities import Target, target
from rewriter.lowering import Stuck, lower
from tests import htp, ort
from tests.contrib.bias_add import BIAS, OPS, SKIP, X, node

TARGETS = [target("onnx-standard"), target("qnn", "2.7.0")]


def expected(op: str) -> np.ndarray:
    if op == "BiasAdd":
        return np.asarray(X + BIAS + SKIP)
    total = (X + BIAS).astype(np.float64)
    a, b = total[..., :8], total[..., 8:]
    return np.asarray(a * b / 2 * (1 + np.vectorize(erf)(b / np.sqrt(2))))


@pytest.mark.parametrize("ep", TARGETS, ids=str)
@pytest.mark.parametrize("op", OPS)
def test_equals_the_formula(op: str, ep: Target) -> None:
    model = node(op)
    lower(model, ep)
    assert not any(n.domain for n in model.graph)
    assert ort.worst(expected(op), ort.run(model, {"x": X, "skip": SKIP})["y"]) < 2e-6


def test_refuses_features_that_have_no_halves() -> None:
    with pytest.raises(Stuck, match="15 features do not split into halves"):
        lower(node("BiasSplitGelu", 15), TARGETS[0])


@htp.needs_qnn
@pytest.mark.parametrize("op", OPS)
def test_placed_whole_on_htp(op: str, tmp_path: Path) -> None:
    model = node(op)
    lower(model, TARGETS[0])
    htp.check(model, {"x": X, "skip": SKIP}, {"y": expected(op)}, tmp_path)
