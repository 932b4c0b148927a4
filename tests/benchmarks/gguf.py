"""A GGUF of real size, converted beside ``cp``: ``python -m tests.benchmarks.gguf [FOLDER]``.

The file has the shapes of Gemma 4 E2B (35 layers, hidden 1536, an embedding row for each layer) in
Q4_K, Q6_K and F32, and random blocks for weights: about 3 GB. Printed are the times of the
conversion and of ``cp`` of as many bytes as it reads and writes, run in turn, the most anonymous
memory it had, the size of its output, and the peer's time where ``mobius`` is installed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

LAYERS, HIDDEN, VOCABULARY, OWN = 35, 1536, 262144, 256
_HEADS, _KV_HEADS, _NARROW, _WIDE, _SHARED, _INNER = 8, 1, 256, 512, 20, 6144
_Q4, _Q6, _F32 = (GGMLQuantizationType[name] for name in ("Q4_K", "Q6_K", "F32"))
_PIECE = 1 << 24

Entry = tuple[str, tuple[int, ...], GGMLQuantizationType]


def tensors() -> Iterator[Entry]:
    """Name, shape as in ONNX, and type of every tensor."""
    yield "token_embd.weight", (VOCABULARY, HIDDEN), _Q6
    yield "per_layer_token_embd.weight", (VOCABULARY, LAYERS * OWN), _Q4
    yield "per_layer_model_proj.weight", (LAYERS * OWN, HIDDEN), _F32
    yield "per_layer_proj_norm.weight", (OWN,), _F32
    yield "output_norm.weight", (HIDDEN,), _F32
    yield "rope_freqs.weight", (_WIDE // 2,), _F32
    for i in range(LAYERS):
        size = _WIDE if _full(i) else _NARROW
        inner = _INNER * (2 if i >= LAYERS - _SHARED else 1)
        name = f"blk.{i}."
        for part in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm", "post_norm"):
            yield f"{name}{part}.weight", (HIDDEN,), _F32
        yield f"{name}layer_output_scale.weight", (1,), _F32
        yield f"{name}attn_q.weight", (_HEADS * size, HIDDEN), _Q4
        yield f"{name}attn_q_norm.weight", (size,), _F32
        if i < LAYERS - _SHARED:
            yield f"{name}attn_k.weight", (_KV_HEADS * size, HIDDEN), _Q4
            yield f"{name}attn_k_norm.weight", (size,), _F32
            yield f"{name}attn_v.weight", (_KV_HEADS * size, HIDDEN), _Q6
        yield f"{name}attn_output.weight", (HIDDEN, _HEADS * size), _Q4
        yield f"{name}ffn_gate.weight", (inner, HIDDEN), _Q4
        yield f"{name}ffn_up.weight", (inner, HIDDEN), _Q4
        yield f"{name}ffn_down.weight", (HIDDEN, inner), _Q6
        yield f"{name}inp_gate.weight", (OWN, HIDDEN), _Q4
        yield f"{name}proj.weight", (HIDDEN, OWN), _Q4


def _full(layer: int) -> bool:
    return (layer + 1) % 5 == 0


def write(path: Path) -> None:
    """Write the file, a piece at a time."""
    writer = gguf.GGUFWriter(path, "gemma4")
    numbers = {
        "block_count": LAYERS,
        "context_length": 32768,
        "embedding_length": HIDDEN,
        "attention.head_count": _HEADS,
        "attention.head_count_kv": _KV_HEADS,
        "attention.key_length": _WIDE,
        "attention.key_length_swa": _NARROW,
        "attention.sliding_window": 512,
        "attention.shared_kv_layers": _SHARED,
        "embedding_length_per_layer_input": OWN,
        "rope.dimension_count": _WIDE,
        "rope.dimension_count_swa": _NARROW,
    }
    for key, number in numbers.items():
        writer.add_uint32(f"gemma4.{key}", number)
    writer.add_float32("gemma4.attention.layer_norm_rms_epsilon", 1e-6)
    writer.add_float32("gemma4.rope.freq_base", 1e6)
    writer.add_float32("gemma4.rope.freq_base_swa", 1e4)
    writer.add_float32("gemma4.final_logit_softcapping", 30.0)
    writer.add_array(
        "gemma4.attention.sliding_window_pattern", [not _full(i) for i in range(LAYERS)]
    )
    entries = list(tensors())
    for name, shape, kind in entries:
        block, stored = GGML_QUANT_SIZES[kind]
        raw = (*shape[:-1], shape[-1] // block * stored)
        size = int(np.prod(raw))
        dtype = np.dtype(np.float32) if kind == _F32 else np.dtype(np.uint8)
        given = shape if kind == _F32 else raw
        writer.add_tensor_info(name, given, dtype, size, None if kind == _F32 else kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    rng = np.random.default_rng(0)
    piece = _blocks(rng, _Q4), _blocks(rng, _Q6)
    for _, shape, kind in entries:
        writer.write_tensor_data(_data(shape, kind, piece))
    writer.close()


def _blocks(rng: np.random.Generator, kind: GGMLQuantizationType) -> np.ndarray:
    """Random blocks with scales that keep weights near 0.02."""
    stored = GGML_QUANT_SIZES[kind][1]
    blocks = rng.integers(0, 256, (_PIECE // stored, stored), np.uint8)
    scale = np.frombuffer(np.float16(2e-5).tobytes(), np.uint8)
    blocks[:, :2] = scale
    blocks[:, 2 if kind == _Q4 else stored - 2 :][:, :2] = scale
    return blocks


def _data(
    shape: tuple[int, ...], kind: GGMLQuantizationType, pieces: tuple[np.ndarray, np.ndarray]
) -> np.ndarray:
    if kind == _F32:
        return np.ones(shape, np.float32)
    block, stored = GGML_QUANT_SIZES[kind]
    piece = pieces[0] if kind == _Q4 else pieces[1]
    count = int(np.prod(shape)) // block
    return np.resize(piece, (count, stored))


def convert(model: Path, out: Path) -> tuple[float, float]:
    """Seconds of the whole command, and the most anonymous memory in MB."""
    call = "from rewriter.cli import main; raise SystemExit(main())"
    words = [sys.executable, "-c", call, str(model), "--ep", "ort-cpu", "-o", str(out)]
    began, peak = time.perf_counter(), 0
    with subprocess.Popen([*words, "--parity", "none", "--no-place"]) as child:
        while child.poll() is None:
            peak = max(peak, _anonymous(child.pid))
            time.sleep(0.02)
    assert child.returncode == 0
    return time.perf_counter() - began, peak / 1024


def _anonymous(pid: int) -> int:
    """Kilobytes of a process that no file holds."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return 0
    found = (line.split()[1] for line in status.splitlines() if line.startswith("RssAnon"))
    return int(next(found, "0"))


