"""ONNX's own node tests of the fused ops, lowered and compared with the outputs they ship."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from capabilities import Target
from rewriter.lowering import Stuck, lower
from tests import ort

OPS = (
    "Attention", "Gelu", "LayerNormalization", "RMSNormalization", "RotaryEmbedding", "Swish",
    "TensorScatter",
)  # fmt: skip
"""The ops whose tests are collected."""

BFLOAT16 = {"rtol": 2**-7, "atol": 2**-8}
"""Bfloat16 keeps 8 bits: one unit in the last place, and as much for weights up to 1."""


@dataclass(frozen=True)
class Official:
    """A node test: the model, its inputs, and the outputs that onnx ships, in order."""

    name: str
    op: str
    proto: onnx.ModelProto
    feeds: ort.Arrays
    expected: ort.Arrays
    rtol: float
    atol: float

    @property
    def bfloat16(self) -> bool:
        """ONNX Runtime's CPU has no kernels for it: onnx's reference runs these."""
        return any(array.dtype.name == "bfloat16" for array in self.feeds.values())

    def model(self) -> ir.Model:
        """A copy to edit."""
        return ir.from_proto(self.proto)


@cache
def cases() -> tuple[Official, ...]:
    """Every node test of :data:`OPS` as a single node (not the ones with the body written out)."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other ops' tests overflow on purpose
        collected: list[Any] = collect_testcases(None)
    return tuple(
        _official(case)
        for case in collected
        if len(case.model.graph.node) == 1 and case.model.graph.node[0].op_type in OPS
    )


def _official(case: Any) -> Official:
    graph = case.model.graph
    ((given, shipped),) = case.data_sets
    return Official(
        case.name,
        graph.node[0].op_type,
        case.model,
        {v.name: _array(x) for v, x in zip(graph.input, given, strict=True)},
        {v.name: _array(x) for v, x in zip(graph.output, shipped, strict=True)},
        case.rtol,
        case.atol,
    )


def _array(value: Any) -> np.ndarray[Any, Any]:
    if isinstance(value, onnx.TensorProto):
        return ir.serde.deserialize_tensor(value).numpy()
    return np.asarray(value)


def lowered(case: Official, on: Target) -> tuple[ir.Model | None, str]:
    """The model for a target, and the rules that fired (none: it is legal as it stands).

    Where it is refused there is no model, but the reason.
    """
    model = case.model()
    try:
        report = lower(model, on)
    except Stuck as stuck:
        return None, str(stuck)
    assert not report.unknown, case.name
    return model, ", ".join(sorted({site.rule for site in report.fired}))


def run(case: Official, model: ir.Model) -> ort.Arrays:
    """Outputs of a lowered model on ONNX Runtime's CPU; of bfloat16, by onnx's reference."""
    if not case.bfloat16:
        return ort.run(model, case.feeds)
    proto = ir.to_proto(model)
    evaluator: Any = ReferenceEvaluator(proto)
    found = evaluator.run(None, {v.name: case.feeds[v.name] for v in proto.graph.input})
    return dict(zip([v.name for v in proto.graph.output], found, strict=True))


def faults(case: Official, found: Mapping[str, np.ndarray[Any, Any]]) -> list[str]:
    """How outputs differ from the shipped ones: names, types, shapes, or an element."""
    if list(found) != list(case.expected):
        return [f"{case.name}: outputs {list(found)}, not {list(case.expected)}"]
    bounds = BFLOAT16 if case.bfloat16 else {"rtol": case.rtol, "atol": case.atol}
    messages = []
    for name, shipped in case.expected.items():
        actual = found[name]
        if (actual.dtype, actual.shape) != (shipped.dtype, shipped.shape):
            messages.append(f"{case.name}: {name} is {actual.dtype} {actual.shape}")
            continue
        pair = actual.astype(np.float64), shipped.astype(np.float64)
        if not np.allclose(*pair, **bounds, equal_nan=True):
            with np.errstate(invalid="ignore"):
                worst = np.abs(pair[0] - pair[1]).max()
            messages.append(f"{case.name}: {name} is off by up to {worst}")
    return messages
