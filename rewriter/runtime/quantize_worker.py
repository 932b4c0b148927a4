"""Quantize weights with ONNX Runtime's own code: ``python quantize_worker.py job.json``.

A script like ``session_worker.py``. It holds no weight longer than it takes to answer.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rewriter.runtime import worker_files as files
    from rewriter.runtime import worker_serve as serving
else:
    sys.path.append(str(Path(__file__).parent))  # last: what lies here hides no other module
    import worker_files as files
    import worker_serve as serving


class Quantizer:
    """Codes, scales and zero points of a matrix (K, N), in blocks along K, for MatMulNBits."""

    def __init__(self, job: dict[str, Any], folder: Path) -> None:
        files.enter(folder, "loading the runtime")
        import onnxruntime  # ruff: ignore[unused-import] - say now that it is missing

        files.enter(folder, "loading its quantizers")
        from onnxruntime.quantization import matmul_nbits_quantizer as nbits
        from onnxruntime.quantization.neural_compressor import weight_only

        self.nbits, self.weight_only = nbits, weight_only
        self.methods = {"rtn": self.rtn, "kquant": self.kquant}
        files.enter(folder, "quantizing a weight")

    def answer(
        self, head: dict[str, Any], arrays: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Quantize ``weight`` (K, N) by the method, bits and block that are asked for."""
        return {}, self.methods[head["method"]](arrays["weight"], head["bits"], head["block"])

    def rtn(self, weight: Any, bits: int, block: int) -> dict[str, Any]:
        """Around the middle, with no zero points: packed (N, K/b, ·) and scales (N, K/b)."""
        config = self.nbits.DefaultWeightOnlyQuantConfig(block, is_symmetric=True, bits=bits)
        quantizer = self.nbits.DefaultWeightOnlyQuantizer(config)
        packed, scales, _ = quantizer.qbits_block_quant(weight)
        return {"codes": packed, "scales": scales}

    def kquant(self, weight: Any, bits: int, block: int) -> dict[str, Any]:
        """By the k-quant search: codes, each its own byte, (N, K/b, b), and zero points."""
        import numpy as np

        k, n = weight.shape
        blocks = -(-k // block)
        rows = np.zeros((n, blocks * block), np.float32)
        rows[:, :k] = weight.T
        with np.errstate(all="ignore"):  # blocks of equal values divide by 0, and keep their start
            found = self.weight_only.quant_tensor_k_quant_cpu(rows, bits, block)
        codes, scales, points = found
        return {
            "loose": codes.astype(np.uint8).reshape(n, blocks, block),
            "scales": scales.astype(weight.dtype).reshape(n, blocks),
            "points": points.astype(np.uint8).reshape(n, blocks),
        }


if __name__ == "__main__":
    serving.serve(Path(sys.argv[1]), Quantizer)
