"""Models of one float weight, and what their quantized forms mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from rewriter.quantize.spec import WeightError, WeightQuantization
from rewriter.quantize.weights import quantize_weights
from tests import ort
from tests.graphs import Builder

F32, F16, I64 = ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.INT64
Array = npt.NDArray[Any]


def drawn(k: int, n: int, seed: int = 0) -> Array:
    """A weight (K, N) whose columns differ in size, with an outlier in some."""
    rng = np.random.default_rng(seed)
    weight = rng.standard_normal((k, n)) * rng.uniform(0.1, 2, n)
    weight[rng.integers(0, k, n // 4), rng.integers(0, n, n // 4)] *= 5
    return weight.astype(np.float32)


def product(weight: Array, rows: int = 4) -> ir.Model:
    """MatMul(a, W)."""
    b, (k, n) = Builder(), weight.shape
    dtype = ir.DataType.from_numpy(weight.dtype)
    y = b.op("MatMul", b.input("a", dtype, (1, rows, k)), b.const("W", weight), name="y")
    return b.model([(y, dtype, (1, rows, n))])


def quantized(model: ir.Model, folder: Path, **spec: Any) -> tuple[ir.Model, list[WeightError]]:
    """A copy of a model whose weights are quantized."""
    copy = model.clone()
    return copy, quantize_weights(copy, WeightQuantization(**spec), folder)


def meant(model: ir.Model) -> Array:
    """The weight (K, N) that the one MatMulNBits of a model means, as ONNX Runtime reads it."""
    (node,) = (node for node in model.graph if node.op_type == "MatMulNBits")
    b, k = Builder(), node.attributes["K"].as_int()
    stored = [v.const_value for v in node.inputs[1:] if v is not None]
    constants = [
        b.const(name, np.array(tensor.numpy()))
        for name, tensor in zip(("codes", "scales", "points"), stored, strict=False)
        if tensor is not None
    ]
    dtype = constants[1].dtype
    assert dtype is not None
    numbers = {name: node.attributes[name].as_int() for name in ("K", "N", "bits", "block_size")}
    y = b.op("com.microsoft::MatMulNBits", b.input("a", dtype, (1, k, k)), *constants, name="y",
             **numbers)  # fmt: skip
    identity = np.eye(k, dtype=dtype.numpy())[None]
    found = ort.run(b.model([(y, dtype, (1, k, numbers["N"]))]), {"a": identity})["y"]
    return np.asarray(found[0])


def ran(model: ir.Model, feeds: dict[str, Array]) -> Array:
    """The one output of a model whose weights may lie in files."""
    (found,) = ort.run(ir.external_data.load_to_model(model.clone()), feeds).values()
    return found
