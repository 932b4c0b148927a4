"""Only what rounding has touched is moved, by half a step."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from rewriter.parity.nudge import nudged
from tests.graphs import Builder
from tests.rewriter.parity.halves import F16


def test_only_new_constants_that_were_rounded_are_nudged() -> None:
    weight, table = (np.array([row], np.float16) for row in ([0.1, 0.2, 0.3], [0.7, 1.0, 0.9]))

    def model(*constants: tuple[str, object]) -> ir.Model:
        b = Builder()
        x = b.input("x", F16, (1, 3))
        for name, number in constants:
            x = b.op("Mul", x, b.const(name, np.array(number, np.float16)), name=f"{name}x")
        return b.model([(x, F16, (1, 3))])

    original = model(("old", 0.1), ("weight", weight))
    turned = ("turned", weight[:, ::-1])
    result = model(("old", 0.1), ("exact", 0.5), ("new", 0.3), turned, ("table", table))
    moved = nudged(result, original)
    assert moved is not None
    changed = {}
    for name, value in moved.graph.initializers.items():
        stored, before = value.const_value, result.graph.initializers[name].const_value
        assert stored is not None
        assert before is not None
        changed[name] = (stored.numpy() != before.numpy().astype(np.float32)).tolist()
        np.testing.assert_allclose(stored.numpy(), before.numpy(), rtol=2**-11)
    expected = {"old": False, "exact": False, "new": True, "turned": [[False] * 3]}
    assert changed == {**expected, "table": [[True, False, True]]}
    assert nudged(model(("old", 0.1), ("exact", 0.5), turned), original) is None
