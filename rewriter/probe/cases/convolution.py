"""Convolutions, pools and resizing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rewriter.probe.case import FLOATS, Case, Forms, cases
from rewriter.probe.cases.parts import declared
from rewriter.probe.operands import const, fed, run, value


@cases("Conv")
def conv(form: Forms) -> Iterator[Case]:
    """A linear layer, patches of an image, and the causal convolution of a state space model."""
    for dtype in FLOATS:
        quick = dtype == "f32"
        yield form("1x1", dtype, run(1, 8, 1, 6), const(5, 8, 1, 1), quick=quick)
        yield form(
            "patches 2x2", dtype, run(1, 3, 4, 6), const(5, 3, 2, 2), const(5), strides=[2, 2]
        )
        yield form("rank 3", dtype, run(1, 3, 8), const(5, 3, 3), pads=[1, 1], quick=quick)
        yield form(
            "rank 3 depthwise causal", dtype, run(1, 4, 8), const(4, 1, 3), group=4, pads=[2, 0]
        )
        yield form("run-time weight", dtype, run(1, 3, 4, 6), fed(const(5, 3, 2, 2)))


@cases("ConvTranspose")
def conv_transpose(form: Forms) -> Iterator[Case]:
    """Twice as large."""
    for dtype in FLOATS:
        yield form("rank 4", dtype, run(1, 3, 4, 5), const(3, 4, 2, 2), strides=[2, 2],
                   quick=dtype == "f32")  # fmt: skip


@cases("AveragePool", "MaxPool", "GlobalAveragePool")
def pool(form: Forms) -> Iterator[Case]:
    """Half as large, or a mean of all."""
    for dtype in FLOATS:
        halves: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [2, 2]}
        if form.op == "GlobalAveragePool":
            halves = {}
        yield form("rank 4", dtype, run(1, 3, 4, 6), quick=dtype == "f32", **halves)


@cases("Resize")
def resize(form: Forms) -> Iterator[Case]:
    """Twice as large in every mode."""
    for dtype in FLOATS:
        for mode in ("nearest", "linear", "cubic"):
            half = "half_pixel" if mode != "nearest" else "asymmetric"
            scales = value([1, 1, 2, 2], "f32")
            yield form(f"{mode}, {half}", dtype, run(1, 3, 4, 5), None, scales, mode=mode,
                       coordinate_transformation_mode=half, nearest_mode="floor",
                       quick=dtype == "f32")  # fmt: skip


@cases("com.microsoft::CausalConvWithState")
def with_state(form: Forms) -> Iterator[Case]:
    """Tokens behind those that a state holds."""
    state = (2, 8, 2)
    for what, tokens, bias in (("decode", 1, None), ("prompt", 5, const(8))):
        operands = [run(2, 8, tokens), const(8, 1, 3), bias, run(*state)]
        yield declared(form, what, "f32", operands, [(2, 8, tokens), state], quick=what == "decode")
