"""Parity of whole models: the file as it was against the file that was written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from rewriter.errors import RuntimeFault
from rewriter.parity.compare import BadReference, Error, compare
from rewriter.parity.domains import Array
from rewriter.parity.feeds import Feeds, Layout, Scenario, layout, model_feeds, specified
from rewriter.parity.settings import (
    DEVICE_MAX,
    DEVICE_RMS,
    EXACT,
    EXACT_DEVICES,
    EXACT_TEXT,
    MODEL_TOLERANCE,
    drop_accuracy_level,
)
from rewriter.runtime import child


@dataclass(frozen=True, slots=True)
class OutputParity:
    """One output over all scenarios; ``error`` is ``None`` where ``note`` says why."""

    name: str
    error: Error | None
    tolerance: float
    ok: bool
    note: str = ""


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
    """

    outputs: tuple[OutputParity, ...]
    ok: bool
    scenarios: tuple[str, ...]
    settings: str
    default_drift: float | None
    note: str = ""
    part: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Trial:
    """What is fed to both sides of a comparison.

    Attributes:
        sizes: layout of the inputs.
        scenarios: how each feed was made.
        feeds: the inputs.
        inner: outputs of a slice that are inner values of the whole; masks are among them.
    """

    sizes: Layout
    scenarios: tuple[Scenario, ...]
    feeds: tuple[Feeds, ...]
    inner: frozenset[str] = frozenset()


def trial(
    model: ir.Model, seed: int, count: int = 2, windows: Mapping[str, int] | None = None
) -> Trial:
    """Inputs for a model whose dims are fixed (others get small numbers that agree).

    Args:
        model: before or after it is lowered.
        seed: of the first scenario.
        count: of scenarios, at least.
        windows: as in :class:`Layout`.
    """
    sizes = layout(model, windows)
    scenarios = tuple(sizes.scenarios(seed, count))
    return Trial(sizes, scenarios, tuple(model_feeds(model, sizes, s) for s in scenarios))


@dataclass(frozen=True, slots=True)
class Side:
    """One of two models that are compared; ``accuracy_level`` is removed from the graph.

    Attributes:
        model: the graph, constants in the folder of the file.
        file: the same as it is, for ORT's default options.
    """

    model: ir.Model
    file: Path


def check_model(
    original: Side, result: Side, given: Trial, folder: Path, time_limit: float
) -> tuple[ModelParity, list[dict[str, Array]]]:
    """Run the original and the result on ORT CPU.

    Args:
        original: the model as it was read.
        result: the model as it was written.
        given: what to feed.
        folder: a temporary one.
        time_limit: seconds for each run.

    Returns:
        The comparison, and the result's exact outputs, which a device is compared with.
    """
    scenarios = tuple(str(s) for s in given.scenarios)
    try:
        expected = exact_outputs(original, given, folder / "original.onnx", time_limit)
    except RuntimeFault as fault:
        note = f"the original does not run: {fault}"
        return ModelParity((), False, scenarios, EXACT_TEXT, None, note), []
    actual = exact_outputs(result, given, folder / "result.onnx", time_limit)
    outputs = _compared(result.model, expected, actual, given)
    del expected  # caches of a real size are hundreds of megabytes
    drift = _drift(
        given,
        _first_output(original, given, time_limit),
        _first_output(result, given, time_limit),
    )
    ok = bool(outputs) and all(output.ok for output in outputs)
    return ModelParity(outputs, ok, scenarios, EXACT_TEXT, drift), actual


def exact_outputs(
    side: Side, given: Trial, file: Path, time_limit: float
) -> list[dict[str, Array]]:
    """What the oracle computes; ``file`` is where the model it runs is written."""
    drop_accuracy_level(side.model)
    ir.save(side.model, file)
    data, feeds = side.file.parent, _read_by(side.model, given)
    job = child.Job(file, external_data_dir=data, config=EXACT, feeds=feeds)
    return child.run(job, time_limit=time_limit).outputs


def _first_output(side: Side, given: Trial, time_limit: float) -> list[dict[str, Array]]:
    """The first output alone (of a slice, the first that the whole has too), at ORT's defaults."""
    names = [value.name or "" for value in side.model.graph.outputs]
    first = next((name for name in names if name not in given.inner), names[0])
    feeds = _read_by(side.model, given)
    job = child.Job(side.file, optimize=True, feeds=feeds, outputs=[first])
    return child.run(job, time_limit=time_limit).outputs


def _read_by(model: ir.Model, given: Trial) -> tuple[Feeds, ...]:
    """Feeds for the inputs a model has: the part of a result may need fewer than the original's."""
    names = {value.name for value in model.graph.inputs}
    return tuple({k: v for k, v in feed.items() if k in names} for feed in given.feeds)


def _compared(
    model: ir.Model,
    expected: Sequence[dict[str, Array]],
    actual: Sequence[dict[str, Array]],
    given: Trial,
) -> tuple[OutputParity, ...]:
    """Every output, but inner values only where they can be compared (a mask of zeros cannot)."""
    outputs = (_output(value, expected, actual, given) for value in model.graph.outputs)
    return tuple(o for o in outputs if o.error is not None or o.name not in given.inner)


def _output(
    value: ir.Value,
    expected: Sequence[dict[str, Array]],
    actual: Sequence[dict[str, Array]],
    given: Trial,
) -> OutputParity:
    name = value.name or ""
    dtype = "float" if value.dtype is None else value.dtype.name.lower()
    tolerance = MODEL_TOLERANCE.get(dtype, 0.0)
    try:
        error = Error.worst(
            [
                compare(
                    specified(name, one[name], given.sizes, scenario),
                    specified(name, other[name], given.sizes, scenario),
                )
                for one, other, scenario in zip(expected, actual, given.scenarios, strict=True)
            ]
        )
    except BadReference as fault:
        return OutputParity(name, None, tolerance, ok=False, note=str(fault))
    return OutputParity(name, error, tolerance, error.max_std <= tolerance)


def _drift(
    given: Trial, one: Sequence[dict[str, Array]], other: Sequence[dict[str, Array]]
) -> float | None:
    name = next(iter(one[0]))
    try:
        return max(
            compare(
                specified(name, a[name], given.sizes, s), specified(name, b[name], given.sizes, s)
            ).max_std
            for a, b, s in zip(one, other, given.scenarios, strict=True)
        )
    except BadReference:
        return None


def check_device(
    model: ir.Model,
    exact: Sequence[dict[str, Array]],
    device: Sequence[dict[str, Array]],
    given: Trial,
    ep: str,
) -> tuple[OutputParity, ...]:
    """What the EP computed against what ORT CPU computes of the same file.

    Every output has to be within :data:`DEVICE_MAX` at most and :data:`DEVICE_RMS` on average
    (inner values of a slice are left out: these limits were measured on outputs of models);
    on an EP whose arithmetic is exact, within the tolerance of its type, as on ORT CPU.
    """
    compared = _compared(model, exact, device, given)
    if ep in EXACT_DEVICES:
        return compared
    found = []
    for output in (one for one in compared if one.name not in given.inner):
        error = output.error
        ok = error is not None and error.max_std <= DEVICE_MAX and error.rms_std <= DEVICE_RMS
        found.append(OutputParity(output.name, error, DEVICE_MAX, ok, output.note))
    return tuple(found)
