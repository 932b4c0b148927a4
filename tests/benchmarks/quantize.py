"""A float model of 1 GB quantized to 4 bits: ``python -m tests.benchmarks.quantize [FOLDER]``.

A decoder of 280 million random float32 weights. Printed are the time of ``rewrite --quantize``, by
method, and its memory: most of the command and of its children together, without what they only
map from files. Beside it run ONNX Runtime's own MatMulNBitsQuantizer over the whole model and
Olive's pass for the method, where ``REWRITE_ENVIRONMENTS`` names a folder for Olive's environment.
It takes minutes, and 4 GB of disk.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import onnx_ir as ir

from tests.benchmarks.cost import command
from tests.benchmarks.external import CALL
from tests.benchmarks.peers import OLIVE, python
from tests.decoders import Decoder, decoder

_SIZES = Decoder(weights="fp32", layers=4, hidden=2048, heads=16, kv_heads=8, head_size=128,
                 ffn=8192, vocabulary=8192, packed=False)  # fmt: skip
_ORT = """
import sys
from onnxruntime.quantization.matmul_nbits_quantizer import (
    DefaultWeightOnlyQuantConfig, KQuantWeightOnlyQuantConfig, MatMulNBitsQuantizer)
model, out, method = sys.argv[1:]
kquant = KQuantWeightOnlyQuantConfig()
config = kquant if method == "kquant" else DefaultWeightOnlyQuantConfig(32, True, bits=4)
quantizer = MatMulNBitsQuantizer(model, block_size=32, is_symmetric=True, algo_config=config)
quantizer.process()
quantizer.model.save_model_to_file(out, True)
"""
_OLIVE = """
import sys
from olive.model import ONNXModelHandler
from olive.passes.olive_pass import create_pass_from_dict
from olive.passes.onnx.kquant_quantization import OnnxKQuantQuantization
from olive.passes.onnx.rtn_quantization import OnnxBlockWiseRtnQuantization
model, out, method = sys.argv[1:]
kind = OnnxKQuantQuantization if method == "kquant" else OnnxBlockWiseRtnQuantization
made = create_pass_from_dict(kind, {"block_size": 32}, disable_search=True)
made.run(ONNXModelHandler(model), out)
"""


def main() -> None:
    """Print a line for each way."""
    peer = python(OLIVE)
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as name:
        folder, model = Path(name), Path(name) / "model.onnx"
        ir.save(decoder(_SIZES), model, external_data="model.onnx.data")
        size = model.with_name("model.onnx.data").stat().st_size
        print(f"{size / 1e9:.2f} GB of floats")  # ruff: ignore[print] - a command's output
        out = folder / "out"
        for method in ("rtn", "kquant"):
            words: list[str | Path] = [
                sys.executable,
                "-c",
                CALL,
                model,
                "--ep",
                "ort-cpu",
                "-o",
                out,
            ]
            words += ["--quantize", "int4", "--method", method, "--parity", "none", "--no-place"]
            ways: dict[str, list[str | Path]] = {"rewrite": words}
            for label, script in (("onnxruntime", _ORT), ("olive", _OLIVE)):
                target = out / "model.onnx" if label == "onnxruntime" else out
                if peer is not None:
                    ways[label] = [peer, "-c", script, model, target, method]
            for label, words in ways.items():
                shutil.rmtree(out, ignore_errors=True)
                if label != "rewrite":
                    out.mkdir()
                cost = command(*words)()
                written = sum(p.stat().st_size for p in out.rglob("*") if p.is_file()) / 1e9
                print(  # ruff: ignore[print]
                    f"{label:12} {method:7} {cost.wall:.1f} s, {cost.anonymous / 1e9:.2f} GB "
                    f"anonymous, {written:.2f} GB written",
                    flush=True,
                )


if __name__ == "__main__":
    main()
