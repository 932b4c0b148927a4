"""DequantizeLinear of a stored weight -> Conv of points raised to com.microsoft MatMulNBits.

A 1x1 Conv is a product over the channels. Raised only where the target does not take it: QNN
refuses to create a session for some quantized weights of a Conv (measured/README.md, trap 6).
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from rewriter.rule import fuses
from rewriter.rules.parts.nbits_products import nbits_product, require_floats
from rewriter.rules.parts.products import conv_around
from rewriter.site import Site
from rewriter.tape import Tape


def _pattern(op: Any, a: Any, x: Any, x_scale: Any) -> Any:
    weight = op.DequantizeLinear(x, x_scale, _allow_other_inputs=True, _outputs=["weight"])
    return op.Conv(a, weight, _allow_other_inputs=True)


@fuses(
    "Conv",
    pattern=_pattern,
    emits=("com.microsoft::MatMulNBits", "Add", "Transpose"),
    opset=13,
    needed=True,
)
def conv_nbits(op: Tape, site: Site) -> ir.Value:
    """Conv(x, DequantizeLinear(W)) as MatMulNBits between Transposes of the channels."""
    require_floats(site)
    return conv_around(op, site, lambda a: nbits_product(op, site, a, rows=True))
