"""Of cases that differ in little, one of a kind runs by default and the rest are slow.

``pytest -m slow tests/shared tests/exporters tests/frontends`` runs the rest.
"""

from collections.abc import Collection, Sequence
from typing import Any

import pytest


def slow_but(quick: Collection[Any], every: Sequence[Any]) -> list[Any]:
    """Parameters of a test, of which all but the ``quick`` ones are marked slow.

    Raises:
        AssertionError: one of the ``quick`` is no parameter.
    """
    assert all(value in every for value in quick)
    split = isinstance(every[0], tuple) if every else False
    return [
        value
        if value in quick
        else pytest.param(*(value if split else (value,)), marks=pytest.mark.slow)
        for value in every
    ]
