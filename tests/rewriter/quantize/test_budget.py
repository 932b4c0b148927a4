"""A budget for the error: more bits where it is exceeded, by what a layer's inputs are like."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from frontends import read
from rewriter.quantize.measure import mean_squares
from rewriter.quantize.source import quantized_source
from rewriter.quantize.spec import WeightQuantization
from rewriter.quantize.weights import quantize_weights
from rewriter.source import Companions, Source
from tests import ort
from tests.graphs import Builder
from tests.rewriter.quantize.models import F32, drawn, meant, product, quantized, ran


def _hard() -> np.ndarray:
    """A weight of a few large values, which 4 bits hold badly."""
    weight = drawn(64, 16)
    weight[::16] *= 40
    return weight


def test_layers_beyond_the_budget_take_more_bits_or_stay(tmp_path: Path) -> None:
    b = Builder()
    names = {
        "easy": (drawn(64, 64) > 0).astype(np.float32),
        "hard": drawn(64, 64),
        "harder": _hard(),
    }
    x = b.input("a", F32, (1, 4, 64))
    for name, weight in names.items():
        x = b.op("MatMul", x, b.const(name, weight), name=f"{name}_out")
    model = b.model([(x, F32, (1, 4, 16))])
    _, errors = quantized(model, tmp_path, max_error=0.03)
    assert {e.weight: e.bits for e in errors} == {"easy": 4, "hard": 8, "harder": 8}
    assert errors[0].rms4 is None
    assert all(e.rms <= 0.03 < e.rms4 for e in errors if e.rms4 is not None)
    made, errors = quantized(model, tmp_path, max_error=1e-3)
    assert {e.weight: e.bits for e in errors} == {"easy": 4, "hard": 0, "harder": 0}
    assert "8 bits are off by more than was allowed" in errors[2].note
    assert sorted(n.op_type for n in made.graph) == ["MatMul", "MatMul", "MatMulNBits"]


def test_channels_count_by_their_inputs(tmp_path: Path) -> None:
    """The stated error is that of the layer's output for inputs of those mean squares."""
    weight, rng = drawn(64, 32), np.random.default_rng(0)
    squares = rng.uniform(0.01, 1, 64) ** 4
    model = product(weight)
    made = model.clone()
    names = [node.name or "" for node in model.graph]
    (error,) = quantize_weights(made, WeightQuantization(), tmp_path, {names[0]: squares})
    a = rng.standard_normal((20000, 64)) * np.sqrt(squares)
    exact, found = a @ weight.astype(np.float64), a @ meant(made).astype(np.float64)
    assert error.measured
    assert error.rms == pytest.approx(
        np.linalg.norm(found - exact) / np.linalg.norm(exact), rel=0.02
    )
    (plain,) = quantized(model, tmp_path)[1]
    assert abs(plain.rms - error.rms) > 0.02 * error.rms


def test_inputs_are_measured_where_they_arise(tmp_path: Path) -> None:
    b = Builder()
    x, w = b.input("a", F32, (2, 4, 64)), [b.const(f"w{i}", drawn(64, 64, i)) for i in range(2)]
    first = b.op("MatMul", x, w[0], name="first")
    inner = b.op("Relu", first, name="inner")
    model = b.model([(b.op("MatMul", inner, w[1], name="y"), F32, (2, 4, 64))])
    feeds = [
        {"a": np.random.default_rng(i).standard_normal((2, 4, 64), np.float32)} for i in (0, 1)
    ]
    found = mean_squares(model.clone(), tmp_path, feeds)
    probe = model.clone()
    probe.graph.outputs.append(next(n for n in probe.graph if n.op_type == "Relu").outputs[0])
    hidden = np.concatenate([ort.run(probe, feed)["inner"].reshape(-1, 64) for feed in feeds])
    squares = (hidden.astype(np.float64) ** 2).mean(axis=0)
    np.testing.assert_allclose(found["y/MatMul"], squares / squares.mean(), rtol=1e-4)
    assert set(found) == {"first/MatMul", "y/MatMul"}


def test_a_model_that_does_not_run_is_not_measured(tmp_path: Path) -> None:
    b = Builder()
    y = b.op("com.microsoft::Nonsense", b.input("a", F32, (1, 4, 64)), name="n")
    y.type, y.shape = ir.TensorType(F32), ir.Shape((1, 4, 64))
    y = b.op("MatMul", y, b.const("W", drawn(64, 16)), name="y")
    assert mean_squares(b.model([(y, F32, (1, 4, 16))]), tmp_path) == {}


def test_a_source_is_quantized_once_for_all_phases(tmp_path: Path) -> None:
    file, scratch = tmp_path / "m.onnx", tmp_path / "scratch"
    scratch.mkdir()
    weight = drawn(64, 16)
    ir.save(product(weight), file, external_data="m.data")
    source = Source(file, lambda _: read(file), lambda: Companions({}), name="part")
    made, (error,) = quantized_source(source, WeightQuantization(8), scratch)
    assert (made.name, made.built, made.file.parent) == ("part", False, scratch)
    one, other = made.read(None), made.read(None)
    assert one is not other
    a = {"a": np.random.default_rng(0).standard_normal((1, 4, 64), np.float32)}
    np.testing.assert_array_equal(ran(one, a), ran(other, a))
    assert ort.worst(ran(read(file), a), ran(one, a)) < 3 * error.rms


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"bits": 3}, "3 bits: it is 4 or 8"),
        ({"method": "kquant", "grain": "channel"}, "kquant searches blocks"),
        ({"max_error": 1.5}, "between 0 and 1"),
    ],
)
def test_what_there_is_no_form_of_is_refused(spec: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        WeightQuantization(**spec)  # type: ignore[arg-type]  # loosely typed in tests
