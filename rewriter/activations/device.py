"""What a device computed of a graph with quantized activations, in steps of its outputs.

The reference is ONNX Runtime's CPU on the same file, so what quantization costs is on both sides,
and what is left is the device's own arithmetic. HTP has kernels of integers, up to 4 steps off (6
and more with int4 weights), and of halves (blocked weights, norms, products with floats), up to 20
off: tests/units.py measures them. At the end of a model that adds up, as the roundings themselves
do: the float graph and the quantized one, both on ONNX Runtime, are 13 and 16 steps apart at the
logits of the shared llama and qwen3 (rms 4.5 and 5.5).
Inner values of 8 bits that round to the other side move what comes after as far as their
quantization itself does.
A form that the device reads in another way is off by whole weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from rewriter.nodes import constant, op_of
from rewriter.parity.compare import Error
from rewriter.parity.device import DeviceRun
from rewriter.parity.domains import Array
from rewriter.parity.outputs import Bound, OutputParity, compared, tolerance_of

STEPS = 2.0
"""Steps of an output that integer kernels may differ by."""

ROUNDING = Bound(0.03, 0.01)
"""What every output is held to first, in its standard deviation. Measured on QNN 2.3 to 2.7 with 16
bits, at the logits of the shared decoders: largest 0.5 to 1.7 %, rms 0.14 to 0.28 %, with weights
per channel 0.65 %. Forms that are read wrong begin at 300 % (rms 30 %)."""

ROUNDED = 2.0
"""Error of a device over what quantization costs on these inputs (the float graph against the
quantized one, both on ONNX Runtime's CPU), where inner values round to the other side."""

CEILING = Bound(1.0, 0.3)
"""No cost allows more: a graph whose activations are off that far is of no use."""


@dataclass(frozen=True, slots=True)
class InSteps:
    """One output of a device.

    Attributes:
        output: with its errors against ONNX Runtime's CPU.
        step: what one integer more is in it; ``None`` where it is not quantized.
        steps: largest error in steps.
    """

    output: OutputParity
    step: float | None
    steps: float | None


def steps_of(model: ir.Model) -> dict[str, float]:
    """Steps of the outputs that are dequantized at the boundary."""
    found = {}
    for value in model.graph.outputs:
        made = value.producer()
        scale = constant(made.inputs[1]) if made and op_of(made) == "DequantizeLinear" else None
        if scale is not None and scale.size == 1:
            found[value.name or ""] = float(scale.numpy().reshape(()))
    return found


def check_steps(run: DeviceRun, floats: Sequence[dict[str, Array]]) -> tuple[InSteps, ...]:
    """Judge every output: within :data:`STEPS`, what halves may cost, or what integers have cost.

    Args:
        run: on the quantized graph.
        floats: what the float graph gives of the same inputs; nothing where that is not known.
    """
    model, sizes = run.side.model, steps_of(run.side.model)
    found = compared(model, run.exact, run.outputs, run.given, tolerance_of)
    cost = compared(model, run.exact, floats, run.given, tolerance_of) if floats else ()
    costs = {one.name: one.error for one in cost}
    return tuple(_judged(one, sizes.get(one.name), costs.get(one.name)) for one in found)


def _judged(output: OutputParity, step: float | None, cost: Error | None) -> InSteps:
    error = output.error
    if error is None:
        return InSteps(output, step, None)
    bound = ROUNDING
    if cost is not None:
        bound = Bound(
            max(ROUNDING.largest, min(ROUNDED * cost.max_std, CEILING.largest)),
            max(ROUNDING.rms, min(ROUNDED * cost.rms_std, CEILING.rms)),
            cost,
        )
    steps = error.max_abs / step if step else None
    ok = error.max_std <= bound.largest and error.rms_std <= bound.rms
    ok = ok or (steps is not None and steps <= STEPS)
    return InSteps(replace(output, tolerance=bound.largest, ok=ok, bound=bound), step, steps)
