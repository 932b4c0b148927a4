"""GGUF files in the shapes of Gemma 4 with random blocks for weights, as Q4_K_M has them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

_Q4, _Q6, _F32 = (GGMLQuantizationType[name] for name in ("Q4_K", "Q6_K", "F32"))
_PIECE = 1 << 24


@dataclass(frozen=True)
class Gemma:
    """Sizes; those of Gemma 4 E2B unless others are given. Every fifth layer sees all rows.

    Attributes:
        own: width of the embedding row that a layer has for itself.
        narrow: size of a head in a layer with a window; ``wide`` in one without.
        shared: layers, the last ones, that use the keys and values of earlier ones.
    """

    layers: int = 35
    hidden: int = 1536
    vocabulary: int = 262144
    own: int = 256
    heads: int = 8
    kv_heads: int = 1
    narrow: int = 256
    wide: int = 512
    shared: int = 20
    inner: int = 6144


REAL = Gemma()
"""About 3 GB."""
QUARTER = Gemma(layers=15, shared=5, vocabulary=65536)
"""0.7 GB, where a peer holds the file many times over in memory."""
SMALL = Gemma(hidden=256, vocabulary=1024, heads=4, narrow=64, wide=128, inner=512)
"""All 35 layers with 22 million weights, for what depends on nodes."""

Entry = tuple[str, tuple[int, ...], GGMLQuantizationType]


def tensors(size: Gemma) -> Iterator[Entry]:
    """Name, shape as in ONNX, and type of every tensor."""
    yield "token_embd.weight", (size.vocabulary, size.hidden), _Q6
    yield "per_layer_token_embd.weight", (size.vocabulary, size.layers * size.own), _Q4
    yield "per_layer_model_proj.weight", (size.layers * size.own, size.hidden), _F32
    yield "per_layer_proj_norm.weight", (size.own,), _F32
    yield "output_norm.weight", (size.hidden,), _F32
    yield "rope_freqs.weight", (size.wide // 2,), _F32
    for i in range(size.layers):
        head = size.wide if _full(i) else size.narrow
        inner = _inner(size, i)
        name = f"blk.{i}."
        for part in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm", "post_norm"):
            yield f"{name}{part}.weight", (size.hidden,), _F32
        yield f"{name}layer_output_scale.weight", (1,), _F32
        yield f"{name}attn_q.weight", (size.heads * head, size.hidden), _Q4
        yield f"{name}attn_q_norm.weight", (head,), _F32
        if i < size.layers - size.shared:
            yield f"{name}attn_k.weight", (size.kv_heads * head, size.hidden), _Q4
            yield f"{name}attn_k_norm.weight", (head,), _F32
            yield f"{name}attn_v.weight", (size.kv_heads * head, size.hidden), _Q6
        yield f"{name}attn_output.weight", (size.hidden, size.heads * head), _Q4
        yield f"{name}ffn_gate.weight", (inner, size.hidden), _Q4
        yield f"{name}ffn_up.weight", (inner, size.hidden), _Q4
        yield f"{name}ffn_down.weight", (size.hidden, inner), _Q6
        yield f"{name}inp_gate.weight", (size.own, size.hidden), _Q4
        yield f"{name}proj.weight", (size.hidden, size.own), _Q4


def _full(layer: int) -> bool:
    return (layer + 1) % 5 == 0


def _inner(size: Gemma, layer: int) -> int:
    return size.inner * (2 if layer >= size.layers - size.shared else 1)


def write(path: Path, size: Gemma = REAL) -> None:
    """Write the file, a piece at a time."""
    writer = gguf.GGUFWriter(path, "gemma4")
    numbers = {
        "block_count": size.layers,
        "vocab_size": size.vocabulary,
        "context_length": 32768,
        "embedding_length": size.hidden,
        "attention.head_count": size.heads,
        "attention.head_count_kv": size.kv_heads,
        "attention.key_length": size.wide,
        "attention.key_length_swa": size.narrow,
        "attention.sliding_window": 512,
        "attention.shared_kv_layers": size.shared,
        "embedding_length_per_layer_input": size.own,
        "rope.dimension_count": size.wide,
        "rope.dimension_count_swa": size.narrow,
    }
    for key, number in numbers.items():
        writer.add_uint32(f"gemma4.{key}", number)
    writer.add_float32("gemma4.attention.layer_norm_rms_epsilon", 1e-6)
    writer.add_float32("gemma4.rope.freq_base", 1e6)
    writer.add_float32("gemma4.rope.freq_base_swa", 1e4)
    writer.add_float32("gemma4.final_logit_softcapping", 30.0)
    writer.add_array(
        "gemma4.attention.sliding_window_pattern", [not _full(i) for i in range(size.layers)]
    )
    inner = [_inner(size, i) for i in range(size.layers)]
    writer.add_array("gemma4.feed_forward_length", inner)
    entries = list(tensors(size))
    for name, shape, kind in entries:
        block, stored = GGML_QUANT_SIZES[kind]
        raw = (*shape[:-1], shape[-1] // block * stored)
        count = int(np.prod(raw))
        dtype = np.dtype(np.float32) if kind == _F32 else np.dtype(np.uint8)
        given = shape if kind == _F32 else raw
        writer.add_tensor_info(name, given, dtype, count, None if kind == _F32 else kind)
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
