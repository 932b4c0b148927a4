"""Tests over ``../shared``, beside the checkout; where it is not there they say so and skip.

Of files that differ in little, one of a kind runs by default and the rest with
``pytest -m slow tests/shared``.
"""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pytest

SHARED = Path(__file__).parents[3] / "shared"
needs_shared = pytest.mark.skipif(
    not (SHARED / "onnx").is_dir(), reason="the folder ../shared (real models) is not there"
)


def slow_but(quick: Collection[Any], every: Sequence[Any]) -> list[Any]:
    """Parameters of a test, of which all but the ``quick`` ones are marked slow.

    Raises:
        AssertionError: one of the ``quick`` is no parameter.
    """
    assert set(quick) <= set(every), set(quick) - set(every)
    split = isinstance(every[0], tuple) if every else False
    return [
        value
        if value in quick
        else pytest.param(*(value if split else (value,)), marks=pytest.mark.slow)
        for value in every
    ]
