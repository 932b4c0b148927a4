"""A GGUF file as a model: the portable graph of its architecture over its own weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import onnx_ir as ir

from frontends.decoder.build import build
from frontends.decoder.config import Decoder
from frontends.decoder.requantize import Kind
from frontends.decoder.weights import Weight
from frontends.gguf.companions import companions_of
from frontends.gguf.config import decoder_of
from frontends.gguf.file import GgufFile
from frontends.gguf.tokenizer import TokenizerFiles, tokenizer_files
from frontends.gguf.weights import GgufWeights, unpermuted
from rewriter.errors import BadInput
from rewriter.source import CONTEXT, Companions, Source, WeightKind

_HEAD, _TABLE = "output.weight", "token_embd.weight"
_SPARE = ("rope_freqs.", "rope_factors_long.", "rope_factors_short.", ".attn_rot_embd.")
"""Weights that hold nothing a graph could lack: tables it has otherwise."""


def gguf_source(path: Path, kind: Kind = "exact") -> Source:
    """A GGUF file, or all shards of one.

    Args:
        path: the file, or any shard.
        kind: form of the weights; all but ``exact`` lose something.

    Raises:
        BadInput: it is no usable GGUF file.
    """
    reader = _Reader(GgufFile.open(path), kind)
    return Source(reader.file.path, reader.read, reader.companions, reader.kinds, built=True)


@dataclass
class _Reader:
    file: GgufFile
    kind: Kind
    weights: list[GgufWeights] = field(default_factory=list)
    tokenizer: TokenizerFiles | None = None

    def read(self, context: int | None) -> ir.Model:
        """The portable graph.

        Raises:
            BadInput: the architecture cannot be built from what the file holds.
        """
        stored = GgufWeights(self.file, self.kind)
        decoder = decoder_of(self.file.path, self.file.metadata, stored, context)
        model = build(decoder, _Checkpoint(stored, decoder), str(self.file.path))
        unused = [n for n in stored.unused() if not any(part in n for part in _SPARE)]
        if unused and unused != [_HEAD]:
            raise BadInput(
                f"{self.file.path}: holds {len(unused)} weights that '{decoder.name}' is not known "
                f"to use, such as '{unused[0]}'; without them it would be another model"
            )
        model.metadata_props[CONTEXT] = str(decoder.context)
        self.weights = [stored]
        return model

    def kinds(self) -> list[WeightKind]:
        """What became of the weights, by type."""
        return [kind for stored in self.weights for kind in stored.kinds()]

    def companions(self) -> Companions:
        """Tokenizer and configuration, from the metadata alone.

        Raises:
            BadInput: the tokenizer is damaged, or splits a text in a way that is not known.
        """
        path, metadata = self.file.path, self.file.metadata
        self.tokenizer = self.tokenizer or tokenizer_files(path, metadata)
        return companions_of(path, metadata, self.tokenizer)


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    """Weights as the architecture means them, not as llama.cpp stores them."""

    stored: GgufWeights
    decoder: Decoder

    def __contains__(self, name: str) -> bool:
        if name == _HEAD and name in self.stored:
            return not self.stored.same(_HEAD, _TABLE)
        return name in self.stored

    def __getitem__(self, name: str) -> Weight:
        weight = self.stored[name]
        _, _, rest = name.partition("blk.")
        layer, _, part = rest.partition(".")
        if not self.decoder.architecture.permuted or not part.startswith(("attn_q.", "attn_k.")):
            return weight
        sizes = self.decoder.layers[int(layer)]
        heads = sizes.heads if part.startswith("attn_q.") else sizes.kv_heads
        # Another number of rows is no order of heads; the builder says what there should be.
        rows = weight.shape[-2] if len(weight.shape) > 1 else weight.shape[0]
        return unpermuted(weight, heads) if rows == heads * sizes.head_dim else weight
