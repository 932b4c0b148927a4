"""Quark's weights of two and four bits: ``X.weight`` (K, N) packed along N, per-group scales.

``uint2`` is uint8 (K, N/4), the first of four neighbours in the top bits; ``uint4`` and ``int4``
are int32 (K, N/8) in AWQ's order. ``X.weight_scale`` and ``X.weight_zero_point`` are floats
(K/group, N); zero points of four bits may be packed as the weight is. What Quark does to inputs
(``X.input_prescale``, ``shared_input_rotation_K``) is read in :mod:`.beside`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import numpy as np

from frontends.decoder.rows import Bytes
from frontends.decoder.weights import Quantized
from frontends.safetensors import columns
from frontends.safetensors.beside import ROTATION
from frontends.safetensors.columns import (
    Columns,
    Floats,
    Form,
    Found,
    Indices,
    form_of,
    quantized,
)  # fmt: skip
from frontends.safetensors.folder import Checkpoint
from frontends.safetensors.header import Stored
from frontends.safetensors.keys import Config
from rewriter.errors import BadInput

_BITS = {"uint2": 2, "uint4": 4, "int4": 4}
_SCALES = ("F16", "BF16", "F32")
_IDLE = (
    "observer_cls", "round_method", "scale_calculation_mode", "scale_format", "scale_type",
    "symmetric", "zero_point_type", "mx_element_dtype",
)  # fmt: skip
"""How codes were found; scales and zero points are there."""
_FOLDED = ("autosmoothquant", "awq", "gptaq", "gptq", "qronos", "smooth")
"""Algorithms that leave nothing to compute."""
_EXPERT = re.compile(r"(?<=experts\.)\d+(?=\.)")


@dataclass(slots=True)
class _Stack:
    """Weights that become one, and so have one form."""

    members: list[Columns] = field(default_factory=list)
    form: Form | None = None

    def weight(self, one: Columns) -> Quantized:
        if self.form is None:
            self.form = form_of(self.members)
        return quantized(one, self.form)


def quark_weights(checkpoint: Checkpoint, config: Config) -> Iterator[Found]:
    """The weights of a Quark checkpoint.

    Raises:
        BadInput: a type, scheme or group that cannot be read exactly.
    """
    kind_of, reordered = _settings(config)
    tensors = checkpoint.tensors
    stacks: dict[str, _Stack] = {}
    found = []
    rotations = {name for name in tensors if ROTATION.fullmatch(name)}
    for name in tensors:
        stem = name.removesuffix(".weight")
        parts = _parts(tensors, stem)
        if stem == name or not parts:
            continue
        one, dtype = _columns(tensors, stem, parts, kind_of(stem), reordered=reordered)
        stack = stacks.setdefault(_EXPERT.sub("*", stem), _Stack())
        stack.members.append(one)
        used = [name, *parts.values()]
        if f"{stem}.input_prescale" in tensors:
            used.append(f"{stem}.input_prescale")
        rotation = f"shared_input_rotation_{one.shape[1]}"
        if rotation in rotations:  # counted once
            rotations.remove(rotation)
            used.append(rotation)
        found.append((name, tuple(used), one.shape, f"Quark {dtype}", partial(stack.weight, one)))
    yield from found


def _parts(tensors: Mapping[str, Stored], stem: str) -> dict[str, str]:
    """Names of scales and zero points of a module, in either spelling."""
    parts = {}
    for part in ("scale", "zero_point"):
        for spelled in (f"{stem}.weight_{part}", f"{stem}.weight_quantizer.{part}"):
            if spelled in tensors:
                parts[part] = spelled
    return parts


def _settings(config: Config) -> tuple[Callable[[str], tuple[str, int]], bool]:
    """Type and size of groups by module, and whether codes of four bits are out of order.

    Raises:
        BadInput: something besides the weights is quantized, or in another way.
    """
    for key in ("exclude", "quant_mode", "version"):
        config.get(key)
    found = config.get("algo_config", [])
    steps = found if isinstance(found, list) else [found]
    if any(not isinstance(step, dict) or step.get("name") not in _FOLDED for step in steps):
        raise config.wrong(
            "algo_config", f"and only what is folded into weights is read: {', '.join(_FOLDED)}"
        )
    config.only("kv_cache_quant_config", {})
    config.only("layer_type_quant_config", {})
    config.only("kv_cache_post_rope", False)
    export = config.part("export")
    export.only("pack_method", "reorder", "order")
    export.only("weight_format", "real_quantized")
    export.only("kv_cache_group", [])
    for key in ("min_kv_scale", "weight_merge_groups"):
        export.get(key)
    reordered = export.get("pack_method", "reorder") == "reorder"
    export.require_understood("quark")
    usual = _kind(config.part("global_quant_config"))
    special = config.part("layer_quant_config")
    names: Mapping[str, Any] = config.get("layer_quant_config", {})
    special_kinds = {name: _kind(special.part(name)) for name in names}

    def kind_of(stem: str) -> tuple[str, int]:
        for pattern, kind in special_kinds.items():
            if fnmatchcase(stem, pattern) or stem.endswith(f".{pattern}"):
                return kind
        return usual

    return kind_of, reordered


def _kind(config: Config) -> tuple[str, int]:
    """Type and size of groups of the weights."""
    weight = config.part("weight")
    weight.needed("dtype")
    weight.only("dtype", *_BITS)
    weight.needed("qscheme")
    weight.only("qscheme", "per_group")
    weight.only("ch_axis", 1, -1)
    weight.only("is_dynamic", False)
    weight.only("is_scale_quant", False)
    for key in _IDLE:
        weight.get(key)
    size = weight.size("group_size", least=-1)
    weight.require_understood("quark")
    config.require_understood("quark")
    return str(weight.get("dtype")), size


def _columns(
    tensors: Mapping[str, Stored],
    stem: str,
    parts: Mapping[str, str],
    kind: tuple[str, int],
    *,
    reordered: bool,
) -> tuple[Columns, str]:
    """A weight and its type.

    Raises:
        BadInput: a tensor of it is missing, or of another type or shape.
    """
    weight, (dtype, size) = tensors[f"{stem}.weight"], kind
    bits = _BITS[dtype]
    if "scale" not in parts or ("zero_point" not in parts and dtype != "int4"):
        lost = "weight_zero_point" if "scale" in parts else "weight_scale"
        raise BadInput(
            f"{weight.path}: has no tensor '{stem}.{lost}', which '{stem}.weight' of type "
            f"{dtype} needs; download the model again"
        )
    scale = tensors[parts["scale"]]
    k, n = weight.shape[0], scale.shape[-1]
    group = k if size == -1 else size
    columns.block_of(stem, k, group)
    columns.require(parts["scale"], scale, _SCALES, (k // group, n))
    packed = ("U8", -(-n // 4)) if bits == 2 else ("I32", -(-n // 8))
    columns.require(f"{stem}.weight", weight, (packed[0],), (k, packed[1]))
    places = columns.INTERLEAVED if reordered else columns.IN_ORDER
    flip = 8 if dtype == "int4" else 0
    read = _two_bits(weight) if bits == 2 else _flipped(weight, places, flip)
    zeros: Callable[[Indices], Floats] = partial(_middle, k // group)
    if "zero_point" in parts:
        stored = tensors[parts["zero_point"]]
        if bits == 4 and stored.dtype == "I32":
            columns.require(parts["zero_point"], stored, ("I32",), (k // group, packed[1]))
            codes = _flipped(stored, places, flip)
            zeros = partial(_as_floats, codes)
        else:
            columns.require(parts["zero_point"], stored, _SCALES, (k // group, n))
            zeros = partial(_moved, columns.floats(stored), flip)
    return Columns(stem, (n, k), bits, group, read, columns.floats(scale), zeros), dtype


def _two_bits(stored: Stored) -> Callable[[Indices], Bytes]:
    """Columns of uint8 (K, N/4), the first of four in the top bits."""

    def read(numbers: Indices) -> Bytes:
        found = stored.rows()[:, numbers // 4]
        return (found >> (6 - 2 * (numbers % 4)).astype(np.uint8)) & np.uint8(3)

    return read


def _flipped(stored: Stored, places: Sequence[int], flip: int) -> Callable[[Indices], Bytes]:
    """Columns of four bits; signed ones become unsigned, eight more, as their top bit flips."""
    codes = columns.along_outputs(stored, 4, places)
    return lambda numbers: codes(numbers) ^ np.uint8(flip)


def _as_floats(codes: Callable[[Indices], Bytes], numbers: Indices) -> Floats:
    return codes(numbers).astype(np.float32)


def _moved(zeros: Callable[[Indices], Floats], by: int, numbers: Indices) -> Floats:
    return zeros(numbers) + np.float32(by)


def _middle(groups: int, numbers: Indices) -> Floats:
    """Zero points of signed codes without any."""
    return np.full((groups, len(numbers)), 8, np.float32)
