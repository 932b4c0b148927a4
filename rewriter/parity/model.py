"""Parity of whole models: the file as it was against the file that was written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import onnx_ir as ir

from rewriter.errors import BadInput, RuntimeFault
from rewriter.parity.compare import BadReference, Error, compare_runs
from rewriter.parity.domains import Array
from rewriter.parity.feeds import specified
from rewriter.parity.nudge import nudged
from rewriter.parity.outputs import InHalf, OutputParity, compared, in_half, tolerance_of
from rewriter.parity.settings import EXACT_TEXT, MODEL_TOLERANCE, NUDGE_FACTOR
from rewriter.parity.trial import Outputs, Side, Trial, run_as_is, run_feeds, run_model
from rewriter.parity.widen import NotWidenable, half_of, widened
from rewriter.runtime import child


@dataclass(frozen=True, slots=True)
class ModelParity:
    """A whole model against its original.

    Attributes:
        outputs: each output's largest error.
        ok: all within tolerance.
        scenarios: what was fed, in words.
        settings: what both sides ran with.
        default_drift: largest difference of the first output at ORT's default options, in
            standard deviations: what people see who run both files as they are.
        note: why nothing could be compared; empty if it could.
        part: nodes that were compared and nodes there are, if it was a slice.
        reference: what a model of halves was compared with; empty for others.
    """

    outputs: tuple[OutputParity, ...]
    ok: bool
    scenarios: tuple[str, ...]
    settings: str
    default_drift: float | None
    note: str = ""
    part: tuple[int, int] | None = None
    reference: str = ""


def check_model(
    original: Side, result: Side, given: Trial, folder: Path, time_limit: float
) -> tuple[ModelParity, Outputs]:
    """Run the original and the result on ORT CPU.

    What computes in float16 or bfloat16 is compared twice: both sides in float32, and each as it
    is with the original in float32.

    Args:
        original: the model as it was read.
        result: the model as it was written.
        given: what to feed.
        folder: a temporary one.
        time_limit: seconds for each run.

    Returns:
        The comparison, and the result's exact outputs, which a device is compared with.
    """
    scenarios, reference = tuple(str(s) for s in given.scenarios), ""
    half = half_of(original.model)
    try:
        if half is None:
            outputs, exact = _as_they_are(original, result, given, folder, time_limit)
        else:
            try:
                wide = _Wide(original, result, given, folder, time_limit)
                outputs, exact = wide.outputs(half), wide.actual
                reference = "the original in float32"
            except (NotWidenable, RuntimeFault) as fault:
                if isinstance(fault, RuntimeFault) and fault.kind in {"memory", "timeout"}:
                    raise
                reference = f"the original as it is, for it does not run in float32: {fault}"
                outputs, exact = _as_they_are(original, result, given, folder, time_limit)
    except _NoReference as fault:
        return ModelParity((), False, scenarios, EXACT_TEXT, None, str(fault)), []
    drift = None
    if not any(output.half and output.half.note for output in outputs):
        drift = _default_drift(original, result, given, time_limit)
    ok = bool(outputs) and all(output.ok for output in outputs)
    parity = ModelParity(outputs, ok, scenarios, EXACT_TEXT, drift, reference=reference)
    return parity, exact


class _NoReference(Exception):
    """The original does not run."""


def _as_they_are(
    original: Side, result: Side, given: Trial, folder: Path, time_limit: float
) -> tuple[tuple[OutputParity, ...], Outputs]:
    try:
        expected = run_as_is(original, given, folder / "original.onnx", time_limit)
    except RuntimeFault as fault:
        raise _NoReference(f"the original does not run: {fault}") from None
    actual = run_as_is(result, given, folder / "result.onnx", time_limit)
    half = half_of(original.model)
    tolerance = partial(tolerance_of, half=half)
    return compared(result.model, expected, actual, given, tolerance), actual


class _Wide:
    """A model of halves: its outputs in float32 are the reference."""

    def __init__(
        self, original: Side, result: Side, given: Trial, folder: Path, time_limit: float
    ) -> None:
        self._original, self._result = original, result
        self._given, self._folder, self._time = given, folder, time_limit
        self._expected = self._run(widened(original.model))
        self.actual = self._run(widened(result.model))

    def outputs(self, half: ir.DataType) -> tuple[OutputParity, ...]:
        """Every output, compared in float32 and in its own type."""
        sharp = self._against_reference(self.actual, tolerance_of)
        if any(output.error is not None and not output.ok for output in sharp):
            sharp = self._allowing_for_rounding(sharp)
        typed = self._in_type(half, [output.name for output in sharp])
        return tuple(replace(o, half=typed[o.name], ok=o.ok and typed[o.name].ok) for o in sharp)

    def _run(self, model: ir.Model) -> Outputs:
        return run_model(model, self._given, self._folder / "wide.onnx", self._time)

    def _against_reference(
        self, actual: Outputs, tolerance: Callable[[ir.Value], float]
    ) -> tuple[OutputParity, ...]:
        return compared(self._result.model, self._expected, actual, self._given, tolerance)

    def _allowing_for_rounding(self, sharp: tuple[OutputParity, ...]) -> tuple[OutputParity, ...]:
        """The same with the tolerance that new constants need, where that is larger."""
        model = nudged(self._result.model, self._original.model)
        if model is None:
            return sharp
        ran = self._run(model)
        moved = compared(self._result.model, self.actual, ran, self._given, tolerance_of)
        cost = {o.name: NUDGE_FACTOR * o.error.max_std for o in moved if o.error is not None}
        found = []
        for output in sharp:
            tolerance = max(output.tolerance, cost.get(output.name, 0.0))
            ok = output.error is not None and output.error.max_std <= tolerance
            found.append(replace(output, tolerance=tolerance, ok=ok))
        return tuple(found)

    def _in_type(self, half: ir.DataType, names: Sequence[str]) -> dict[str, InHalf]:
        """Errors of both sides as they are; floats of any width, as all come from halves."""
        dtype, note = half.name.lower(), ""
        errors: list[dict[str, Error | None]] = []
        for side in (self._original, self._result):
            ran: Outputs | None = None
            try:
                ran = run_as_is(side, self._given, self._folder / "typed.onnx", self._time)
            except (BadInput, RuntimeFault) as fault:
                if isinstance(fault, RuntimeFault) and fault.kind in {"memory", "timeout"}:
                    raise
                note = note or f"does not run in {dtype}: {fault}"
            found = self._against_reference(ran, tolerance_of) if ran is not None else ()
            errors.append({output.name: output.error for output in found})
        least = MODEL_TOLERANCE[dtype]
        original, result = errors
        return {
            name: in_half(
                half, original.get(name), result.get(name), least, lambda e: e.max_std, note
            )
            for name in names
        }


def _first_output(side: Side, given: Trial, time_limit: float) -> Outputs:
    """The first output alone (of a slice, the first that the whole has too), at ORT's defaults."""
    names = [value.name or "" for value in side.model.graph.outputs]
    first = next((name for name in names if name not in given.inner), names[0])
    job = child.Job(side.file, optimize=True, outputs=[first])
    return run_feeds(job, side.model, given, time_limit)


def _default_drift(original: Side, result: Side, given: Trial, time_limit: float) -> float | None:
    """How far the files are apart as they are; none where ORT's CPU does not run one of them.

    An op in a layout that another EP wants has no kernel there, and is compared in another one.
    """
    try:
        sides = [_first_output(side, given, time_limit) for side in (original, result)]
    except RuntimeFault as fault:
        if fault.kind in {"memory", "timeout"}:
            raise
        return None
    return _drift(given, *sides)


def _drift(
    given: Trial, one: Sequence[dict[str, Array]], other: Sequence[dict[str, Array]]
) -> float | None:
    name = next(iter(one[0]))
    try:
        return compare_runs(
            [
                (specified(name, a[name], given.sizes, s), specified(name, b[name], given.sizes, s))
                for a, b, s in zip(one, other, given.scenarios, strict=True)
            ]
        ).max_std
    except BadReference:
        return None
