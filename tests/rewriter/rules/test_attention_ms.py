"""com.microsoft Attention lowered, against ONNX Runtime's kernel on every form it takes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.lowering import Stuck, lower
from rewriter.parity.sites import check_sites
from tests import htp, ort
from tests.graphs import Builder

F32, F16, I32 = ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.INT32
QNN = target("qnn", "2.7.0")
INPUTS = (
    "input", "weights", "bias", "mask_index", "past", "attention_bias", "past_sequence_length"
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One node; ``mask`` is the shape of its mask_index, in letters or numbers."""

    name: str
    batch: int = 2
    tokens: int = 4
    past: int = 0
    heads: int = 2
    width: int = 12
    sizes: tuple[int, int, int] = (16, 16, 16)
    bias: bool = True
    mask: tuple[str | int, ...] = ()
    added: tuple[int, ...] = ()
    present: bool = False
    causal: bool = False
    scale: float | None = None
    filter: float | None = None
    dtype: ir.DataType = F32

    @property
    def shape_of_mask(self) -> tuple[int, ...]:
        sizes = {"B": self.batch, "2B": 2 * self.batch, "3B+2": 3 * self.batch + 2,
                 "S": self.tokens, "T": self.past + self.tokens}  # fmt: skip
        return tuple(sizes[d] if isinstance(d, str) else d for d in self.mask)


def node(case: Case, extra: dict[str, tuple[int, ...]] | None = None, **more: Any) -> ir.Model:
    b = Builder()
    size, kind = case.sizes[0] // case.heads, case.dtype.numpy()
    weights = b.rng.standard_normal((case.width, sum(case.sizes))) / np.sqrt(case.width)
    given: dict[str, ir.Value] = {
        "input": b.input("input", case.dtype, (case.batch, case.tokens, case.width)),
        "weights": b.const("weights", weights.astype(kind)),
    }
    if case.bias:
        bias = b.rng.standard_normal(sum(case.sizes)).astype(kind)
        given["bias"] = b.const("bias", bias)
    if case.mask:
        given["mask_index"] = b.input("mask_index", I32, case.shape_of_mask)
    cache = (2, case.batch, case.heads, case.past, size)
    if case.past:
        given["past"] = b.input("past", case.dtype, cache)
    if case.added:
        given["attention_bias"] = b.input("attention_bias", case.dtype, case.added)
    for name, shape in (extra or {}).items():
        given[name] = b.input(name, I32, shape)
    inputs = [given.get(name) for name in INPUTS]
    while inputs[-1] is None:
        inputs.pop()
    said: dict[str, Any] = {"scale": case.scale, "mask_filter_value": case.filter}
    said["unidirectional"] = 1 if case.causal else None
    said["qkv_hidden_sizes"] = None if len(set(case.sizes)) == 1 else case.sizes
    found = b.node(
        "com.microsoft::Attention",
        inputs,
        ["y", "present"][: 1 + case.present],
        num_heads=case.heads,
        **{k: v for k, v in {**said, **more}.items() if v is not None},
    )
    present = (*cache[:3], case.past + case.tokens, size)
    full = [(case.batch, case.tokens, case.sizes[2]), present]
    return b.model([(v, case.dtype, s) for v, s in zip(found, full, strict=False)])


def feeds(model: ir.Model, case: Case) -> ort.Arrays:
    """Random inputs; masks leave the first key of the first token of every sequence."""
    rng = np.random.default_rng(1)
    found: ort.Arrays = {}
    for value in model.graph.inputs:
        shape = tuple(value.shape.numpy())  # type: ignore[union-attr]
        found[value.name or ""] = rng.standard_normal(shape).astype(case.dtype.numpy())
    if case.mask:
        keys, shape = case.past + case.tokens, case.shape_of_mask
        mask = rng.integers(0, 2, shape) if len(shape) > 1 else rng.integers(1, keys + 1, shape)
        if len(shape) > 1:
            mask[..., 0] = 1
        if case.mask == ("2B",):
            mask[case.batch :] = rng.integers(0, mask[: case.batch])
        found["mask_index"] = mask.astype(np.int32)
    return found


LOWEST = float(np.finfo(np.float32).min)
CASES = [
    Case("plain"),
    Case("no bias", bias=False),
    Case("one token", tokens=1),
    Case("values of another width", sizes=(16, 16, 24)),
    Case("scale", scale=0.3),
    Case("causal", causal=True),
    Case("ends", mask=("B",)),
    Case("ends and starts", mask=("2B",)),
    Case("ends and starts, causal", mask=("2B",), causal=True),
    Case("lengths of packed sequences", mask=("3B+2",)),
    Case("flags", mask=("B", "T")),
    Case("flags of each token", mask=("B", "S", "T")),
    Case("flags, causal", mask=("B", "T"), causal=True),
    Case("a flag a sequence", mask=("B", 1)),
    Case("one flag", mask=(1, 1)),
    Case("another filter value", mask=("B", "T"), filter=-2.0),
    Case("lowest filter value", mask=("B", "T"), filter=LOWEST),
    Case("attention bias", added=(2, 2, 4, 4)),
    Case("attention bias for all", added=(1, 1, 4, 4)),
    Case("attention bias a head, mask", added=(1, 2, 4, 4), mask=("B", "T")),
    Case("present", present=True),
    Case("past", past=3, present=True),
    Case("past, one token", past=3, present=True, tokens=1),
    Case("past, causal", past=3, present=True, causal=True),
    Case("past, ends", past=3, present=True, mask=("B",)),
    Case("past, flags", past=3, present=True, mask=("B", "T")),
    Case("past, flags of each token", past=3, present=True, mask=("B", "S", "T"), causal=True),
]


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
    lower(model, QNN)
    lower(plain, QNN)
    assert ort.worst(ort.run(plain, given)["y"], ort.run(model, given)["y"]) > 1e-3


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
