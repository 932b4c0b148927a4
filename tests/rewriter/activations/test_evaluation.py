"""KL divergence against the definition, written out."""

from __future__ import annotations

import numpy as np
import pytest

from rewriter.activations.evaluation import kl


def test_kl_of_two_rows() -> None:
    p, q = np.array([0.5, 0.25, 0.25]), np.array([0.25, 0.5, 0.25])
    expected = float((p * np.log(p / q)).sum())
    # logits are logarithms up to a number that is the same for a row
    assert kl(np.log(p)[None] + 7, np.log(q)[None] - 3) == pytest.approx([expected])
    assert expected > 0.1


def test_large_logits_do_not_overflow() -> None:
    one, other = np.array([[1e4, 0.0]]), np.array([[0.0, 1e4]])
    assert kl(one, other) == pytest.approx([1e4])
    assert kl(one, one) == pytest.approx([0.0])
