"""The comparison of Attention with its oracle sees small mistakes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests import ort
from tests.attention import CAUSAL, DEAD, Case, inputs, lowered, node, reference


@pytest.mark.parametrize(
    ("wrong", "case", "mutant"),
    [
        ("no causal bound", Case("c", CAUSAL, tokens=5), Case("c", tokens=5)),
        ("causal from the end", Case("c", CAUSAL), Case("c", CAUSAL, nonpad=(5, 5))),
        ("offset of the past lost", Case("c", CAUSAL, past=3, keys=3),
         Case("c", {"right_window_size": 2}, past=3, keys=3, opset=25)),
        ("offset one more", Case("c", CAUSAL, nonpad=(3, 4)), Case("c", CAUSAL, nonpad=(4, 5))),
        ("window off by one", Case("c", {"left_window_size": 2}, tokens=5, opset=25),
         Case("c", {"left_window_size": 1}, tokens=5, opset=25)),
        ("scale off by 1 %", Case("c", {"scale": 0.3}), Case("c", {"scale": 0.303})),
        ("softcap lost", Case("c", {"softcap": 3.0}), Case("c")),
        ("mask lost", Case("c", mask="bool"), Case("c")),
        ("mask off by one", Case("c", mask="bool"),
         Case("c", mask="bool", hide=((0, 2), (1, 1), (1, 4), (2, 0)))),
        ("empty row not 0", Case("c", mask="bool", hide=DEAD),
         Case("c", mask="bool", hide=((0, 1), (2, 4)))),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_the_comparison_sees_mutants(wrong: str, case: Case, mutant: Case) -> None:
    feeds, changed = inputs(case), inputs(mutant)
    oracles = reference if case.past is not None else ort.run
    expected = oracles(node(case, feeds), feeds)["Y"]
    actual = ort.run(lowered(mutant, changed)[0], changed)["Y"]
    assert ort.worst(expected, actual) > 5e-4, wrong


def test_a_bool_mask_is_not_added_as_0_and_1() -> None:
    """Mobius casts it and adds it: a hidden key only loses one unit of its score."""
    case = Case("bool", mask="bool")
    feeds = inputs(case)
    added = {**feeds, "attn_mask": feeds["attn_mask"].astype(np.float32)}
    wrong = ort.run(lowered(replace(case, mask="float"), added)[0], added)["Y"]
    assert ort.worst(ort.run(node(case, feeds), feeds)["Y"], wrong) > 0.1
