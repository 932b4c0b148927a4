"""What one measurement means: the words of a record, from a placement and from numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from capabilities import Verdict
from rewriter.nodes import constant
from rewriter.probe.operands import Array
from rewriter.runtime.child import Assigned, Partition

CPU = "CPUExecutionProvider"
_HALF = 0.02
"""Largest error of fp16 arithmetic over the largest reference value: HTP's, and of float16."""
_SINGLE = 1e-3
"""The same of a runtime that computes in float32."""
_LEAST = 1e-3
"""An absolute error that HTP may make in any case."""
_ROUNDED = 1.001
"""Steps that a quantized output may be off where floats are computed: a tie rounded elsewhere."""
_STEPS = 2.1
"""Steps of a quantized output that it may be off by."""
_STEADY = frozenset({"Abs", "Flatten", "Identity", "Neg", "Relu", "Reshape", "Transpose"})
_BOUNDARY = frozenset({"DequantizeLinear", "QuantizeLinear"})


@dataclass(frozen=True, slots=True)
class Measured:
    """What became of a case, in the words of :class:`capabilities.records.Record`.

    Attributes:
        verdict: as there; ``NOREF`` behind it where nothing is known of the numbers.
        max_abs: largest error; of a right result the power of ten it lies below, so that every
            machine writes the same.
        max_rel: that over the largest reference value.
        note: where the ops ran, and the runtime's own reason.
    """

    verdict: str
    max_abs: str = ""
    max_rel: str = ""
    note: str = ""

    @property
    def known(self) -> bool:
        """Whether it says anything of the form: a result without a reference does not."""
        return not self.verdict.endswith("-NOREF")

    @property
    def meaning(self) -> Verdict:
        """What the table would say: placed whole and right is legal, claimed with other numbers
        is wrong, and all else does not run there.
        """
        placed, _, flaw = self.verdict.partition("-")
        if placed in {"HTP", "HTP+io", "OK"}:
            return Verdict.WRONG if flaw else Verdict.LEGAL
        return Verdict.ILLEGAL


def placed(partitions: Sequence[Partition], model: ir.Model) -> str:
    """``HTP``, ``HTP+io``, ``SPLIT``, ``MIX`` or ``CPU``."""
    taken = [part for part in partitions if part.ep != CPU]
    left = [node for part in partitions if part.ep == CPU for node in part.nodes]
    if not left:
        return "HTP" if len(taken) <= 1 else "SPLIT"
    if not taken:
        return "CPU"
    return "HTP+io" if all(_at_the_boundary(node, model) for node in left) else "MIX"


def _at_the_boundary(node: Assigned, model: ir.Model) -> bool:
    """A Q of a graph input or a DQ to a graph output, which QNN leaves to the CPU by default."""
    found = next((one for one in model.graph if one.name == node.name), None)
    if found is None or found.op_type not in _BOUNDARY:
        return False
    source = found.inputs[0]
    entering = source is not None and source.is_graph_input()
    return entering or any(output.is_graph_output() for output in found.outputs)


def ops_of(nodes: Iterable[Assigned]) -> str:
    """Ops with their counts: ``Addx2,MatMul``."""
    counts: dict[str, int] = {}
    for node in nodes:
        counts[node.op] = counts.get(node.op, 0) + 1
    return ",".join(f"{op}x{n}" if n > 1 else op for op, n in sorted(counts.items()))


@dataclass(frozen=True, slots=True)
class Gap:
    """How far one output is from its reference."""

    flaw: str
    apart: float
    relative: float


def gap(reference: Array, other: Array, bound: float, least: float = 0.0) -> Gap:
    """Compare one output.

    Args:
        reference: what is right.
        other: what the runtime gave.
        bound: largest error of floats over the largest reference value.
        least: an absolute error that is allowed besides.
    """
    if reference.shape != other.shape:
        return Gap("SHAPE", math.inf, math.inf)
    one, two = reference.astype(np.float64), other.astype(np.float64)
    finite = np.isfinite(one)
    both = finite & np.isfinite(two)
    flaw = ""
    if (finite & np.isnan(two)).any():
        flaw = "NAN"
    elif (finite & np.isinf(two)).any():
        flaw = "INF"
    elif not np.array_equal(one[~finite], two[~finite], equal_nan=True):
        flaw = "NONFINITE"
    apart = float(np.abs(one[both] - two[both]).max(initial=0.0))
    largest = float(np.abs(one[finite]).max(initial=0.0))
    allowed = max(bound * largest, least) if reference.dtype.kind == "f" else 0.0
    if not flaw and apart > allowed:
        flaw = "WRONG"
    return Gap(flaw, apart, apart / largest if largest else apart)


def compared(
    ep: str, model: ir.Model, reference: Mapping[str, Array], outputs: Mapping[str, Array]
) -> Gap:
    """The worst output of a case."""
    gaps = []
    for value in model.graph.outputs:
        name = value.name or ""
        if ep == "qnn":
            bound, least = _HALF, max(_LEAST, _STEPS * _step(value))
        else:
            bound = _HALF if value.dtype == ir.DataType.FLOAT16 else _SINGLE
            least = _ROUNDED * _step(value, computed=True)
        gaps.append(gap(reference[name], outputs[name], bound, least))
    return max(gaps, key=lambda one: (bool(one.flaw), one.relative))


def shows_nothing(reference: Mapping[str, Array]) -> bool:
    """Whether every output is one number, which many wrong programs give too."""
    arrays = [np.ravel(array.astype(np.float64)) for array in reference.values() if array.size > 1]
    return bool(arrays) and all((array == array[0]).all() for array in arrays)


def _step(value: ir.Value, *, computed: bool = False) -> float:
    """The step of an output that was quantized and then at most moved or folded; 0 for others.

    Args:
        value: the output.
        computed: 0 also where what was quantized was not computed, so that every bit is known.
    """
    producer = value.producer()
    while producer is not None and producer.op_type in _STEADY and producer.inputs[0] is not None:
        producer = producer.inputs[0].producer()
    if producer is None or producer.op_type != "DequantizeLinear":
        return 0.0
    if computed and not _computed(producer):
        return 0.0
    scale = constant(producer.inputs[1])
    return 0.0 if scale is None else float(np.max(scale.numpy()))


def _computed(dequantize: ir.Node) -> bool:
    """Whether what was quantized is the result of arithmetic."""
    stored = dequantize.inputs[0]
    quantize = None if stored is None else stored.producer()
    given = None if quantize is None else quantize.inputs[0]
    source = None if given is None else given.producer()
    return source is not None and source.op_type not in _STEADY | _BOUNDARY


def figure(error: float, *, right: bool) -> str:
    """An error as a record has it (:class:`Measured`)."""
    if not right:
        return f"{error:.2g}"
    return f"{10.0 ** math.ceil(math.log10(error)):.0e}" if error > 0 else "0"