def _copied(files: list[Path], folder: Path) -> float:
    began = time.perf_counter()
    for file in files:
        subprocess.run(["cp", file, folder / "copy"], check=True)
    subprocess.run(["rm", folder / "copy"], check=True)
    return time.perf_counter() - began


def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as name:
        folder = Path(name)
        model, out = folder / "model.gguf", folder / "out"
        write(model)
        for _ in range(3):
            shutil.rmtree(out, ignore_errors=True)
            seconds, anonymous = convert(model, out)
            copying = _copied([model, *out.iterdir()], folder)
            sizes = model.stat().st_size, sum(p.stat().st_size for p in out.iterdir())
            print(  # ruff: ignore[print] - a command's output
                f"{sizes[0] / 1e9:.2f} GB in, {sizes[1] / 1e9:.2f} out ({sizes[1] / sizes[0]:.2f} "
                f"times): {seconds:.1f} s, {seconds / copying:.2f} times cp ({copying:.1f} s), "
                f"{anonymous:.0f} MB anonymous"
            )
        if (peer := shutil.which("mobius")) is not None:
            began = time.perf_counter()
            words = [peer, "build-gguf", str(model), "--keep-quantized", "-o", str(folder / "peer")]
            code = subprocess.run(words, check=False).returncode
            print(f"mobius: {time.perf_counter() - began:.1f} s, exit {code}")  # ruff: ignore[print]


if __name__ == "__main__":
    main()
