"""Models of float16: what the coarse comparison in their type lets through, float32 sees."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.lowering import lower
from rewriter.parity.model import ModelParity, check_model
from rewriter.parity.settings import MODEL_TOLERANCE
from rewriter.parity.trial import trial
from rewriter.passes.fix_dims import fix_dims
from tests.decoders import Decoder, decoder
from tests.rewriter.parity.halves import BF16, F16, halved, scaled, side

SPEC = Decoder(weights="fp32", window=5)
DECODE = {"batch": 1, "seq": 1, "past": 8}


def made(spec: Decoder = SPEC, half: ir.DataType = F16) -> ir.Model:
    """A decoder of halves, its dims fixed, its epsilon 1e-5."""
    model = scaled(halved(decoder(spec), half), "epsilon", 10)
    fix_dims(model, DECODE)
    return model


def parity(original: ir.Model, result: ir.Model, folder: Path) -> ModelParity:
    """The comparison of two models."""
    sides = side(original, folder, "before"), side(result, folder, "after")
    found, _ = check_model(*sides, trial(sides[0].model, 0), folder, 120)
    return found


def lowered(model: ir.Model, ep: str = "qnn") -> ir.Model:
    """The model as it becomes."""
    lower(model, target(ep), keep_sites=False)
    return model


def test_a_right_lowering_is_as_good_as_in_float32(tmp_path: Path) -> None:
    found = parity(made(), lowered(made()), tmp_path)
    assert found.ok
    assert found.reference == "the original in float32"
    for output in found.outputs:
        assert output.error is not None
        assert output.error.max_std < 1e-5
        assert output.half is not None
        assert output.half.original is not None
        assert output.half.result is not None
        assert 1e-4 < output.half.result.max_std <= 2 * output.half.original.max_std


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("scale", lambda: scaled(made(), "scale", 1.01)),
        ("eps", lambda: scaled(made(), "epsilon", 100)),
        ("window", lambda: made(replace(SPEC, window=4))),
    ],
)
def test_mutants(name: str, wrong, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]  # arguments of pytest
    """At the tolerance of float16 alone, which is what counted once, two of them are good."""
    found = parity(made(), wrong(), tmp_path)
    assert not found.ok
    logits = found.outputs[0]
    assert logits.error is not None
    assert logits.error.max_std > 2 * logits.tolerance
    assert logits.half is not None
    assert logits.half.result is not None
    assert (logits.half.result.max_std <= MODEL_TOLERANCE["float16"]) == (name != "window")


def test_a_scale_that_float16_has_no_number_for(tmp_path: Path) -> None:
    """A head size of 48: the scale that the rule writes is off by 2^-12, which is allowed for."""
    spec = replace(SPEC, head_size=48)
    model = made(spec)
    for node in model.graph:
        if "scale" in node.attributes:
            node.attributes.add(ir.AttrFloat32("scale", 4 * 48**-0.5))  # that it shows
    found = parity(model, lowered(model.clone()), tmp_path)
    assert found.ok
    assert 1e-4 < max(o.tolerance for o in found.outputs) < 2e-3
    assert not parity(model, lowered(scaled(model.clone(), "scale", 1.01)), tmp_path).ok


def test_bfloat16_runs_only_in_float32(tmp_path: Path) -> None:
    good = parity(made(half=BF16), lowered(made(half=BF16), "onnx-standard"), tmp_path)
    assert good.ok
    half = good.outputs[0].half
    assert half is not None
    assert (half.original, half.result) == (None, None)
    assert "does not run in bfloat16" in half.note
    assert good.default_drift is None
    assert not parity(made(half=BF16), scaled(made(half=BF16), "scale", 1.01), tmp_path).ok


def test_a_model_that_does_not_run_in_float32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the original as it is has to do, and the report says so."""
    from rewriter.parity import model as subject
    from rewriter.parity.widen import NotWidenable

    def refuse(_: ir.Model) -> ir.Model:
        raise NotWidenable("BitCast 'b' may mean the bits of a half")

    monkeypatch.setattr(subject, "widened", refuse)
    found = parity(made(), lowered(made()), tmp_path)
    assert found.ok
    assert "BitCast 'b'" in found.reference
    assert found.outputs[0].tolerance == MODEL_TOLERANCE["float16"]
    assert found.outputs[0].half is None
