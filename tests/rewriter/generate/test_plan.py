"""Which calls read which tokens, and what each call is fed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewriter.errors import BadInput
from rewriter.generate.cache import Cache, Caches
from rewriter.generate.folder import Folder
from rewriter.generate.graph import Graph
from rewriter.generate.plan import CacheFull, calls, inputs, limit
from rewriter.generate.ports import Port

I64, F32 = np.dtype(np.int64), np.dtype(np.float32)
S, ROWS = 4, 14


def graph(
    name: str,
    alignment: str,
    tokens: int | None,
    *,
    rows: int = ROWS,
    window: int | None = None,
    last: bool = False,
    batch: int = 1,
    names: tuple[str, ...] = ("attention_mask", "position_ids"),
) -> Graph:
    """A graph as :func:`read_folder` would find it."""
    width = tokens or "s"
    columns = {"left": rows, "right": rows + (tokens or 0)}.get(alignment, "t")
    shapes: dict[str, tuple[int | str, ...]] = {
        "input_ids": (batch, width),
        "attention_mask": (batch, columns),
        "position_ids": (batch, width),
        "cache_position": (width,),
        "seqlens_k": (batch,),
        "past_seq_len": (batch, "one"),
        "total_seq_len": (1,),
        "write_indices": (batch,),
        "nonpad_kv_seqlen": (batch,),
        "token_type_ids": (batch, width),
    }
    taken = {n: Port(n, I64, shapes[n]) for n in ("input_ids", *names)}
    cache = Cache("past", "present", F32, 2, rows, 8, window)
    held = {} if alignment == "none" else {"past": cache}
    caches = Caches(name, alignment, held)  # type: ignore[arg-type]  # a word, not the Literal
    logits = Port("logits", F32, (batch, 1 if last else width, 24))
    return Graph(name, (), taken, caches, logits, None)


def pair(alignment: str, **more: object) -> Folder:
    """Graphs that read S tokens and one."""
    graphs = {
        name: graph(name, alignment, tokens, **more)  # type: ignore[arg-type]  # loose in tests
        for name, tokens in (("prefill", S), ("decode", 1))
    }
    return Folder(Path("folder"), graphs)


def only(name: str, alignment: str, tokens: int | None, **more: object) -> Folder:
    """A folder of one graph."""
    return Folder(Path("folder"), {name: graph(name, alignment, tokens, **more)})  # type: ignore[arg-type]  # loose


def told(folder: Folder, done: int, count: int) -> list[tuple[str, int, int]]:
    """Graph, first and last position of every call."""
    return [(call.graph, call.start, call.stop) for call in calls(folder, done, count)]


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (1, [("decode", 0, 1)]),
        (3, [("prefill", 0, 3)]),
        (4, [("prefill", 0, 4)]),
        (5, [("prefill", 0, 4), ("decode", 4, 5)]),
        (7, [("prefill", 0, 4), ("prefill", 4, 7)]),
        # the fourth chunk would end at row 16 of 14: it begins at 10 and computes two rows again
        (14, [("prefill", 0, 4), ("prefill", 4, 8), ("prefill", 8, 12), ("prefill", 10, 14)]),
    ],
)
def test_a_prompt_at_the_left(count: int, expected: list[tuple[str, int, int]]) -> None:
    assert told(pair("left"), 0, count) == expected


def test_tokens_computed_again_are_not_given_again() -> None:
    call = calls(pair("left"), 12, 2)[0]
    assert (call.start, call.new, call.rows) == (10, 12, slice(2, 4))


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (1, [("decode", 0, 1)]),
        (3, [("prefill", 0, 3)]),
        (4, [("prefill", 0, 4)]),
        (5, [("prefill", 0, 1), ("prefill", 1, 5)]),
        (7, [("prefill", 0, 3), ("prefill", 3, 7)]),
    ],
)
def test_a_prompt_at_the_right(count: int, expected: list[tuple[str, int, int]]) -> None:
    assert told(pair("right"), 0, count) == expected


def test_pads_before_the_tokens_have_no_sight() -> None:
    folder = pair("right")
    call = calls(folder, 0, 3)[0]
    fed = inputs(folder.graphs["prefill"], call, np.array([[7, 8, 9]]))
    assert fed["input_ids"].tolist() == [[0, 7, 8, 9]]
    assert fed["position_ids"].tolist() == [[0, 0, 1, 2]]
    assert fed["attention_mask"].tolist() == [[0] * ROWS + [0, 1, 1, 1]]
    assert call.rows == slice(1, 4)


def test_later_tokens_at_the_right_see_what_was_read() -> None:
    folder = pair("right")
    call = calls(folder, 3, 1)[0]
    fed = inputs(folder.graphs["decode"], call, np.array([[7, 8, 9, 5]]))
    assert fed["attention_mask"].tolist() == [[0] * (ROWS - 3) + [1, 1, 1, 1]]
    assert fed["position_ids"].tolist() == [[3]]


def test_pads_behind_the_tokens_count_in_their_own_call_only() -> None:
    folder = pair("left")
    first, second = calls(folder, 0, 3)[0], calls(folder, 3, 1)[0]
    fed = inputs(folder.graphs["prefill"], first, np.array([[7, 8, 9]]))
    assert fed["input_ids"].tolist() == [[7, 8, 9, 0]]
    assert fed["position_ids"].tolist() == [[0, 1, 2, 3]]
    assert fed["attention_mask"].tolist() == [[1] * 4 + [0] * (ROWS - 4)]
    assert first.rows == slice(0, 3)
    fed = inputs(folder.graphs["decode"], second, np.array([[7, 8, 9, 5]]))
    assert fed["attention_mask"].tolist() == [[1] * 4 + [0] * (ROWS - 4)]
    assert (fed["input_ids"].tolist(), fed["position_ids"].tolist()) == ([[5]], [[3]])


def test_lengths_at_run_time_are_those_of_the_ops() -> None:
    names = (
        "seqlens_k", "past_seq_len", "total_seq_len", "write_indices", "nonpad_kv_seqlen",
        "cache_position", "token_type_ids",
    )  # fmt: skip
    folder = pair("left", names=names, batch=2)
    call = calls(folder, 4, 2)[0]
    fed = inputs(folder.graphs["prefill"], call, np.arange(12).reshape(2, 6))
    assert fed["seqlens_k"].tolist() == [7, 7]
    assert fed["past_seq_len"].tolist() == [[7], [7]]
    assert fed["total_seq_len"].tolist() == [8]
    assert fed["write_indices"].tolist() == [4, 4]
    assert fed["nonpad_kv_seqlen"].tolist() == [8, 8]
    assert fed["cache_position"].tolist() == [4, 5, 6, 7]
    assert fed["token_type_ids"].tolist() == [[0] * 4] * 2
    assert fed["input_ids"].tolist() == [[4, 5, 0, 0], [10, 11, 0, 0]]


def test_lengths_say_nothing_of_tokens_at_the_right() -> None:
    folder = pair("right", names=("seqlens_k",))
    with pytest.raises(BadInput, match="'seqlens_k', which says nothing of a cache"):
        inputs(folder.graphs["decode"], calls(folder, 0, 1)[0], np.array([[1]]))


def test_an_input_of_another_shape_is_named() -> None:
    folder = pair("left")
    wrong = {
        **folder.graphs["decode"].inputs,
        "attention_mask": Port("attention_mask", I64, (1, 9)),
    }
    other = Graph("decode", (), wrong, Caches("decode", "right", {
        "past": Cache("past", "present", F32, 2, ROWS, 8, None)
    }), folder.graphs["decode"].logits, None)  # fmt: skip
    with pytest.raises(
        BadInput, match=r"decode: takes 'attention_mask' as \(1, 9\), where \(1, 15\)"
    ):
        inputs(other, calls(folder, 0, 1)[0], np.array([[1]]))


def test_a_window_takes_no_pads() -> None:
    folder = pair("left", window=3)
    assert limit(folder)[0] == ROWS  # of the mask, as no cache keeps everything
    expected = [("prefill", 0, 4), ("decode", 4, 5), ("decode", 5, 6), ("decode", 6, 7)]
    assert told(folder, 0, 7) == expected


def test_neither_does_a_graph_that_gives_the_last_logits_only() -> None:
    expected = [("prefill", 0, 4), ("decode", 4, 5), ("decode", 5, 6)]
    assert told(pair("left", last=True), 0, 6) == expected


def test_one_graph_alone() -> None:
    assert told(only("decode", "left", 1), 0, 3) == [("decode", i, i + 1) for i in range(3)]
    assert told(only("prefill", "left", 4), 4, 1) == [("prefill", 4, 5)]
    assert told(only("model", "growing", None), 3, 5) == [("model", 3, 8)]
    assert told(only("model", "none", None), 3, 2) == [("model", 0, 5)]
    with pytest.raises(BadInput, match="the last 2 tokens do not fill a call of 4"):
        calls(only("prefill", "left", 4, window=3), 0, 6)
    with pytest.raises(BadInput, match="the last 1 tokens do not fill a call of 4"):
        calls(only("prefill", "right", 4), 4, 1)


def test_without_a_cache_a_fixed_graph_is_padded() -> None:
    folder = only("model", "none", 6)
    call = calls(folder, 2, 1)[0]
    assert (call.start, call.stop, call.rows) == (0, 3, slice(2, 3))
    fed = inputs(folder.graphs["model"], call, np.array([[7, 8, 9]]))
    assert fed["input_ids"].tolist() == [[7, 8, 9, 0, 0, 0]]
    assert fed["attention_mask"].tolist() == [[1, 1, 1, 0, 0, 0]]
    with pytest.raises(CacheFull, match="takes 6 tokens"):
        calls(folder, 6, 1)


@pytest.mark.parametrize("alignment", ["left", "right"])
def test_a_full_cache_names_the_option(alignment: str) -> None:
    folder = pair(alignment)
    assert calls(folder, 0, ROWS)[-1].stop == ROWS
    with pytest.raises(
        CacheFull, match=r"15 tokens do not fit: the cache has 14 rows.*--max-seq-len"
    ):
        calls(folder, 0, ROWS + 1)
    with pytest.raises(CacheFull, match="--max-seq-len"):
        calls(folder, ROWS, 1)


def test_a_chunk_longer_than_the_cache_is_an_error() -> None:
    with pytest.raises(BadInput, match="reads 4 tokens into a cache of 3"):
        calls(pair("left", rows=3), 0, 2)


@given(
    st.sampled_from(["left", "right"]),
    st.integers(1, 9),
    st.integers(9, 25),
    st.lists(st.integers(1, 12), min_size=1, max_size=6),
    st.sampled_from([None, 4]),
)
def test_every_token_is_read_once_and_nothing_leaves_the_cache(
    alignment: str, width: int, rows: int, counts: list[int], window: int | None
) -> None:
    window = window if alignment == "left" else None
    graphs = {
        "prefill": graph("prefill", alignment, width, rows=rows, window=window),
        "decode": graph("decode", alignment, 1, rows=rows, window=window),
    }
    folder, done = Folder(Path("folder"), graphs), 0
    for count in counts:
        if done + count > rows:
            break
        for call in calls(folder, done, count):
            assert call.new == done
            assert call.start <= done < call.stop
            assert call.rows.stop - call.rows.start == call.stop - done
            assert call.left + call.stop - call.start <= call.width
            pads = call.width - (call.stop - call.start)
            if window is not None:
                assert (pads, call.start) == (0, done)
            if alignment == "left":
                assert call.left == 0
                assert call.start + call.width <= rows
            else:
                assert call.start == done
                assert not pads or (call.left == pads and call.start == 0)
            done = call.stop
