"""com.microsoft Attention lowered, against ONNX Runtime's kernel on every form it takes."""

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
from tests.contrib.attention_ms import CASES, Case, feeds, node

F16 = ir.DataType.FLOAT16
QNN = target("qnn", "2.7.0")


def of(*names: str) -> list[Case]:
    """Cases by name."""
    return [next(case for case in CASES if case.name == name) for name in names]


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
    assert list(actual) == list(expected)
    for name, reference in expected.items():
        assert ort.worst(reference, actual[name]) < 2e-6


PLAIN = {
    "scale": Case("plain"),
    "causal": Case("plain"),
    "no bias": Case("plain"),
    "another filter value": Case("flags", mask=("B", "T")),
    "ends and starts": Case("plain"),
    "attention bias": Case("plain"),
    "past, causal": Case("past", past=3, present=True),
}


@pytest.mark.parametrize("name", list(PLAIN))
def test_each_input_and_attribute_changes_the_result(name: str) -> None:
    (case,) = of(name)
    model, plain = node(case), node(PLAIN[name])
    given = feeds(model, case)
    expected = ort.run(model, given)["y"]
    lower(model, QNN)
    actual = ort.run(model, given)["y"]
    assert ort.worst(expected, actual) < 2e-6
    assert ort.worst(ort.run(plain, given)["y"], actual) > 1e-3  # the kernel without it


@pytest.mark.parametrize("case", of("ends", "flags", "flags, causal", "past, flags"), ids=_id)
def test_rows_that_see_nothing(case: Case) -> None:
    model = node(case)
    given = feeds(model, case)
    given["mask_index"] = given["mask_index"] * 0
    expected = ort.run(model, given)["y"]
    lower(model, QNN)
    assert ort.worst(expected, ort.run(model, given)["y"]) < 2e-3  # scores of -10000 + x


def test_what_does_not_matter_is_taken() -> None:
    """rotary_embedding_dim of no rotation, a shared buffer without past, a length beside a past."""
    one, other = of("plain", "past")
    for case, model in (
        (one, node(one, rotary_embedding_dim=4, past_present_share_buffer=1)),
        (other, node(other, extra={"past_sequence_length": (1,)})),
    ):
        given = feeds(model, case) | {"past_sequence_length": np.array([3], np.int32)}
        expected = ort.run(model, given)["y"]
        lower(model, QNN)
        assert ort.worst(expected, ort.run(model, given)["y"]) < 2e-6


def test_half_precision() -> None:
    for case in of("flags", "past, causal"):
        half = replace(case, dtype=F16)
        model, wide = node(half), node(case)
        given = feeds(model, half)
        exact = ort.run(
            wide, {k: v if k == "mask_index" else v.astype(np.float32) for k, v in given.items()}
        )
        lower(model, QNN)
        assert ort.worst(exact["y"], ort.run(model, given)["y"].astype(np.float32)) < 6e-3


PAST = Case("past", past=3, present=True)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (node(Case("rotary"), do_rotary=1), "do_rotary=1 is not handled"),
        (node(PAST, past_present_share_buffer=1), "past_present_share_buffer=1 with a past"),
        (node(replace(PAST, added=(1, 1, 4, 7))), "attention_bias together with a past"),
        (node(Case("square", mask=("B", 1, 8, 8))), r"mask_index \(2, 1, 8, 8\) is not handled"),
        (node(Case("short", mask=("B", 3))), r"mask_index \(2, 3\) is not handled"),
        (node(Case("odd", mask=(3,))), r"mask_index \(3,\) is not handled"),
        (node(Case("bias", added=(1, 1, 1, 4))), r"attention_bias \(1, 1, 1, 4\) does not fit"),
        (node(Case("wide", sizes=(16, 16, 24), present=True)), "keys and values of unequal width"),
        (node(Case("keys", sizes=(16, 8, 24))), r"qkv_hidden_sizes=\[16, 8, 24\] do not fit"),
        (node(Case("five", heads=5)), "do not fit weights of 48 columns"),
    ],
    ids=lambda given: given if isinstance(given, str) else "node",
)
def test_refuses_by_name(model: ir.Model, reason: str) -> None:
    with pytest.raises(Stuck, match=reason):
        lower(model, QNN)


def test_sites_draw_masks_that_leave_a_key(tmp_path: Path) -> None:
    for case in of("ends", "ends and starts", "past, flags of each token", "flags"):
        report = lower(node(case), QNN)
        parity = check_sites(report.fired, tmp_path, 0)
        assert [site.ok for site in parity] == [True], parity


ON_HTP = of("plain", "ends and starts, causal", "flags of each token", "past, causal", "past, ends")


@htp.needs_qnn
@pytest.mark.parametrize("case", ON_HTP, ids=_id)
def test_placed_whole_on_htp(case: Case, tmp_path: Path) -> None:
    model = node(case)
    given = feeds(model, case)
    expected = ort.run(model, given)
    lower(model, QNN)
    htp.check(model, given, expected, tmp_path)
