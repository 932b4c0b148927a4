"""DecoderMaskedMultiHeadAttention lowered, against ONNX Runtime's kernel."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
import pytest

from capabilities import Target, target
from rewriter.lowering import Stuck, lower
from rewriter.parity.sites import check_sites
from tests import htp, ort
from tests.contrib.decoder_masked_multi_head_attention import CASES, INPUTS, Case, feeds, node

TARGETS = [target("onnx-standard"), target("qnn", "2.7.0")]
SMALL = CASES[:1] + CASES[4:5] + CASES[13:]


@pytest.mark.parametrize("ep", TARGETS, ids=str)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_equals_the_kernel(case: Case, ep: Target) -> None:
    model = node(case)
    given = feeds(model, case)
    expected = ort.run(model, given)
    lower(model, ep)
    assert not any(n.domain for n in model.graph)
    actual = ort.run(model, given)
    assert list(actual) == list(expected)
    for name, reference in expected.items():
        assert ort.worst(reference, actual[name]) < 2e-6


@pytest.mark.parametrize("case", CASES[4:10], ids=lambda case: case.name)
def test_each_input_and_attribute_changes_the_result(case: Case) -> None:
    model, plain = node(case), node(CASES[0])
    given = feeds(model, case)
    expected = ort.run(model, given)["y"]
    lower(model, TARGETS[1])
    actual = ort.run(model, given)["y"]
    assert ort.worst(expected, actual) < 2e-6
    assert ort.worst(ort.run(plain, given)["y"], actual) > 1e-3  # the kernel without it


def _without(case: Case, name: str) -> ir.Model:
    model = node(case)
    index = INPUTS.index(name)
    value = next(v for v in model.graph.inputs if v.name == name)
    model.graph.inputs.remove(value)
    model.graph[0].replace_input_with(index, None)
    return model


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (node(CASES[0], past_present_share_buffer=0), "the past has to be a shared buffer"),
        (_without(CASES[0], "past_sequence_length"), "the past has to be a shared buffer"),
        (_without(CASES[0], "value"), "packed into one another are not handled"),
        (node(Case("four", tokens=4)), "4 tokens: DecoderMaskedMultiHeadAttention is of one"),
        (node(Case("beams", beams=2)), "cache_indirection reorders the cache of 2 beams"),
        (node(Case("bias", across=True, added=(1, 2, 1, 5))),
         "attention_bias over another sequence is not handled"),
        (node(Case("late", shown=True)), "qk has as many columns as past_sequence_length says"),
        (node(Case("not asked", stored=True, shown=True), output_qk=0), "qk needs output_qk=1"),
        (node(Case("narrow", added=(1, 2, 1, 14))), "13 .*do not fit a cache|14"),
    ],
    ids=lambda given: given if isinstance(given, str) else "node",
)  # fmt: skip
def test_refuses_by_name(model: ir.Model, reason: str) -> None:
    with pytest.raises(Stuck, match=reason):
        lower(model, TARGETS[1])


def test_sites_draw_a_start_that_fits(tmp_path: Path) -> None:
    for case in SMALL:
        report = lower(node(case), TARGETS[0])
        parity = check_sites(report.fired, tmp_path, 0)
        assert [site.ok for site in parity] == [True], parity


@htp.needs_qnn
@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_placed_whole_on_htp(case: Case, tmp_path: Path) -> None:
    model = node(case)
    given = feeds(model, case)
    expected = ort.run(model, given)
    lower(model, TARGETS[0])
    htp.check(model, given, {"y": expected["y"]}, tmp_path)
