"""GPTQ and AWQ: integers of four, two or eight bits with a scale and a zero point per group.

GPTQ's ``qweight`` int32 (K·bits/32, N) has neighbours along K in one word, ``qzeros`` int32
(groups, N·bits/32) neighbours along N, ``scales`` (groups, N), and ``g_idx`` int32 (K,) says the
group of each input. The first format stores zero points less one; ``gptq_v2`` as they are. AWQ
(version gemm) packs both along N, eight in a word in the order 0, 2, 4, 6, 1, 3, 5, 7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from frontends.decoder.rows import Bytes
from frontends.decoder.weights import Quantized
from frontends.safetensors import columns
from frontends.safetensors.columns import Columns, Floats, Found, Indices, form_of, quantized
from frontends.safetensors.folder import Checkpoint
from frontends.safetensors.header import Stored
from frontends.safetensors.keys import Config
from frontends.safetensors.order import order_of
from rewriter.errors import BadInput

_IDLE = (
    "act_group_aware", "backend", "batch_size", "block_name_to_quantize", "cache_block_outputs",
    "damp_auto_increment", "damp_percent", "dataset", "desc_act", "do_fuse", "exllama_config",
    "fuse_max_seq_len", "lm_head", "max_input_length", "meta", "model_file_base_name",
    "model_name_or_path", "model_seqlen", "module_name_preceding_first_block",
    "modules_in_block_to_quantize", "modules_to_fuse", "modules_to_not_convert", "mse", "quantizer",
    "static_groups", "sym", "tokenizer", "true_sequential", "uint4_zp_dtype", "use_cuda_fp16",
    "use_exllama",
)  # fmt: skip
"""How the weights were found, which of them are quantized (their tensors show it), who runs it."""
_SCALES = ("F16", "BF16", "F32")


def gptq_weights(checkpoint: Checkpoint, config: Config) -> Iterator[Found]:
    """The weights of a GPTQ checkpoint.

    Raises:
        BadInput: a width, format or group that cannot be read exactly.
    """
    _idle(config)
    config.only("bits", 2, 4, 8)
    config.only("pack_dtype", "int32")
    config.only("dynamic", {})
    config.only("is_marlin_format", False)
    for key in ("checkpoint_format", "format"):
        config.only(key, "gptq", "gptq_v2")
    bits, group = config.size("bits"), config.size("group_size", 128, least=-1)
    version = config.get("checkpoint_format", config.get("format", "gptq"))
    less = 1 if version == "gptq" else 0
    for stem, parts in _modules(checkpoint.tensors, ("qweight", "qzeros", "scales")):
        qweight, qzeros, scales = parts
        k, n = qweight.shape[0] * 32 // bits, qweight.shape[-1]
        size = k if group == -1 else group
        columns.block_of(stem, k, size)
        columns.require(f"{stem}.qweight", qweight, ("I32",), (k * bits // 32, n))
        columns.require(f"{stem}.scales", scales, _SCALES, (k // size, n))
        columns.require(f"{stem}.qzeros", qzeros, ("I32",), (k // size, n * bits // 32))
        tensors = [f"{stem}.{part}" for part in ("qweight", "qzeros", "scales")]
        order = None
        if f"{stem}.g_idx" in checkpoint.tensors:
            tensors.append(f"{stem}.g_idx")
            order = order_of(f"{stem}.g_idx", checkpoint.tensors[f"{stem}.g_idx"], k, size)
        codes = columns.along_inputs(qweight, bits)
        packed = columns.along_outputs(qzeros, bits, range(32 // bits))
        one = Columns(
            stem,
            (n, k),
            bits,
            size,
            codes if order is None else partial(_ordered, codes, order),
            columns.floats(scales),
            partial(_raised, f"{qzeros.path}: the tensor '{stem}.qzeros'", packed, less, bits),
        )
        yield f"{stem}.weight", tuple(tensors), (n, k), f"GPTQ {bits} bits", _maker(one)


def awq_weights(checkpoint: Checkpoint, config: Config) -> Iterator[Found]:
    """The weights of an AWQ checkpoint.

    Raises:
        BadInput: a width, version or group that cannot be read exactly.
    """
    _idle(config)
    for key in ("bits", "w_bit"):
        config.only(key, 4)
    config.only("zero_point", True)
    config.only("version", "gemm", "GEMM")
    least = config.size("q_group_size", 128, least=-1)
    group = config.size("group_size", least, least=-1)
    for stem, parts in _modules(checkpoint.tensors, ("qweight", "qzeros", "scales")):
        qweight, qzeros, scales = parts
        k, n = qweight.shape[0], qweight.shape[-1] * 8
        size = k if group == -1 else group
        columns.block_of(stem, k, size)
        columns.require(f"{stem}.qweight", qweight, ("I32",), (k, n // 8))
        columns.require(f"{stem}.scales", scales, _SCALES, (k // size, n))
        columns.require(f"{stem}.qzeros", qzeros, ("I32",), (k // size, n // 8))
        packed = columns.along_outputs(qzeros, 4, columns.INTERLEAVED)
        one = Columns(
            stem,
            (n, k),
            4,
            size,
            columns.along_outputs(qweight, 4, columns.INTERLEAVED),
            columns.floats(scales),
            partial(_raised, stem, packed, 0, 4),
        )
        tensors = tuple(f"{stem}.{part}" for part in ("qweight", "qzeros", "scales"))
        yield f"{stem}.weight", tensors, (n, k), "AWQ 4 bits", _maker(one)


def _idle(config: Config) -> None:
    for key in _IDLE:
        config.get(key)


def _modules(
    tensors: Mapping[str, Stored], parts: Sequence[str]
) -> Iterator[tuple[str, list[Stored]]]:
    """Modules that are quantized, and their tensors.

    Raises:
        BadInput: one of them is missing.
    """
    for name in tensors:
        stem = name.removesuffix(f".{parts[0]}")
        if stem == name:
            continue
        found = [tensors.get(f"{stem}.{part}") for part in parts]
        there = [stored for stored in found if stored is not None]
        if len(there) < len(found):
            lost = parts[found.index(None)]
            raise BadInput(
                f"{tensors[name].path}: has no tensor '{stem}.{lost}', which '{name}' needs; "
                "download the model again"
            )
        yield stem, there


def _maker(one: Columns) -> Callable[[], Quantized]:
    return lambda: quantized(one, form_of([one]))


def _ordered(codes: Callable[[Indices], Bytes], order: Indices, n: Indices) -> Bytes:
    return codes(n)[order]


def _raised(
    where: str, packed: Callable[[Indices], Bytes], less: int, bits: int, numbers: Indices
) -> Floats:
    """Zero points that are stored less a number.

    Raises:
        BadInput: one is stored as the highest code, which programs read in two ways.
    """
    found = packed(numbers)
    if less and (found == (1 << bits) - 1).any():
        raise BadInput(
            f"{where} holds {(1 << bits) - 1}, which some programs read as a zero point of 0 and "
            f"others as {1 << bits}; give the checkpoint in the format gptq_v2"
        )
    raised: Floats = found.astype(np.float32) + np.float32(less)
    return raised
