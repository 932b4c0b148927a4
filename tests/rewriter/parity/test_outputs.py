"""Which outputs of a whole model may be one number everywhere."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from rewriter.parity.outputs import compared
from rewriter.parity.trial import trial
from tests import ort
from tests.graphs import Builder

F32, I64 = ir.DataType.FLOAT, ir.DataType.INT64


def test_outputs_that_do_not_depend_on_the_inputs() -> None:
    """Right of constants and masks; of what is computed from an input it shows nothing."""
    b = Builder()
    x = b.input("x", F32, (2, 4))
    shape = b.const("shape", np.array([2, 4]))
    half = b.const("half", np.float32(0.5))
    outputs = [
        (b.op("Mul", x, half, name="varies"), F32, (2, 4)),
        (b.op("Mul", x, b.const("zero", np.float32(0)), name="zeros"), F32, (2, 4)),
        (b.op("Softmax", b.op("Unsqueeze", x, b.const("last", np.array([2])), name="columns"),
              name="ones", axis=-1), F32, (2, 4, 1)),
        (b.op("Expand", half, shape, name="constant"), F32, (2, 4)),
        (b.op("Shape", x, name="sizes"), I64, (2,)),
        (b.op("Cast", b.op("IsNaN", x, name="nan"), name="mask", to=I64), I64, (2, 4)),
        (b.op("ReduceMin", b.op("Abs", b.op("Sign", x, name="sign"), name="abs"),
              keepdims=0, name="one"), F32, ()),
    ]  # fmt: skip
    model = b.model(outputs)
    given = trial(model, 0)
    ran = [ort.run(model, feed) for feed in given.feeds]
    found = {one.name: one for one in compared(model, ran, ran, given, lambda _: 1e-6)}
    bad = {name: one.note for name, one in found.items() if not one.ok}
    assert bad == {
        "zeros": "the reference is all zeros, whatever it is fed, and shows nothing",
        "ones": "the reference is 1 everywhere, whatever it is fed, and shows nothing",
    }
    assert len(found) == len(outputs)
