"""Chunks with pads, and a convolution whose state would keep them."""

from __future__ import annotations

import pytest

from rewriter.errors import BadInput
from rewriter.passes.state_columns import require_no_padded_state
from rewriter.passes.static_cache import fix_phase
from rewriter.phases import Phase
from tests.contrib.causal_conv_with_state import node


def _phase(tokens: int) -> Phase:
    return Phase("prefill", {"seq": tokens}, "left")


def test_a_chunk_of_a_fixed_size_may_have_pads() -> None:
    with pytest.raises(BadInput, match=r"would keep the pads.*give --static decode"):
        fix_phase(node(tokens=4), _phase(4))


def test_one_token_has_none() -> None:
    require_no_padded_state(node(tokens=1), _phase(1))
