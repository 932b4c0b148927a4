"""Inputs by role: they have to be legal, and to differ where it matters."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from rewriter.parity.feeds import Scenario, layout, model_feeds, specified
from rewriter.passes.fix_dims import fix_dims
from tests.contrib import embed_layer_normalization as embed
from tests.decoders import decoder
from tests.graphs import Builder
from tests.scattered import scattered


def _sizes(**dims: int):  # type: ignore[no-untyped-def]  # arguments of pytest
    model = decoder()
    fix_dims(model, dims)
    return model, layout(model)


def test_a_growing_cache_is_full_and_less_than_full() -> None:
    model, sizes = _sizes(batch=1, seq=1, past=8)
    assert (sizes.tokens, sizes.total, sizes.capacity) == (1, 9, 8)
    ones = [int(model_feeds(model, sizes, s)["attention_mask"].sum())
            for s in sizes.scenarios(0, 2)]  # fmt: skip
    assert ones == [9, 5, 1]


def test_a_prompt_may_be_padded_and_only_its_valid_rows_count() -> None:
    model, sizes = _sizes(batch=1, seq=8, past=0)
    scenario = Scenario(0, 3)
    assert sizes.first_prompt
    assert model_feeds(model, sizes, scenario)["attention_mask"].tolist() == [[1] * 5 + [0] * 3]
    logits, present = np.ones((1, 8, 256)), np.ones((1, 2, 8, 16))
    assert specified("logits", logits, sizes, scenario).shape == (1, 5, 256)
    assert specified("present.0.key", present, sizes, scenario).shape == (1, 2, 5, 16)
    assert specified("logits", logits, sizes, Scenario(0, 0)).shape == (1, 8, 256)


def test_ids_stay_in_the_vocabulary_and_use_it() -> None:
    model, sizes = _sizes(batch=4, seq=32, past=0)
    ids = model_feeds(model, sizes, Scenario(0, 0))["input_ids"]
    assert ids.min() >= 0
    assert 128 < ids.max() < 256


def test_ids_of_every_table_stay_in_it() -> None:
    model = embed.node(embed.Case("all", mask=True, positions=embed.BATCH))
    tables = {"input_ids": "word_embedding", "segment_ids": "segment_embedding",
              "position_ids": "position_embedding"}  # fmt: skip
    for seed in range(5):
        drawn = model_feeds(model, layout(model), Scenario(seed, 0))
        for name, table in tables.items():
            assert drawn[name].min() >= 0
            assert drawn[name].max() < embed.ROWS[table], name


@pytest.mark.parametrize("seed", [0, 1])
def test_seeds_repeat_and_differ(seed: int) -> None:
    model, sizes = _sizes(batch=1, seq=1, past=8)
    one, same, other = (
        model_feeds(model, sizes, Scenario(s, 0))["past_key_values.0.key"]
        for s in (seed, seed, seed + 1)
    )
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_free_dims_get_numbers_that_agree() -> None:
    sizes = layout(decoder())
    assert sizes.shapes["attention_mask"][1] == sizes.tokens + sizes.capacity


def test_a_mask_leaves_out_what_lies_in_front_of_an_appended_cache() -> None:
    """Of optimum and torch: behind the new token nothing comes, so a mask never hides it.

    It did, and a window of four then had no row left to look at: HTP and exact arithmetic disagree
    there, and the rewritten model was called another function.
    """
    b = Builder()
    past = b.input("past_key_values.0.key", ir.DataType.FLOAT, (1, 2, 8, 4))
    new = b.input("new", ir.DataType.FLOAT, (1, 2, 1, 4))
    b.input("input_ids", ir.DataType.INT64, (1, 1))
    b.input("attention_mask", ir.DataType.INT64, (1, 9))
    b.input("position_ids", ir.DataType.INT64, (1, 1))
    present = b.op("Concat", past, new, name="present.0.key", axis=2)
    model = b.model([(present, ir.DataType.FLOAT, (1, 2, 9, 4))])
    sizes = layout(model)
    masks = [model_feeds(model, sizes, s) for s in sizes.scenarios(0, 3)]
    assert [m["attention_mask"].tolist()[0] for m in masks] == [
        [1] * 9, [0] * 4 + [1] * 5, [0] * 8 + [1],
    ]  # fmt: skip
    assert [m["position_ids"].item() for m in masks] == [8, 4, 0]
    rows = np.ones((1, 2, 9, 4), np.float32)
    assert specified("present.0.key", rows, sizes, Scenario(0, 4)).shape == rows.shape


def test_rows_that_are_written_are_the_last_valid_ones() -> None:
    model = scattered()
    fix_dims(model, {"batch": 2, "seq": 4, "max": 9})
    starts = set()
    for seed in range(6):
        feeds = model_feeds(model, layout(model), Scenario(seed, 0))
        assert np.array_equal(feeds["nonpad_kv_seqlen"], feeds["write_indices"] + 4)
        assert feeds["write_indices"].min() >= 0
        assert feeds["nonpad_kv_seqlen"].max() <= 9
        starts |= set(feeds["write_indices"].tolist())
    assert len(starts) > 2
