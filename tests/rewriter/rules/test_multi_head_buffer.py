"""MultiHeadAttention over a buffer (past_sequence_length), and what it refuses by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.lowering import Stuck, lower
from rewriter.parity.sites import check_sites
from tests import htp, ort
from tests.contrib.multi_head_buffer import CASES, Case, feeds, node

QNN = target("qnn", "2.7.0")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
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


def test_where_the_rows_go_changes_the_result() -> None:
    case = CASES[1]
    model = node(case)
    given = feeds(model, case)
    lower(model, QNN)
    first = ort.run(model, given)
    other = ort.run(model, given | {"past_sequence_length": np.array([4], np.int32)})
    assert ort.worst(first["y"], other["y"]) > 1e-2
    assert ort.worst(first["present_key"], other["present_key"]) > 1e-2


def test_sites_draw_a_start_that_fits(tmp_path: Path) -> None:
    for case in CASES[1:2] + CASES[6:7] + CASES[8:9] + CASES[14:15]:
        report = lower(node(case), QNN)
        parity = check_sites(report.fired, tmp_path, 0)
        assert [site.ok for site in parity] == [True], parity


def _without(model: ir.Model, *names: str) -> ir.Model:
    for index, value in enumerate(model.graph[0].inputs):
        if value is not None and value.name in names:
            model.graph[0].replace_input_with(index, None)
            model.graph.inputs.remove(value)
    return model


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (node(Case("two beams", beams=2)),
         "cache_indirection reorders the cache of 2 beams at run time: use one"),
        (node(Case("scores", outputs=4)),
         "qk has as many columns as past_sequence_length says at run time"),
        (node(Case("late", tokens=4, start=10, stored=True)),
         "4 rows from 10 on do not fit a cache of 12 rows"),
        (node(Case("causal", tokens=2, new=3, causal=True)),
         "unidirectional=1 over 3 new keys of 2 tokens"),
        (_without(node(Case("one past")), "past_value"), "have to be given both, or neither"),
        (_without(node(Case("packed")), "key", "value"), "packed into one another are not handled"),
        (_without(node(Case("packed")), "value"), "packed into one another are not handled"),
    ],
    ids=lambda given: given if isinstance(given, str) else "node",
)  # fmt: skip
def test_refuses_by_name(model: ir.Model, reason: str) -> None:
    with pytest.raises(Stuck, match=reason):
        lower(model, QNN)


@pytest.mark.parametrize(
    ("name", "shape", "reason"),
    [
        ("key_padding_mask", (2, 5), r"key_padding_mask \(2, 5\) is not handled"),
        ("key_padding_mask", (4,), r"key_padding_mask \(4,\) is not handled"),
        ("attention_bias", (1, 1, 1, 6), r"attention_bias \(1, 1, 1, 6\) does not fit 4 tokens"),
        ("past_key", (2, 2, 12, 4), r"past_key \(2, 2, 12, 4\) does not fit heads"),
    ],
)
def test_refuses_shapes_that_do_not_fit(name: str, shape: tuple[int, ...], reason: str) -> None:
    model = node(Case("all", tokens=4, stored=True, mask="BT", added=True))
    value = next(v for v in model.graph.inputs if v.name == name)
    value.shape = ir.Shape(shape)
    with pytest.raises(Stuck, match=reason):
        lower(model, QNN)


@htp.needs_qnn
@pytest.mark.parametrize("case", [CASES[i] for i in (0, 2, 8, 12, 14)], ids=lambda case: case.name)
def test_placed_whole_on_htp(case: Case, tmp_path: Path) -> None:
    model = node(case)
    given = feeds(model, case)
    for name in ("past_key", "past_value"):
        given[name][:, :, case.start :] = 2.0
    expected = ort.run(model, given)
    lower(model, QNN)
    htp.check(model, given, {"y": expected["y"]}, tmp_path)
