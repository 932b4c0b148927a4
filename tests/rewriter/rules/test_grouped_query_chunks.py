"""GroupQueryAttention with lengths that come late: padded chunks, a total given at run time,
every valid key seen, and its scores shown; against ONNX Runtime's kernel.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.lowering import Stuck, lower
from rewriter.parity.sites import check_sites
from tests import htp, ort
from tests.grouped_query import I32, Case, feeds, node

QNN = target("qnn", "2.7.0")
TOTAL: dict[str, tuple[ir.DataType, tuple[int, ...]]] = {"total_sequence_length": (I32, (1,))}


def ragged(case: Case, **more: Any) -> ir.Model:
    return node(case, extra={"query_seqlens": (I32, (len(case.valid),))}, **more)


def chunk_feeds(model: ir.Model, case: Case, counts: tuple[int, ...]) -> ort.Arrays:
    """Of fewer tokens than the chunk has more of the past is valid."""
    given = feeds(model, case) | {"query_seqlens": np.array(counts, np.int32)}
    for name in ("past_key", "past_value"):
        rubbish = given[name] > 50
        given[name][rubbish] = np.random.default_rng(3).standard_normal(rubbish.sum())
    return given


@pytest.mark.parametrize("counts", [(4, 4), (3, 1), (1, 4)], ids=str)
@pytest.mark.parametrize(
    "case",
    [
        Case("a chunk of two sequences", tokens=4, capacity=16, total=12, valid=(12, 9)),
        Case("one at its beginning", tokens=4, capacity=16, total=12, valid=(12, 4)),
        Case("total as long as the chunk", tokens=4, capacity=16, total=4, valid=(4, 4)),
        Case("window", tokens=4, capacity=16, total=12, valid=(12, 9), window=3),
        Case("three query heads for one", tokens=4, capacity=16, total=12, valid=(12, 9), heads=6),
        Case("no rotary, separate", tokens=4, capacity=16, total=12, valid=(12, 9), rotary=False,
             packed=False),
    ],
    ids=lambda case: case.name,
)  # fmt: skip
def test_padded_chunks(case: Case, counts: tuple[int, ...]) -> None:
    model = ragged(case)
    given = chunk_feeds(model, case, counts)
    expected = ort.run(model, given)
    lower(model, QNN)
    actual = ort.run(model, given)
    for batch, (valid, count) in enumerate(zip(case.valid, counts, strict=True)):
        y = (batch, slice(count))
        assert ort.worst(expected["y"][y], actual["y"][y]) < 2e-6
        for name in ("present_key", "present_value"):
            rows = (batch, slice(None), slice(valid))
            assert ort.worst(expected[name][rows], actual[name][rows]) < 2e-6


def test_the_count_of_a_chunk_changes_it() -> None:
    case = Case("chunk", tokens=4, capacity=16, total=12, valid=(12,))
    model = ragged(case)
    given = chunk_feeds(model, case, (2,))
    lower(model, QNN)
    padded = ort.run(model, given)["y"][:, :2]
    whole = ort.run(model, given | {"query_seqlens": np.array([4], np.int32)})["y"][:, :2]
    assert ort.worst(whole, padded) > 1e-2


NOT_CAUSAL = [
    Case("decode", valid=(9,)),
    Case("chunk", tokens=4, capacity=16, total=12, valid=(12,)),
    Case("chunk, shorter", tokens=4, capacity=16, total=12, valid=(10,)),
    Case("prompt", tokens=6, capacity=0, total=6, valid=(6,)),
    Case("padded prompts", tokens=6, capacity=0, total=6, valid=(6, 4)),
    Case("prompt in a buffer", tokens=6, capacity=16, total=6, valid=(5,)),
    Case("two sequences", capacity=16, total=12, valid=(12, 9)),
]


@pytest.mark.parametrize("case", NOT_CAUSAL, ids=lambda case: case.name)
def test_every_valid_key_is_seen_if_not_causal(case: Case) -> None:
    model = node(case, causal=0)
    given = feeds(model, case)
    expected = ort.run(model, given)
    causal = ort.run(node(case), given)["y"]
    lower(model, QNN)
    actual = ort.run(model, given)
    for batch, valid in enumerate(case.valid):
        y = (batch, slice(min(valid, case.tokens)))
        assert ort.worst(expected["y"][y], actual["y"][y]) < 2e-6
        rows = (batch, slice(None), slice(valid))
        assert ort.worst(expected["present_key"][rows], actual["present_key"][rows]) < 2e-6
    if case.tokens > 1:
        assert ort.worst(causal, actual["y"]) > 1e-2


SHOWN = [
    Case("decode"),
    Case("decode, shorter", capacity=16, total=12, valid=(9,)),
    Case("chunk", tokens=4, capacity=16, total=12, valid=(12,)),
    Case("chunk, shorter", tokens=4, capacity=16, total=12, valid=(10,)),
    Case("prompt", tokens=6, capacity=0, total=6, valid=(6,)),
    Case("window", tokens=4, capacity=16, total=12, valid=(12,), window=3),
    Case("two sequences", capacity=16, total=12, valid=(12, 9)),
    Case("one head a group", kv_heads=4),
]


@pytest.mark.parametrize("mode", [1, 2])
@pytest.mark.parametrize(
    "more", [{}, {"softcap": 2.0}, {"smooth_softmax": 1}, {"causal": 0}], ids=str
)
@pytest.mark.parametrize("case", SHOWN, ids=lambda case: case.name)
def test_scores_and_weights_are_shown(case: Case, more: dict[str, Any], mode: int) -> None:
    if "causal" in more:
        case = replace(case, window=-1)
    model = node(case, qk_output=mode, **more)
    given = feeds(model, case)
    expected = ort.run(model, given)
    lower(model, QNN)
    actual = ort.run(model, given)
    assert ort.worst(expected["qk"], actual["qk"]) < 2e-6
    assert ort.worst(expected["y"], actual["y"]) < 2e-6


RUN_TIME = [
    Case("decode", capacity=16, total=9),
    Case("decode, full", capacity=16, total=16, valid=(16,)),
    Case("first token", capacity=16, total=1, valid=(1,)),
    Case("chunk", tokens=4, capacity=16, total=12, valid=(12,)),
    Case("first chunk", tokens=4, capacity=16, total=4, valid=(4,)),
    Case("first chunk, padded", tokens=4, capacity=16, total=4, valid=(3,)),
    Case("two sequences", capacity=16, total=12, valid=(12, 9)),
    Case("no past", tokens=4, capacity=0, total=4, valid=(4,)),
    Case("a cache that grows", tokens=4, capacity=8, total=12, valid=(12,)),
]


@pytest.mark.parametrize("case", RUN_TIME, ids=lambda case: case.name)
def test_the_total_length_may_come_at_run_time(case: Case) -> None:
    model = node(case, extra=TOTAL)
    given = feeds(model, case)
    given["total_sequence_length"] = given["total_sequence_length"].reshape(1)
    expected = ort.run(model, given)
    lower(model, QNN)
    assert not any(n.domain for n in model.graph)
    actual = ort.run(model, given)
    for batch, valid in enumerate(case.valid):
        y = (batch, slice(min(valid, case.tokens)))
        assert ort.worst(expected["y"][y], actual["y"][y]) < 2e-6
        for name in ("present_key", "present_value"):
            rows = (batch, slice(None), slice(valid))
            assert ort.worst(expected[name][rows], actual[name][rows]) < 2e-6


def test_sites_draw_lengths_that_agree(tmp_path: Path) -> None:
    chunk = Case("chunk", tokens=3, capacity=16, total=12, valid=(12, 9))
    one = replace(chunk, valid=(12,))
    models = [ragged(chunk), node(one, extra=TOTAL), node(one, qk_output=1), node(one, causal=0)]
    for model in models:
        report = lower(model, QNN)
        parity = check_sites(report.fired, tmp_path, 0)
        assert [site.ok for site in parity] == [True], parity


def test_a_negative_cap_is_none() -> None:
    case = Case("decode")
    model = node(case, softcap=-2.0)
    given = feeds(model, case)
    expected = ort.run(model, given)["y"]
    lower(model, QNN)
    assert ort.worst(expected, ort.run(model, given)["y"]) < 2e-6


SEVERAL = Case("several", tokens=4, capacity=16, total=16, valid=(9, 9))
WINDOWED = Case("windowed", capacity=16, total=16, valid=(9,), window=4)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (node(SEVERAL), "4 tokens of 2 sequences behind a past need query_seqlens"),
        (ragged(replace(SEVERAL, capacity=0, past=False, total=4, valid=(4, 4))),
         "query_seqlens without past_key and past_value is not legal"),
        (ragged(SEVERAL, causal=0), "causal=0 with query_seqlens is not legal"),
        (node(WINDOWED, sliding_window_cache=1, causal=0), "causal=0 with sliding_window_cache=1"),
        (node(WINDOWED, sliding_window_cache=1, qk_output=1), "qk_output=1 with sliding_window"),
        (ragged(WINDOWED, sliding_window_cache=1), "query_seqlens with sliding_window_cache=1"),
        (node(WINDOWED, extra=TOTAL, sliding_window_cache=1), "total_sequence_length is not a con"),
        (node(replace(SEVERAL, valid=(9,)), extra=TOTAL, qk_output=1),
         "output_qk is as long as total_sequence_length at run time"),
    ],
    ids=lambda given: given if isinstance(given, str) else "node",
)  # fmt: skip
def test_refuses_by_name(model: ir.Model, reason: str) -> None:
    with pytest.raises(Stuck, match=reason):
        lower(model, QNN)


@htp.needs_qnn
@pytest.mark.parametrize(
    ("case", "more", "extra"),
    [
        (Case("chunk", tokens=4, capacity=16, total=12, valid=(12, 9)), {}, "query_seqlens"),
        (Case("chunk", tokens=4, capacity=16, total=12, valid=(12,)), {"qk_output": 1}, ""),
        (Case("chunk", tokens=4, capacity=16, total=12, valid=(10,)), {"causal": 0}, ""),
        (Case("chunk", tokens=4, capacity=16, total=12, valid=(12,)), {}, "total_sequence_length"),
    ],
    ids=["query_seqlens", "qk_output", "causal=0", "total at run time"],
)
def test_placed_whole_on_htp(case: Case, more: dict[str, Any], extra: str, tmp_path: Path) -> None:
    shapes: dict[str, tuple[int, ...]] = {
        "query_seqlens": (len(case.valid),),
        "total_sequence_length": (1,),
    }
    model = node(case, extra={extra: (I32, shapes[extra])} if extra else None, **more)
    given = feeds(model, case)
    given["query_seqlens"] = np.array([4, 3][: len(case.valid)], np.int32)
    if "total_sequence_length" in given:
        given["total_sequence_length"] = given["total_sequence_length"].reshape(1)
    expected = ort.run(model, given)
    lower(model, QNN)
    placed = htp.run(model, given, tmp_path)
    names = ["y", "qk"] if "qk" in expected else ["y"]
    for name in names:
        rows = slice(3) if extra == "query_seqlens" else slice(None)
        reference, found = (np.asarray(o[name], np.float64)[:, rows] for o in (expected, placed))
        assert htp.LEAST < ort.worst(reference, found) < htp.MOST
