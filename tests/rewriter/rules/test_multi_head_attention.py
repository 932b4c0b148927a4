"""MultiHeadAttention lowered, against ONNX Runtime's kernel on every form it takes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.lowering import Stuck, lower
from rewriter.parity.sites import check_sites
from tests import htp, ort
from tests.contrib.multi_head_attention import CASES, Case, feeds, node
from tests.graphs import Builder

F32, F16 = ir.DataType.FLOAT, ir.DataType.FLOAT16
QNN = target("qnn", "2.7.0")


def _id(value: object) -> str:
    return value.name if isinstance(value, Case) else str(value)


@pytest.mark.parametrize("case", CASES, ids=_id)
def test_equals_the_kernel(case: Case) -> None:
    model = node(case)
    given = feeds(model, case)
    expected = ort.run(model, given)
    lower(model, QNN)
    assert not any(n.domain for n in model.graph)
    actual = ort.run(model, given)
    for name, reference in expected.items():
        assert ort.worst(reference, actual[name]) < 2e-6


def of(*names: str) -> list[Case]:
    """Cases by name."""
    return [next(case for case in CASES if case.name == name) for name in names]


PADDED = of(
    "lengths", "lengths of packed sequences", "padding", "padding and causal",
    "padding and causal, another filter", "padding and causal, the lowest filter",
    "lowest filter value",
)  # fmt: skip


@pytest.mark.parametrize("case", PADDED, ids=_id)
def test_rows_that_see_nothing(case: Case) -> None:
    """They are the softmax of their scores, or of what is left of them."""
    model = node(case)
    given = feeds(model, case)
    given["mask"] = given["mask"] * 0
    if case.causal:
        given["mask"][:, 2:] = 1
    expected = ort.run(model, given)["y"]
    lower(model, QNN)
    assert ort.worst(expected, ort.run(model, given)["y"]) < 2e-3


def test_half_precision() -> None:
    for case in of("padding", "past, chunk, causal"):
        half, wide = node(replace(case, dtype=F16)), node(case)
        given = feeds(half, replace(case, dtype=F16))
        exact = ort.run(
            wide, {k: v.astype(np.float32) if k != "mask" else v for k, v in given.items()}
        )
        lower(half, QNN)
        assert ort.worst(exact["y"], ort.run(half, given)["y"].astype(np.float32)) < 4e-3


def test_refuses_packed_inputs() -> None:
    b = Builder()
    query = b.input("query", F32, (2, 4, 3, 3, 8))
    y = b.op("com.microsoft::MultiHeadAttention", query, name="y", num_heads=3)
    with pytest.raises(Stuck, match="packed into one another are not handled"):
        lower(b.model([(y, F32, (2, 4, 24))]), QNN)


def test_sites_draw_masks_that_leave_a_key(tmp_path: Path) -> None:
    for case in of("lengths", "padding and causal", "lengths of packed sequences", "scores, past"):
        report = lower(node(case), QNN)
        parity = check_sites(report.fired, tmp_path, 0)
        assert [site.ok for site in parity] == [True], parity


ON_HTP = of(
    "across, split into heads", "lengths", "padding and causal", "past, chunk, causal",
    "past, chunk, bias of both kinds", "lengths of packed sequences", "scores",
)  # fmt: skip


@htp.needs_qnn
@pytest.mark.parametrize("case", ON_HTP, ids=_id)
def test_placed_whole_on_htp(case: Case, tmp_path: Path) -> None:
    model = node(case)
    given = feeds(model, case)
    expected = ort.run(model, given)
    lower(model, QNN)
    shown: ort.Arrays = {name: expected[name] for name in ("y", "qk") if name in expected}
    htp.check(model, given, shown, tmp_path)
