"""What a device computed, against exact arithmetic on the same file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rewriter.errors import RuntimeFault
from rewriter.parity.compare import Error, compare
from rewriter.parity.domains import Array
from rewriter.parity.feeds import specified
from rewriter.parity.half import in_half
from rewriter.parity.outputs import Bound, OutputParity, compared, tolerance_of
from rewriter.parity.settings import (
    DEVICE_CEILING,
    DEVICE_DRAWS,
    DEVICE_FACTOR,
    DEVICE_MAX,
    DEVICE_RMS,
    EXACT_DEVICES,
)
from rewriter.parity.trial import Side, Trial, run_model
from rewriter.parity.widen import NotWidenable, half_of, widened

_FIXED = Bound(DEVICE_MAX, DEVICE_RMS)
_SEEDS_APART = 1000


@dataclass(frozen=True, slots=True)
class DeviceRun:
    """What ran on a device.

    Attributes:
        side: the model.
        given: what it was fed.
        exact: what ORT CPU computes of that.
        outputs: what the device did.
        ep: whose device it is.
    """

    side: Side
    given: Trial
    exact: Sequence[dict[str, Array]]
    outputs: Sequence[dict[str, Array]]
    ep: str


def check_device(run: DeviceRun, folder: Path, time_limit: float) -> tuple[OutputParity, ...]:
    """Judge every output of a device.

    Each has to be within :data:`DEVICE_MAX` at most and :data:`DEVICE_RMS` on average (inner
    values of a slice are left out: these limits were measured on outputs of models). One that is
    not is held to what HTP's arithmetic is estimated to cost on this graph, if that is more: where
    few logits nearly cancel, any fp16 program is far off. On an EP whose arithmetic is exact,
    outputs have to be within the tolerance of their type, as on ORT CPU.

    Args:
        run: what ran.
        folder: a temporary one, for the models of the estimate.
        time_limit: seconds for each of their runs.
    """
    half = half_of(run.side.model)
    tolerance = partial(tolerance_of, half=half)
    found = compared(run.side.model, run.exact, run.outputs, run.given, tolerance)
    if run.ep in EXACT_DEVICES:
        return found
    judged = [_judged(one, _FIXED) for one in found if one.name not in run.given.inner]
    far = [one.name for one in judged if one.error is not None and not one.ok]
    if not far:
        return tuple(judged)
    try:
        costs = _Costs(run, far, folder, time_limit)
    except (NotWidenable, RuntimeFault) as fault:
        note = f"what the device's arithmetic costs could not be estimated: {fault}"
        return tuple(replace(one, note=note) if one.name in far else one for one in judged)
    return tuple(costs.judged(one) if one.name in far else one for one in judged)


def _judged(output: OutputParity, bound: Bound) -> OutputParity:
    error = output.error
    ok = error is not None and error.max_std <= bound.largest and error.rms_std <= bound.rms
    return replace(output, tolerance=bound.largest, ok=ok, bound=bound)


class _Costs:
    """What the arithmetic of HTP costs, estimated on ORT CPU over several inputs."""

    def __init__(self, run: DeviceRun, names: Sequence[str], folder: Path, limit: float) -> None:
        model = run.side.model
        wide = model if half_of(model) is None else widened(model)
        self._run = run
        self._draws = run.given.others(
            model, _SEEDS_APART + run.given.scenarios[0].seed, DEVICE_DRAWS
        )
        self._exact = run_model(wide, self._draws, folder / "draws.onnx", limit, names)
        self._half = run_model(in_half(wide), self._draws, folder / "half.onnx", limit, names)

    def judged(self, output: OutputParity) -> OutputParity:
        """The output with all its inputs as one, held to the larger of the two bounds."""
        name, run = output.name, self._run
        reference = _pooled(name, run.exact, run.given)
        exact = _pooled(name, self._exact, self._draws)
        half = _stored(_pooled(name, self._half, self._draws))
        error = compare(reference, _pooled(name, run.outputs, run.given))
        with np.errstate(invalid="ignore"):
            cost = _in_unit_of(reference, np.abs(half - exact))
        if not np.isfinite(cost.max_abs):
            return replace(output, note="half precision overflows on this graph")
        bound = Bound(
            max(DEVICE_MAX, min(DEVICE_FACTOR * cost.max_std, DEVICE_CEILING[0])),
            max(DEVICE_RMS, min(DEVICE_FACTOR * cost.rms_std, DEVICE_CEILING[1])),
            cost,
        )
        return _judged(replace(output, error=error), bound)


def _pooled(
    name: str, outputs: Sequence[dict[str, Array]], given: Trial
) -> npt.NDArray[np.float64]:
    """One output of all runs as one array."""
    parts = [
        specified(name, one[name], given.sizes, scenario)
        for one, scenario in zip(outputs, given.scenarios, strict=True)
    ]
    return np.concatenate([np.ravel(part).astype(np.float64) for part in parts])


def _stored(array: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """As float16 stores it; what is too large is infinite."""
    with np.errstate(over="ignore"):
        return array.astype(np.float16).astype(np.float64)


def _in_unit_of(reference: npt.NDArray[np.float64], apart: npt.NDArray[np.float64]) -> Error:
    """Errors of other draws over the spread of the outputs that are judged."""
    largest = float(np.abs(reference).max())
    spread = float(reference.std()) or largest
    top, rms = float(apart.max()), float(np.sqrt((apart**2).mean()))
    return Error(top, top / largest, top / spread, rms / spread)
