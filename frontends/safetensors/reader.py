"""A checkpoint as a model: the portable graph of its architecture over its own weights."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import onnx_ir as ir

from frontends.decoder.build import build
from frontends.decoder.config import Decoder
from frontends.decoder.requantize import Kind
from frontends.safetensors.companions import companions_of
from frontends.safetensors.config import Sizes, decoder_of, family_of
from frontends.safetensors.families import Family
from frontends.safetensors.folder import CONFIG, Checkpoint
from frontends.safetensors.names import Names
from frontends.safetensors.quantized import packed_weights
from frontends.safetensors.shapes import wanted
from frontends.safetensors.weights import CheckpointWeights
from rewriter.errors import BadInput
from rewriter.source import CONTEXT, Companions, Source, WeightKind

_PREFIXES = ("model.language_model.", "language_model.model.", "model.")
"""What tensors of the text model start with, in the order they are looked for."""
_OTHERS = re.compile(
    r"(model\.)?(vision_tower|vision_model|vision_embedder|embed_vision|audio_tower|embed_audio"
    r"|multi_modal_projector)\..+"
)
"""Tensors of a model's eyes and ears, which are never read."""
_SPARE = re.compile(r".+\.rotary_emb\.(inv_freq|cos_cached|sin_cached)")
"""Tables that older versions of transformers stored, and that the configuration gives."""
_SHARED = re.compile(r"blk\.(\d+)\.attn_(k|v|k_norm)\.(weight|bias)")
"""What a layer with keys and values of another one has no use for, as in transformers."""


def safetensors_source(folder: Path, kind: Kind = "exact") -> Source:
    """A folder with a checkpoint of transformers.

    Args:
        folder: with ``config.json`` and the weights, in one file or in shards.
        kind: form of the weights; all but ``exact`` lose something.

    Raises:
        BadInput: a file of it is missing or damaged.
    """
    reader = _Reader(Checkpoint.open(folder), kind)
    path = next(iter(reader.checkpoint.tensors.values())).path
    return Source(path, reader.read, reader.companions, reader.kinds, built=True)


@dataclass
class _Reader:
    checkpoint: Checkpoint
    kind: Kind
    weights: list[CheckpointWeights] = field(default_factory=list)

    def read(self, context: int | None) -> ir.Model:
        """The portable graph.

        Raises:
            BadInput: the architecture cannot be built from what the folder holds.
        """
        folder, config = self.checkpoint.folder, self.checkpoint.config
        _, family = family_of(folder / CONFIG, config)
        packed = packed_weights(self.checkpoint)
        decoder, sizes = decoder_of(folder / CONFIG, config, context)
        parts = {part for one in packed.values() for part in one.tensors}
        found = [*(name for name in self.checkpoint.tensors if name not in parts), *packed]
        names = _names(folder, family, found)
        stored = CheckpointWeights(self.checkpoint, names, packed, family.shift, self.kind)
        _require_match(folder, decoder, family, sizes, names, stored)
        model = build(decoder, stored, str(folder))
        model.metadata_props[CONTEXT] = str(decoder.context)
        self.weights = [stored]
        return model

    def kinds(self) -> list[WeightKind]:
        """What became of the weights, by type."""
        return [kind for stored in self.weights for kind in stored.kinds()]

    def companions(self) -> Companions:
        """Tokenizer and configuration, from beside the weights.

        Raises:
            BadInput: a file is no JSON, or the model cannot be built.
        """
        decoder_of(self.checkpoint.folder / CONFIG, self.checkpoint.config)
        return companions_of(self.checkpoint)


def _names(folder: Path, family: Family, found: Iterable[str]) -> Names:
    """The tensors of the text model by the builder's names.

    Raises:
        BadInput: there is no text model, or a tensor that nothing uses.
    """
    listed = list(found)
    if family.text:
        listed = [name for name in listed if not _OTHERS.fullmatch(name)]
    prefix = next(
        (p for p in _PREFIXES if f"{p}embed_tokens.weight" in listed),
        _PREFIXES[0] if family.text else "model.",
    )
    heads = ("lm_head.weight", "language_model.lm_head.weight")
    head = next((name for name in heads if name in listed), heads[0])
    names = Names(listed, family.table, prefix, head)
    unknown = [name for name in names.unknown if not _SPARE.fullmatch(name)]
    if unknown:
        raise _unused(folder, family, unknown)
    return names


def _require_match(
    folder: Path,
    decoder: Decoder,
    family: Family,
    sizes: Sizes,
    names: Names,
    stored: CheckpointWeights,
) -> None:
    """Stop where weights are not those that the configuration speaks of.

    Raises:
        BadInput: one is missing, has another shape, or is too many.
    """
    left = set(names.origins)
    for one in wanted(decoder, family, sizes, names.origins.__contains__):
        if one.name not in names.origins:
            if one.needed:
                raise stored.missing(one.name)
            continue
        left.discard(one.name)
        if gap := names.origins[one.name].without(one.shape[0]):
            raise stored.missing(one.name, gap)
        if stored.shape(one.name) != one.shape:
            raise BadInput(
                f"{folder}: the tensor '{names.called(one.name)}' makes a weight of shape "
                f"{list(stored.shape(one.name))} where {CONFIG} says {list(one.shape)}; download "
                "the model again"
            )
    shares = {i for i, layer in enumerate(decoder.layers) if layer.shares is not None}
    for name in left:
        match = _SHARED.fullmatch(name)
        if match and int(match[1]) in shares:
            continue
        raise _unused(folder, family, [names.called(name)])


def _unused(folder: Path, family: Family, unused: list[str]) -> BadInput:
    return BadInput(
        f"{folder}: holds tensors that '{family.style}' models of this {CONFIG} are not known to "
        f"use, such as '{unused[0]}'; without them it would be another model"
    )
