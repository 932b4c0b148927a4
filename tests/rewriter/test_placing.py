"""What the budget leaves room for."""

from __future__ import annotations

from pathlib import Path

import pytest

from capabilities import target
from rewriter import budget
from rewriter.budget import Budget
from rewriter.cost import Cost
from rewriter.parity.trial import trial
from rewriter.passes.fix_dims import fix_dims
from rewriter.placing import Placing
from rewriter.settings import Settings
from rewriter.stages import Stages
from tests.decoders import decoder


@pytest.mark.parametrize(("seconds", "runs"), [(1e6, 3), (110, 2), (1, 1)])
def test_a_slice_runs_as_often_as_there_is_time(
    seconds: float, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 M weights of 4 bits: 13 s to create and 28 s a run, on a machine that is not idle."""
    monkeypatch.setattr(budget, "emulated", lambda: True)
    settings = Settings(Path("model.onnx"), target("qnn", "2.7.0"), None)
    time = Budget(settings)
    monkeypatch.setattr(time, "left", lambda: 2 * seconds)
    subject = Placing(settings, Stages(lambda _: None, {}), time)
    model = decoder()
    fix_dims(model, {"batch": 1, "seq": 1, "past": 8})
    given = trial(model, 0)
    assert len(given.feeds) == 3
    found = subject._affordable(Cost(packed=100, plain=0), given)
    assert len(found.feeds) == len(found.scenarios) == runs
    assert found.scenarios == given.scenarios[:runs]
