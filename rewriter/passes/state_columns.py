"""A convolution whose state is the end of its chunk keeps the pads of a chunk that is not full.

A prompt that does not fill the prefill graph of a fixed size is padded. A cache hides the rows of
pads, or writes over them; a state of the newest columns has them for tokens, and no input of
CausalConvWithState says how many of them are.
"""

from __future__ import annotations

import onnx_ir as ir

from rewriter.errors import BadInput
from rewriter.nodes import op_of
from rewriter.phases import Phase

_OP = "com.microsoft::CausalConvWithState"


def require_no_padded_state(model: ir.Model, phase: Phase) -> None:
    """Stop where a graph of fixed size reads several tokens into such a state.

    Args:
        model: is not changed.
        phase: with caches of fixed size.

    Raises:
        BadInput: it does; the message says what works.
    """
    if phase.dims.get("seq", 1) == 1:
        return
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        if op_of(node) == _OP:
            raise BadInput(
                f"--static: the state of {node.op_type} '{node.name}' would keep the pads of a "
                "prompt that is not full; give --static decode, or sizes of whole prompts by --dim"
            )
