"""Parity of whole models: the file as it was against the file that was written."""

from __future__ import annotations

from collections.abc import Sequence
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
    """

    outputs: tuple[OutputParity, ...]
    ok: bool
    scenarios: tuple[str, ...]
    settings: str
    default_drift: float | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Trial:
    """What is fed to both sides of a comparison.

    Attributes:
        sizes: layout of the inputs.
        scenarios: how each feed was made.
        feeds: the inputs.
    """

    sizes: Layout
    scenarios: tuple[Scenario, ...]
    feeds: tuple[Feeds, ...]


def trial(model: ir.Model, seed: int, count: int = 2) -> Trial:
    """Inputs for a model whose dims are fixed (others get small numbers that agree)."""
    sizes = layout(model)
    scenarios = tuple(sizes.scenarios(seed, count))
    return Trial(sizes, scenarios, tuple(model_feeds(model, sizes, s) for s in scenarios))


def check_model(
    original: ir.Model, source: Path, written: Path, given: Trial, folder: Path, time_limit: float
) -> tuple[ModelParity, list[dict[str, Array]]]:
    """Run the original and the result on ORT CPU.

    Args:
        original: the model as it was read; its ``accuracy_level`` is removed here.
        source: where it was read from (its external data stays there).
        written: the result.
        given: what to feed.
        folder: a temporary one.
        time_limit: seconds for each run.

    Returns:
        The comparison, and the result's exact outputs, which a device is compared with.
    """
    result = ir.load(written)
    drop_accuracy_level(original)
    drop_accuracy_level(result)
    before, after = folder / "original.onnx", folder / "result.onnx"
    ir.save(original, before)
    ir.save(result, after)

    def run(path: Path, data: Path, *, exact: bool) -> list[dict[str, Array]]:
        config = EXACT if exact else {}
        job = child.Job(
            path, external_data_dir=data, config=config, optimize=not exact, feeds=given.feeds
        )
        return child.run(job, time_limit=time_limit).outputs

    scenarios = tuple(str(s) for s in given.scenarios)
    try:
        expected = run(before, source.parent, exact=True)
    except RuntimeFault as fault:
        note = f"the original does not run: {fault}"
        return ModelParity((), False, scenarios, EXACT_TEXT, None, note), []
    actual = run(after, written.parent, exact=True)
    outputs = _compared(result, expected, actual, given)
    drift = _drift(
        given,
        run(source, source.parent, exact=False),
        run(written, written.parent, exact=False),
    )
    ok = all(output.ok for output in outputs)
    return ModelParity(outputs, ok, scenarios, EXACT_TEXT, drift), actual


def _compared(
    model: ir.Model,
    expected: Sequence[dict[str, Array]],
    actual: Sequence[dict[str, Array]],
    given: Trial,
) -> tuple[OutputParity, ...]:
    return tuple(_output(value, expected, actual, given) for value in model.graph.outputs)


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

    Every output has to be within :data:`DEVICE_MAX` at most and :data:`DEVICE_RMS` on average;
    on an EP whose arithmetic is exact, within the tolerance of its type, as on ORT CPU.
    """
    compared = _compared(model, exact, device, given)
    if ep in EXACT_DEVICES:
        return compared
    found = []
    for output in compared:
        error = output.error
        ok = error is not None and error.max_std <= DEVICE_MAX and error.rms_std <= DEVICE_RMS
        found.append(OutputParity(output.name, error, DEVICE_MAX, ok, output.note))
    return tuple(found)
