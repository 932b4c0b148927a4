"""What running a model costs in time and memory, estimated before it is tried."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from rewriter.nodes import constant

_CREATE_4BIT, _STEP_4BIT = 0.13, 0.28
_CREATE_FLOAT, _STEP_FLOAT = 0.03, 0.06
"""CPU seconds of QNN's emulator per million weights (real_size.md, on two cores)."""

_CPU_PAIR = 0.01
"""CPU seconds per million weights of comparing two models on ONNX Runtime's CPU: four sessions
and a dozen runs took 13 s at 1500 million."""

_EMULATOR_BYTES, _SESSION_BYTES, _UNPACKED_BYTES = 4.2, 1.5, 4
"""Bytes a session holds for each byte of weights: QNN's emulator 4.0 (4 bit) and 3.9 (fp16) at
1.6 billion weights; ONNX Runtime's CPU 1.0 to 1.4, and by default it folds what is dequantized
into floats: 8.0 GB for 1.2 GB of DequantizeLinear weights."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Weights of a model, in millions, by how the emulator handles them.

    Attributes:
        packed: weights of 4 or 8 bits that are multiplied, or a table that is dequantized.
        plain: floats.
        unpacked: those of ``packed`` that a DequantizeLinear makes floats.
        size: bytes of all constants, in millions.
    """

    packed: float
    plain: float
    unpacked: float = 0.0
    size: float = 0.0

    def minutes(self, runs: int) -> float:
        """To create one session in the emulator and run it so often."""
        create = self.packed * _CREATE_4BIT + self.plain * _CREATE_FLOAT
        step = self.packed * _STEP_4BIT + self.plain * _STEP_FLOAT
        return (create + runs * step) / 60

    def cpu_minutes(self) -> float:
        """To compare the model with its original on ONNX Runtime's CPU."""
        return (self.packed + self.plain) * _CPU_PAIR / 60

    def emulator_gb(self) -> float:
        """Memory of one session in the emulator."""
        return self.size * _EMULATOR_BYTES / 1e3

    def session_gb(self) -> float:
        """Memory of one session on ONNX Runtime's CPU."""
        return (self.size * _SESSION_BYTES + self.unpacked * _UNPACKED_BYTES) / 1e3


def estimate(model: ir.Model) -> Cost:
    """Count the weights of the products of a model."""
    packed = plain = unpacked = 0
    stored: dict[int, int] = {}
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        tensors = [constant(value) for value in node.inputs]
        stored |= {id(t): t.nbytes for t in tensors if t is not None}
        if node.op_type == "MatMulNBits":
            packed += node.attributes["K"].as_int() * node.attributes["N"].as_int()
        elif node.op_type == "DequantizeLinear" and tensors[0] is not None:
            packed += tensors[0].size
            unpacked += tensors[0].size
        elif node.op_type in {"MatMul", "Gemm", "Conv"} and tensors[1] is not None:
            plain += tensors[1].size
    return Cost(packed / 1e6, plain / 1e6, unpacked / 1e6, sum(stored.values()) / 1e6)


def free_gb() -> float:
    """Memory that is free for another process; infinite where nobody says."""
    if sys.platform != "linux":
        return float("inf")
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    known = {name: int(rest.split()[0]) for name, _, rest in (x.partition(":") for x in lines)}
    return min(known.get("MemAvailable", sys.maxsize) / 1e6, _container_gb(), _limit_gb())


def _container_gb() -> float:
    """What is left of the memory of a container (cgroup v2); page cache counts as free."""
    folder = Path("/sys/fs/cgroup")
    try:
        most = (folder / "memory.max").read_text(encoding="ascii").strip()
        used = int((folder / "memory.current").read_text(encoding="ascii"))
        stat = dict(x.split() for x in (folder / "memory.stat").read_text("ascii").splitlines())
    except (OSError, ValueError):
        return float("inf")
    cached = int(stat.get("inactive_file", "0"))
    return float("inf") if most == "max" else (int(most) - used + cached) / 1e9


def _limit_gb() -> float:
    """``ulimit -v``, which holds for each child too."""
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return float("inf") if soft == resource.RLIM_INFINITY else soft / 1e9


def weight_bytes(model: ir.Model) -> int:
    """Bytes of all initializers and Constant nodes of a model."""
    stored = [v.const_value for graph in model.graphs() for v in graph.initializers.values()]
    nodes = (node for graph in model.graphs() for node in graph if node.op_type == "Constant")
    stored += [constant(node.outputs[0]) for node in nodes]
    return sum(tensor.nbytes for tensor in stored if tensor is not None)
