"""What became of activations: lines of the terminal, and entries of the JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rewriter.activations.device import InSteps
from rewriter.activations.model import QuantizedActivations

_MOST = 5


def activation_lines(made: QuantizedActivations) -> Iterator[str]:
    """What was quantized, what stays, and how far that is from the float graph."""
    units = ", ".join(
        f"{count} nodes with {bits} bits" for bits, count in sorted(made.units.items())
    )
    yield f"  activations {units}; calibrated on {made.calibrated}"
    if made.mask_value is not None:
        yield f"              hidden keys get {made.mask_value:g}, so that scores keep their range"
    for form, count in sorted(made.weights.items()):
        yield f"              {count} packed weights became {form}, exactly"
    for op, why in sorted(made.floats.items()):
        yield f"              {op} stays float: {why}"
    for why in sorted({kept.why for kept in made.kept}):
        nodes = [kept.node for kept in made.kept if kept.why == why]
        more = f" and {len(nodes) - _MOST} more" if len(nodes) > _MOST else ""
        names = ", ".join(nodes[:_MOST])
        yield f"              {len(nodes)} weights keep their form ({names}{more}): {why}"
    found = made.divergence
    if found is None:
        yield "              not evaluated: the graph gives no logits for prompts"
        return
    figures = f"{found.mean:.1e} nats on average, {found.largest:.1e} at most"
    yield f"              KL from the float graph, ONNX Runtime's CPU: {figures}"
    same = f"{found.same_token:.1%} of {found.positions} positions"
    yield f"              the same token is likeliest in {same}"


def step_lines(found: Sequence[InSteps]) -> Iterator[tuple[str, bool]]:
    """The output where the device takes most of what it is allowed, and all that are beyond."""
    worst = max(found, key=_error)
    for one in (worst, *(o for o in found if not o.output.ok and o is not worst)):
        output = one.output
        if output.error is None:
            yield f"  device      {output.name}: {output.note}", False
            continue
        steps = "" if one.steps is None else f"{one.steps:.1f} quantization steps, "
        figures = f"{output.error.max_std:.1e} of std (rms {output.error.rms_std:.1e})"
        against = "from ONNX Runtime's CPU on the same quantized graph"
        yield f"  device      {output.name} {steps}{figures} {against}", output.ok


def _error(one: InSteps) -> float:
    return one.output.error.max_std if one.output.error else float("inf")


def activation_data(made: QuantizedActivations | None) -> dict[str, Any] | None:
    """The entry ``activations`` of a graph."""
    return None if made is None else asdict(made)


def step_data(found: Sequence[InSteps] | None) -> list[dict[str, Any]] | None:
    """The entry ``device_quantized`` of a graph's parity."""
    if found is None:
        return None
    return [
        {
            "name": one.output.name,
            "step": one.step,
            "steps": one.steps,
            "max_abs": one.output.error and one.output.error.max_abs,
            "max_std": one.output.error and one.output.error.max_std,
            "rms_std": one.output.error and one.output.error.rms_std,
            "tolerance": one.output.tolerance,
            "ok": one.output.ok,
            "note": one.output.note,
        }
        for one in found
    ]
