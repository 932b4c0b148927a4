"""A float model of 1 GB quantized to 4 bits: ``python -m tests.benchmarks.quantize [FOLDER]``.

A decoder of 280 million random float32 weights. Printed are the time of ``rewrite --quantize``, by
method, and its memory: most of the command and of its children together, without what they only
map from files, and with it. Beside it run, in the environment of the Python that ``PEER`` names,
ONNX Runtime's own MatMulNBitsQuantizer over the whole model and Olive's pass for the method, if
they are installed there. It takes minutes, and 4 GB of disk.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import onnx_ir as ir

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


def measured(words: list[str]) -> tuple[int, float, float, float]:
    """Exit code, seconds, and GB of a command and its children: anonymous, and resident."""
    began, anonymous, resident = time.perf_counter(), 0, 0
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        while child.poll() is None:
            held = [_held(pid) for pid in _family(child.pid)]
            anonymous = max(anonymous, sum(one for one, _ in held))
            resident = max(resident, sum(one for _, one in held))
            time.sleep(0.05)
    return child.returncode, time.perf_counter() - began, anonymous / 1e6, resident / 1e6


def _family(pid: int) -> list[int]:
    """A process and its children, as far down as they go."""
    try:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    except OSError:
        found = []
    return [pid, *(one for child in found for one in _family(int(child)))]


def _held(pid: int) -> tuple[int, int]:
    """Kilobytes of a process that no file holds, and all that it has in memory."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0, 0
    found = {name: rest.split() for name, _, rest in (line.partition(":") for line in lines)}
    return tuple(int(found[name][0]) if name in found else 0 for name in ("RssAnon", "VmRSS"))  # type: ignore[return-value]  # two of them


def main() -> None:
    """Print a line for each way."""
    peer = os.environ.get("PEER", "")
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as name:
        folder, model = Path(name), Path(name) / "model.onnx"
        ir.save(decoder(_SIZES), model, external_data="model.onnx.data")
        size = model.with_name("model.onnx.data").stat().st_size
        print(f"{size / 1e9:.2f} GB of floats")  # ruff: ignore[print] - a command's output
        call = "from rewriter.cli import main; raise SystemExit(main())"
        out = folder / "out"
        for method in ("rtn", "kquant"):
            words = [sys.executable, "-c", call, str(model), "--ep", "ort-cpu", "-o", str(out)]
            words += ["--quantize", "int4", "--method", method, "--parity", "none", "--no-place"]
            ways = {"rewrite": words}
            for label, script in (("onnxruntime", _ORT), ("olive", _OLIVE)):
                target = out / "model.onnx" if label == "onnxruntime" else out
                ways[label] = [peer, "-c", script, str(model), str(target), method]
            for label, words in ways.items():
                if not words[0]:
                    continue
                shutil.rmtree(out, ignore_errors=True)
                if label != "rewrite":
                    out.mkdir()
                code, seconds, anonymous, resident = measured(words)
                written = sum(p.stat().st_size for p in out.rglob("*") if p.is_file()) / 1e9
                print(  # ruff: ignore[print]
                    f"{label:12} {method:7} exit {code}: {seconds:.1f} s, {anonymous:.2f} GB "
                    f"anonymous, {resident:.2f} with mapped files, {written:.2f} GB written",
                    flush=True,
                )


if __name__ == "__main__":
    main()
