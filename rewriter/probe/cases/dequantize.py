"""Quantized weights behind DequantizeLinear: codes, scales, zero points, and what multiplies them.

The weights are read back: the other factor is an identity, which every activation type holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rewriter.probe.case import FLOATS, Case, Forms, Outputs, cases
from rewriter.probe.graph import Graph
from rewriter.probe.operands import (
    Operand,
    below,
    const,
    data_type,
    exactly,
    identity,
    run,
    uniform,
    value,
)

K, N, BLOCK = 128, 64, 32  # narrower weights are computed otherwise on HTP
LARGEST = 0.2
"""Bound of the scales."""
BITS = {"int8": 8, "int4": 4, "int2": 2, "uint8": 8, "uint4": 4, "uint2": 2}
GRAINS = {"per tensor": (), "per channel": (N,), "blocked": (K // BLOCK, N)}
POINTS = {"no zero point": "-", "zero point 0": "0", "middle zero point": "m", "zero points": "+"}
ACTIVATIONS = {"uint16": 65535, "uint8": 255, "int16": 32767, "int8": 127}
"""Quantized types of the other factor, and the highest code, which stands for 1."""


@dataclass(frozen=True)
class Weight:
    """W (K, N), or (N, K) if ``rows``: its codes, their scales and zero points."""

    kind: str
    grain: str
    points: str
    rows: bool = False
    cast: bool = False
    sign: int = 1

    def __str__(self) -> str:
        how = ", cast from bytes" * self.cast + ", rows" * self.rows
        how += ", negative scales" * (self.sign < 0)
        return f"{self.kind} {self.grain}, {self.points}{how}"

    @property
    def span(self) -> tuple[int, int]:
        """The lowest code, and the first that is too high."""
        count = 1 << BITS[self.kind]
        return (0, count) if self.kind[0] == "u" else (-count // 2, count // 2)

    def operands(self) -> list[Operand | None]:
        """Codes, scales and zero points, all stored."""
        low, high = self.span
        shape, scales = (K, N), GRAINS[self.grain]
        if self.rows:
            shape, scales = shape[::-1], scales[::-1]
        bounds = uniform(*sorted((self.sign * LARGEST / 2, self.sign * LARGEST)))
        codes = const(*shape, dtype="uint8" if self.cast else self.kind, draw=below(high, low))
        found: list[Operand | None] = [codes, const(*scales, draw=bounds)]
        number = {"zero point 0": 0, "middle zero point": (low + high) // 2}
        if self.points in number:
            found.append(value(np.full(scales, number[self.points]), self.kind))
        elif self.points == "zero points":
            several = below(high, low) if scales else exactly((low + high) // 2 + 1)
            found.append(const(*scales, dtype=self.kind, draw=several))
        return found

    def attributes(self) -> dict[str, int]:
        """Of the node: which axis is scaled, in which blocks."""
        if self.grain == "per tensor":
            return {}
        across = self.grain == "per channel"
        axis = int(across) if not self.rows else int(not across)
        return {"axis": axis} if across else {"axis": axis, "block_size": BLOCK}

    def product(self, graph: Graph, activations: str) -> Outputs:
        """A times W, with quantized types before and behind it if asked for."""
        a = graph.add(run(K, K, draw=identity) if self.rows else run(1, K, K, draw=identity))
        if activations:
            middle = 0 if activations[0] == "i" else (ACTIVATIONS[activations] + 1) // 2
            half = ACTIVATIONS[activations] - middle
            before = self.scale(graph, 1 / half, middle, activations)
            a = graph.op("DequantizeLinear", graph.op("QuantizeLinear", a, *before), *before)
        stored, *others = self.operands()
        kind = int(data_type(self.kind))
        codes = graph.op("Cast", stored, to=kind) if self.cast else stored
        w = graph.op("DequantizeLinear", codes, *others, **self.attributes())
        y = graph.op("Gemm", a, w, transB=1) if self.rows else graph.op("MatMul", a, w)
        if activations:
            bound = LARGEST * (1 << BITS[self.kind]) / half
            behind = self.scale(graph, bound, middle, activations)
            y = graph.op("DequantizeLinear", graph.op("QuantizeLinear", y, *behind), *behind)
        return y

    @staticmethod
    def scale(graph: Graph, step: float, point: int, kind: str) -> list[Operand]:
        """Scale and zero point of activations."""
        assert graph.dtype == data_type("f32")
        return [value(step, "f32"), value(point, kind)]


def weights() -> Iterator[Weight]:
    """Every kind of weight."""
    for kind in BITS:
        for grain in GRAINS:
            for points in POINTS:
                if points != "middle zero point" or kind[0] == "u":
                    yield Weight(kind, grain, points)


QUICK = {
    "f32": ("int2+ int4- int4+ int8+", "", "int4+"),
    "f16": ("int2+ int4- int4+ int8+", "int4+", "int4- int40 int4+ int8+ uint4+"),
    "uint8": (
        "int2+ int40 int4+ int8+",
        "int2- int20 int4- int40 int4+ int8- uint2+ uint40 uint4+ uint8m uint8+",
        "int20 int2+ int4- uint2+ uint4+ uint8m uint8+",
    ),
    "uint16": ("", "", "int2- int20 int2+ uint8m uint8+"),
    "int16": ("int40 uint40", "int40 uint40", "int40"),
    "int8": ("int40", "int40 int80", "int40 int80"),
}
"""The weights that decide a row, by what multiplies them, for each grain: kind and zero points."""


def quick(weight: Weight, activations: str, dtype: str) -> bool:
    """Whether a case decides a row."""
    words = QUICK[activations or dtype][list(GRAINS).index(weight.grain)]
    if weight.sign < 0:
        return weight.kind == "int8" and activations == "uint16"
    return weight.cast or f"{weight.kind}{POINTS[weight.points]}" in words.split()


def case(form: Forms, weight: Weight, activations: str, dtype: str) -> Case:
    """One weight in one product."""
    what = f"{weight}, by {activations or 'floats'}"
    unit = 1 if activations else 0
    opset = 25 if BITS[weight.kind] == 2 else 21
    return form.graph(what, dtype, lambda graph: weight.product(graph, activations), unit=unit,
                      opset=opset, quick=quick(weight, activations, dtype))  # fmt: skip


@cases("DequantizeLinear")
def products(form: Forms) -> Iterator[Case]:
    """Weights by floats, and by quantized activations."""
    for weight in weights():
        for dtype in FLOATS:
            yield case(form, weight, "", dtype)
        for activations in ("uint16", "uint8"):
            yield case(form, weight, activations, "f32")
        if weight.points == "zero point 0" and BITS[weight.kind] > 2:
            for activations in ("int16", "int8"):
                yield case(form, weight, activations, "f32")


@cases("DequantizeLinear")
def negative(form: Forms) -> Iterator[Case]:
    """Scales below 0, as some quantizers write them."""
    for kind in ("int8", "int4"):
        for grain in GRAINS:
            for activations in ("", "uint16", "uint8"):
                yield case(form, Weight(kind, grain, "zero point 0", sign=-1), activations, "f32")


@cases("DequantizeLinear")
def written_otherwise(form: Forms) -> Iterator[Case]:
    """Codes that are cast from bytes, and rows of blocks along K."""
    for grain in GRAINS:
        for rows in (False, True):
            yield case(form, Weight("uint4", grain, "zero points", rows, cast=True), "", "f32")
        for points in ("no zero point", "zero points"):
            for kind in ("int8", "int4", "uint8", "uint4"):
                yield case(form, Weight(kind, grain, points, rows=True), "", "f32")
