"""LongRoPE in a cache of fixed size: one table has to be right for every length."""

from __future__ import annotations

from pathlib import Path

import pytest

from frontends import read
from rewriter.errors import BadInput
from rewriter.passes.static_cache import fix_phase
from rewriter.phases import Phase

PHI3 = Path(__file__).parents[3] / "fixtures" / "genai" / "phi3" / "model.onnx"
"""Texts of more than 8 tokens take the long table."""


def _phase(rows: int, seq: int) -> Phase:
    return Phase("decode", {"batch": 1, "seq": seq, "past": rows, "total": rows}, "left")


@pytest.mark.parametrize(("rows", "seq"), [(8, 1), (8, 4), (32, 9)])
def test_one_branch_for_every_length(rows: int, seq: int) -> None:
    fix_phase(read(PHI3), _phase(rows, seq))


@pytest.mark.parametrize(("rows", "seq"), [(9, 1), (32, 4), (64, 1)])
def test_a_cache_in_which_short_texts_would_get_the_long_table(rows: int, seq: int) -> None:
    with pytest.raises(BadInput, match=r"always takes its then_branch.*give --max-seq-len 8 or"):
        fix_phase(read(PHI3), _phase(rows, seq))
