"""Pow whose exponent has another type than its base, where an EP wants one type.

ONNX lets x be raised to an integer, as the squared ReLU of Nemotron by the model builder of
onnxruntime-genai is (an int32 of 2); HTP takes exponents of the type of x only. The result has the
type of x either way.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from rewriter.nodes import constant
from rewriter.rule import lowers
from rewriter.site import Site
from rewriter.tape import Tape


@lowers("Pow", emits=("Cast", "Pow"), form="X floating", opset=12)
def exponent_as_base(op: Tape, site: Site) -> ir.Value:
    """Pow(x, the exponent in the type of x).

    Raises:
        Refusal: the types are equal, or a constant exponent is no number of the type of x.
    """
    x, y = site.input("X"), site.input("Y")
    dtype = x.dtype
    site.require(dtype is not None and y.dtype is not None, "the types are not known")
    assert dtype is not None
    site.require(y.dtype != dtype, "the exponent has the type of the base already")
    tensor = constant(y)
    if tensor is None:
        return op.Pow(x, op.Cast(y, to=dtype))
    stored = tensor.numpy()
    exponent = stored.astype(dtype.numpy())
    site.require(bool(np.all(exponent == stored)), f"the exponent {stored} is no {dtype.name}")
    return op.Pow(x, op.const(exponent, name="exponent"))
