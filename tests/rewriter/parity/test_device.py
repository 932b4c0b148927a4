"""The bound of a device: fixed where that holds, else what fp16 costs here; mutants fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.lowering import lower
from rewriter.parity.device import DeviceRun, check_device
from rewriter.parity.outputs import OutputParity
from rewriter.parity.settings import DEVICE_CEILING, DEVICE_FACTOR, DEVICE_MAX, DEVICE_RMS
from rewriter.parity.trial import Side, exact_outputs, trial
from rewriter.passes.fix_dims import fix_dims
from rewriter.placement import place
from tests import ort
from tests.decoders import Decoder, decoder
from tests.graphs import Builder
from tests.htp import needs_qnn
from tests.rewriter.parity.halves import F32, typed

WIDTH = 32
Computed = Callable[[Side, list[ort.Arrays]], list[ort.Arrays]]


def mlp(act: str, outputs: int, seed: int = 0, gain: float = 1.0) -> ir.Model:
    """Two layers of a function and a head; ``gain`` scales the first weight, which is a mutant."""
    b = Builder(seed)
    x = b.input("x", F32, (1, WIDTH))
    for i in range(2):
        x = b.linear(x, f"l{i}", WIDTH, WIDTH, "fp32")
        bias = b.const(f"b{i}", (0.1 * b.rng.standard_normal(WIDTH)).astype(np.float32))
        x = b.op(act, b.op("Add", x, bias, name=f"a{i}"), name=f"f{i}")
    head = b.rng.standard_normal((WIDTH, outputs)).astype(np.float32) / WIDTH**0.5
    y = b.op("MatMul", x, b.const("head", head), name="y")
    model = typed(b.model([(y, F32, (1, outputs))]))
    weight = model.graph.initializers["l0.weight"]
    assert weight.const_value is not None
    weight.const_value = ir.tensor(weight.const_value.numpy() * np.float32(gain), name="l0.weight")
    return model


def judged(
    model: ir.Model, computed: Computed, folder: Path,
    scale: float = 1.0,
) -> OutputParity:  # fmt: skip
    """The first output, where ``computed`` gives what the device did."""
    path = folder / "right.onnx"
    ir.save(model, path, external_data="right.data")
    side = Side(model, path)
    given = trial(model, 0)
    for feed in given.feeds:
        feed.update({k: v * np.float32(scale) for k, v in feed.items() if v.dtype == np.float32})
    exact = exact_outputs(side, given, folder / "exact.onnx", 60)
    run = DeviceRun(side, given, exact, computed(side, list(given.feeds)), "qnn")
    return check_device(run, folder, 60)[0]


def on_htp(folder: Path, other: ir.Model | None = None) -> Computed:
    """What HTP computes, of this model or of another one."""

    def run(side: Side, feeds: list[ort.Arrays]) -> list[ort.Arrays]:
        path = side.file
        if other is not None:
            path = folder / "other.onnx"
            ir.save(other, path, external_data="other.data")
        found = place(path, ep="qnn", options={}, feeds=feeds, time_limit=120)
        assert found.on_cpu == 0
        return [dict(one) for one in found.outputs]

    return run


def tiny(spec: Decoder) -> ir.Model:
    """A decoder of few logits, lowered for HTP."""
    model = decoder(spec)
    fix_dims(model, {"batch": 1, "seq": 1, "past": 8})
    lower(model, target("qnn", "2.7.0"), keep_sites=False)
    return model


@needs_qnn
@pytest.mark.parametrize("act", ["Softplus", "Gelu", "Tanh"])
@pytest.mark.parametrize("outputs", [1, 2])
def test_few_outputs_that_nearly_cancel(act: str, outputs: int, tmp_path: Path) -> None:
    model = mlp(act, outputs, seed=1)
    output = judged(model, on_htp(tmp_path), tmp_path)
    assert output.ok, output
    assert output.error is not None
    assert output.error.max_std > 1e-4, "it was not HTP"
    wrong = judged(model, on_htp(tmp_path, mlp(act, outputs, seed=1, gain=1.5)), tmp_path)
    assert not wrong.ok, wrong


def test_the_fixed_bound_holds_where_it_is_enough(tmp_path: Path) -> None:
    """Then nothing is estimated, and nothing widened."""

    def nearly(side: Side, feeds: list[ort.Arrays]) -> list[ort.Arrays]:
        exact = exact_outputs(side, trial(side.model, 0), tmp_path / "again.onnx", 60)
        return [{k: v + 0.004 * v.std() for k, v in one.items()} for one in exact]

    output = judged(mlp("Tanh", 64), nearly, tmp_path)
    assert output.ok
    assert output.bound is not None
    assert (output.bound.largest, output.bound.rms) == (DEVICE_MAX, DEVICE_RMS)
    assert output.bound.estimate is None


def off(by: float, folder: Path) -> Computed:
    """Outputs that are off by so many standard deviations of each."""

    def run(side: Side, feeds: list[ort.Arrays]) -> list[ort.Arrays]:
        exact = exact_outputs(side, trial(side.model, 0), folder / "again.onnx", 60)
        return [{k: v + np.float32(by * v.std()) for k, v in one.items()} for one in exact]

    return run


def test_the_estimate_is_stated_and_bounds(tmp_path: Path) -> None:
    output = judged(mlp("Softplus", 64), off(0.006, tmp_path), tmp_path)
    bound = output.bound
    assert bound is not None
    assert bound.estimate is not None
    assert bound.rms == max(DEVICE_RMS, DEVICE_FACTOR * bound.estimate.rms_std)
    assert output.ok
    assert not judged(mlp("Softplus", 64), off(0.2, tmp_path), tmp_path).ok


def test_without_functions_the_fixed_bound_stays(tmp_path: Path) -> None:
    """fp16 alone costs 4e-4 of a product: three times that widens nothing."""
    output = judged(mlp("Relu", 64), off(0.006, tmp_path), tmp_path)
    assert output.bound is not None
    assert output.bound.estimate is not None
    assert (output.bound.largest, output.bound.rms) == (DEVICE_MAX, DEVICE_RMS)
    assert not output.ok


def test_no_estimate_allows_a_wrong_result(tmp_path: Path) -> None:
    """Cancelling logits: half precision leaves nothing of them, and that is no excuse."""
    b = Builder()
    x = b.input("x", F32, (1, 64))
    one = b.const("thousand", np.array(1000, np.float32))
    y = b.op("Sub", b.op("Add", x, one, name="large"), one, name="y")
    model = typed(b.model([(y, F32, (1, 64))]))
    output = judged(model, off(0.31, tmp_path), tmp_path)
    assert output.bound is not None
    assert (output.bound.largest, output.bound.rms) == DEVICE_CEILING
    assert not output.ok


def test_an_overflow_is_no_bound(tmp_path: Path) -> None:
    b = Builder()
    x = b.input("x", F32, (1, 64))
    y = b.op("Mul", x, b.const("large", np.array(60000, np.float32)), name="y")
    output = judged(typed(b.model([(y, F32, (1, 64))])), off(0.1, tmp_path), tmp_path)
    assert not output.ok
    assert "overflows" in output.note


@needs_qnn
def test_mutants_of_a_decoder_with_few_logits(tmp_path: Path) -> None:
    spec = Decoder(weights="fp32", packed=False, vocabulary=2, window=5)
    right = tiny(spec)
    good = judged(right, on_htp(tmp_path), tmp_path)
    assert good.ok, good
    masked = judged(right, on_htp(tmp_path, tiny(replace(spec, window=4))), tmp_path)
    assert not masked.ok, masked
    model = decoder(spec)
    heads, axes = [0, 2, 1, 3], {"q": 1, "o": 0}
    for name, value in model.graph.initializers.items():
        axis = axes.get(name.rpartition("attn/")[2].removesuffix(".weight"))
        if axis is not None and value.const_value is not None:
            array = value.const_value.numpy()
            parts = np.split(array, len(heads), axis=axis)
            value.const_value = ir.tensor(
                np.concatenate([parts[i] for i in heads], axis=axis), name=name
            )
    fix_dims(model, {"batch": 1, "seq": 1, "past": 8})
    lower(model, target("qnn", "2.7.0"), keep_sites=False)
    tiled = judged(right, on_htp(tmp_path, model), tmp_path)
    assert not tiled.ok, tiled
