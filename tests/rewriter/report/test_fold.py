"""Layers that repeat are shown once."""

from __future__ import annotations

import pytest

from rewriter.report.html.fold import Block, repeated


@pytest.mark.parametrize(
    ("text", "block"),
    [
        ("", None),
        ("abcdef", None),
        ("eLMNLMNLMNh", Block(1, 3, 3)),
        ("xabababy", Block(1, 2, 3)),
        ("LMLMLNLMLMLN", Block(0, 6, 2)),
    ],
)
def test_what_repeats(text: str, block: Block | None) -> None:
    assert repeated(text) == block


def test_an_item_of_a_later_run_has_its_place_in_the_first() -> None:
    block = repeated("eLMNLMNLMNh")
    assert block is not None
    assert [block.first(n) for n in range(11)] == [0, 1, 2, 3, 1, 2, 3, 1, 2, 3, 10]


def test_a_model_of_many_layers_folds_to_one() -> None:
    layer = [f"op{n}" for n in range(60)]
    block = repeated(["embed", *layer * 35, "norm", "head"])
    assert block == Block(1, 60, 35)
