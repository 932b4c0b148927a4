"""Activations with a bias, and experts, of com.microsoft."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from rewriter.probe.case import FLOATS, Case, Forms, cases
from rewriter.probe.cases.parts import declared
from rewriter.probe.graph import Given
from rewriter.probe.operands import Array, below, const, run, scaled, uniform

SHAPE = (2, 3, 8)


@cases(
    "com.microsoft::Gelu",
    "com.microsoft::FastGelu",
    "com.microsoft::BiasGelu",
    "com.microsoft::QuickGelu",
)
def gelu(form: Forms) -> Iterator[Case]:
    """With a bias and without."""
    for dtype in FLOATS:
        x = run(*SHAPE)
        if form.op == "com.microsoft::QuickGelu":
            yield form("alpha 1.702", dtype, x, alpha=1.702, quick=True)
            yield form("alpha 1", dtype, x, alpha=1.0)
            continue
        if form.op != "com.microsoft::BiasGelu":
            yield form("plain", dtype, x, quick=True)
        if form.op != "com.microsoft::Gelu":
            yield form("bias", dtype, x, const(8), quick=form.op != "com.microsoft::FastGelu")


def split_gelu(feeds: Mapping[str, Array]) -> Mapping[str, Array]:
    """BiasSplitGelu with a bias of 0.5: the left half times the gelu of the right one."""
    left, right = np.split(feeds["x1"] + 0.5, 2, axis=-1)
    erf = np.vectorize(math.erf)(right / math.sqrt(2))
    return {"y1": left * right * (1 + erf) / 2}


@cases("com.microsoft::BiasSplitGelu", "com.microsoft::BiasAdd")
def biases(form: Forms) -> Iterator[Case]:
    """Without a kernel of ONNX Runtime's CPU."""
    half = const(8 if form.op.endswith("Add") else 16, draw=lambda _rng, _shape: 0.5)
    if form.op == "com.microsoft::BiasAdd":
        yield declared(form, "plain", "f32", [run(*SHAPE), half, run(*SHAPE)], [SHAPE], quick=True,
                       reference=lambda feeds: {"y1": feeds["x1"] + 0.5 + feeds["x2"]})  # fmt: skip
    else:
        yield declared(form, "plain", "f32", [run(2, 3, 16), half], [SHAPE], quick=True,
                       reference=split_gelu)  # fmt: skip


EXPERTS, WIDTH, INNER = 4, 32, 64


@cases("com.microsoft::MoE", "com.microsoft::QMoE")
def experts(form: Forms) -> Iterator[Case]:
    """Two of four experts."""
    for dtype in FLOATS:
        x, router = run(8, WIDTH), run(8, EXPERTS, draw=scaled(2))
        y = (8, WIDTH)
        attributes = {"activation_type": "silu", "k": 2}
        if form.op == "com.microsoft::MoE":
            up, down = const(EXPERTS, INNER, WIDTH), const(EXPERTS, WIDTH, INNER)
            operands: list[Given] = [x, router, up, None, down]
            yield declared(
                form, "silu, 2 of 4", dtype, operands, [y], attributes, quick=dtype == "f32"
            )
            continue
        weights: list[Given] = []
        for rows, columns in ((INNER, WIDTH), (WIDTH, INNER)):
            codes = const(EXPERTS, rows, columns // 2, dtype="uint8", draw=below(256))
            weights += [codes, const(EXPERTS, rows, draw=uniform(0.01, 0.1)), None]
        bits = {"expert_weight_bits": 4, **attributes}
        yield declared(
            form,
            "4 bits, silu, 2 of 4",
            dtype,
            [x, router, *weights],
            [y],
            bits,
            quick=dtype == "f32",
        )
