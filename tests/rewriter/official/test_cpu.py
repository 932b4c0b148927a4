"""Each official node test, lowered for a target, gives the shipped outputs on the CPU."""

from __future__ import annotations

import sys
from collections import Counter

import onnx
import onnx_ir as ir
import pytest

from capabilities import Target, target
from tests import official, ort
from tests.official import OPS, Official

FUSED = {"Attention", "RMSNormalization", "RotaryEmbedding", "Swish", "TensorScatter"}
"""Those that opset 22 does not have; Gelu and LayerNormalization it has."""

TARGETS = {
    "qnn@2.4.0": target("qnn@2.4.0"),
    "qnn@2.7.0": target("qnn@2.7.0"),
    "onnx-standard@22": target("onnx-standard@22"),
    "onnx-standard@22 without any": target("onnx-standard@22", illegal=OPS),
    "onnx-standard@13": target("onnx-standard@13"),
}
LEFT: dict[str, set[str]] = {
    "qnn@2.4.0": {"Gelu", "LayerNormalization", "RMSNormalization"},
    "qnn@2.7.0": set(OPS) - {"TensorScatter"},
    "onnx-standard@22": set(OPS) - FUSED,
    "onnx-standard@22 without any": set(),
    "onnx-standard@13": set(),
}
"""Ops that may stay on a target, in some form at least."""
SHARE = 0.95
"""Of all tests: lowered, or legal as they stand. Of those that are not legal: lowered."""
FEW = {"qnn@2.7.0"}
"""Targets that so many are legal on that the five of bfloat16 are more than 5 % of the others."""
ROUNDED = {"test_attention_4d_causal_fp16"}
"""ONNX Runtime's own kernel is a unit in the last place of float16 away from what onnx ships."""


def refusable(case: Official, on: Target) -> str:
    """The reason that a refusal has to give; empty where there is none."""
    if on.ep == "qnn" and case.bfloat16:
        return "ONNX Runtime finds no kernel for bfloat16 and the session is not created"
    if on.opset == 13 and case.bfloat16:
        return "Where 'Attention/Where' [newer]: came after the opset asked for"
    return ""


@pytest.mark.parametrize("name", TARGETS)
def test_shipped_outputs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every test is lowered, legal as it stands, or refused for a reason; the first two are right.

    What is legal as it stands is compared, too: it is what ONNX Runtime's own kernel gives here,
    and what HTP gives in :mod:`tests.rewriter.official.test_htp` and the sweep.
    """
    on = TARGETS[name]
    counts: Counter[str] = Counter(lowered=0, legal=0, refused=0, wrong=0)
    wrong: list[str] = []
    by_reference: list[str] = []
    for case in official.cases():
        model, fired = official.lowered(case, on)
        if model is None:
            reason = refusable(case, on)
            assert reason, fired
            assert reason in fired
            counts["refused"] += 1
            continue
        left = {node.op_type for node in model.graph} & set(OPS)
        assert left <= LEFT[name], case.name
        assert bool(fired) or left == {case.op}
        if on.ep == "onnx-standard":
            assert on.opset is not None
            assert not left & FUSED
            assert model.opset_imports[""] <= on.opset
            onnx.checker.check_model(ir.to_proto(model), full_check=True)
        faults = official.faults(case, official.run(case, model))
        if case.name in ROUNDED and not fired:
            faults = [fault for fault in faults if not fault.endswith(f"up to {2**-11}")]
        wrong += faults
        by_reference += [case.name] * case.bfloat16
        counts["wrong" if faults else "lowered" if fired else "legal"] += 1
    total = len(official.cases())
    handled, others = counts["lowered"] + counts["legal"], total - counts["legal"]
    with capsys.disabled():
        said = ", ".join(f"{count} {what}" for what, count in counts.items())
        sys.stdout.write(
            f"\n{name}: {total} official node tests: {said}; lowered or legal {handled / total:.1%}"
            f", lowered of what is not legal {counts['lowered'] / others:.1%}"
        )
        if by_reference:
            sys.stdout.write(f"; by onnx's reference: {', '.join(by_reference)}")
    assert not wrong
    assert handled >= SHARE * total
    assert counts["lowered"] >= SHARE * others or name in FEW
    assert total >= 147


def test_the_runtime_cannot_run_these_before_any_rewriting() -> None:
    """Why they are left to onnx's reference; all others are compared on ONNX Runtime."""
    for case in official.cases():
        if case.bfloat16:
            with pytest.raises(Exception, match="NOT_IMPLEMENTED"):
                ort.run(case.model(), case.feeds)


def test_every_op_has_tests() -> None:
    counts = Counter(case.op for case in official.cases())
    assert set(counts) == set(OPS)
    assert counts["Attention"] >= 93


def test_the_comparison_sees_a_change() -> None:
    """Each output of each test with its largest element changed by 1 %."""
    for case in official.cases():
        for name, shipped in case.expected.items():
            changed = shipped.copy()
            finite = changed.astype("float64")
            finite[~(abs(finite) < float("inf"))] = 0
            at = abs(finite).argmax()
            changed.reshape(-1)[at] = finite.reshape(-1)[at] * (1.05 if case.bfloat16 else 1.01)
            assert official.faults(case, {**case.expected, name: changed}), (case.name, name)
