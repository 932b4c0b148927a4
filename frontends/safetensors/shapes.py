"""The tensors a configuration asks for, with their shapes, against those that are there.

The builder takes from the presence of a weight what a layer has; here it is held against what
``config.json`` says, so that a tensor that is missing or too many cannot make another model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from frontends.decoder.config import Decoder, Layer
from frontends.safetensors.config import Sizes
from frontends.safetensors.families import Family
from frontends.safetensors.names import HEAD, TIED

Shape = tuple[int, ...]

_HIDDEN = (
    "attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm",
)  # fmt: skip
_SPARSE_NORMS = ("post_ffw_norm_1", "post_ffw_norm_2", "pre_ffw_norm_2")
"""Of Gemma 4's layers with experts."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A weight of the builder.

    Attributes:
        name: as the builder calls it.
        shape: that it has to have.
        needed: it has to be there.
    """

    name: str
    shape: Shape
    needed: bool = True


def wanted(
    decoder: Decoder, family: Family, sizes: Sizes, has: Callable[[str], bool]
) -> Iterator[Wanted]:
    """All weights of a model.

    Args:
        decoder: the model.
        family: its class.
        sizes: what its weights show.
        has: whether the checkpoint has a weight, where two forms do the same.
    """
    hidden, layer_norm = decoder.hidden, decoder.architecture.norm == "LayerNormalization"
    yield Wanted(TIED, (decoder.vocabulary, hidden))
    yield Wanted("output_norm.weight", (hidden,))
    if layer_norm:
        yield Wanted("output_norm.bias", (hidden,))
    # Said not to be tied, the head cannot be missing; said nothing, its presence shows it.
    tied = family.tied if sizes.tied is None else sizes.tied
    yield Wanted(HEAD, (decoder.vocabulary, hidden), needed=not tied and sizes.tied is not None)
    if decoder.per_layer:
        width = len(decoder.layers) * decoder.per_layer
        yield Wanted("per_layer_token_embd.weight", (sizes.table, width))
        yield Wanted("per_layer_model_proj.weight", (width, hidden))
        yield Wanted("per_layer_proj_norm.weight", (decoder.per_layer,))
    for i, layer in enumerate(decoder.layers):
        part = _Layer(decoder, family, sizes, layer, i, f"blk.{i}.", has)
        yield from part.norms()
        yield from part.attention()
        yield from part.feed_forward()
        yield from part.experts()
        if family.style == "gemma4":
            yield from part.gemma4()


@dataclass(frozen=True, slots=True)
class _Layer:
    decoder: Decoder
    family: Family
    sizes: Sizes
    layer: Layer
    index: int
    start: str
    has: Callable[[str], bool]

    def _one(self, name: str, *shape: int, needed: bool = True) -> Wanted:
        return Wanted(self.start + name, shape, needed)

    def _linear(self, name: str, rows: int, columns: int) -> Iterator[Wanted]:
        """A weight, and the bias that a key says it has, or may have where no key says it."""
        yield self._one(f"{name}.weight", rows, columns)
        said = (self.sizes.biases or {}).get(name)
        if said is not False:
            yield self._one(f"{name}.bias", rows, needed=said is True)

    def norms(self) -> Iterator[Wanted]:
        """Those of the residual stream."""
        names = set(self.family.table.values())
        for name in _HIDDEN:
            beside = name == "ffn_norm" and self.sizes.parallel
            if name in names and not beside:
                yield self._one(f"{name}.weight", self.decoder.hidden)
                if self.decoder.architecture.norm == "LayerNormalization":
                    yield self._one(f"{name}.bias", self.decoder.hidden)

    def attention(self) -> Iterator[Wanted]:
        """Projections, sinks, and norms of heads."""
        layer, hidden = self.layer, self.decoder.hidden
        wide, width = layer.heads * layer.head_dim, layer.kv_heads * layer.head_dim
        if self.family.style == "phi3":
            yield from self._linear("attn_qkv", wide + 2 * width, hidden)
        else:
            yield from self._linear("attn_q", wide, hidden)
            if layer.shares is None:
                yield from self._linear("attn_k", width, hidden)
                if not self.sizes.same_values or layer.window:
                    yield from self._linear("attn_v", width, hidden)
        yield from self._linear("attn_output", hidden, wide)
        if self.family.style == "gpt-oss":
            yield self._one("attn_sinks.weight", layer.heads)
        if not self.sizes.head_norms or "attn_q_norm" not in self.family.table.values():
            return
        for name, heads in (("attn_q_norm", layer.heads), ("attn_k_norm", layer.kv_heads)):
            if name == "attn_q_norm" or layer.shares is None:
                yield self._one(f"{name}.weight", *self._head_norm(heads, layer.head_dim))

    def _head_norm(self, heads: int, size: int) -> Shape:
        shapes = {"olmo2": (heads * size,), "stablelm": (heads, size)}
        return shapes.get(self.family.style, (size,))

    def feed_forward(self) -> Iterator[Wanted]:
        """The dense part."""
        width, hidden = self.sizes.dense[self.index], self.decoder.hidden
        if not width:
            return
        packed = self.family.style == "phi3"
        if self.decoder.architecture.gated and not packed:
            yield from self._linear("ffn_gate", width, hidden)
        yield from self._linear("ffn_up", 2 * width if packed else width, hidden)
        yield from self._linear("ffn_down", hidden, width)

    def experts(self) -> Iterator[Wanted]:
        """Router and experts."""
        experts, hidden, width = self.decoder.experts, self.decoder.hidden, self.sizes.expert
        if experts is None or not self.sizes.sparse[self.index]:
            return
        count, style = experts.count, self.family.style
        yield self._one("ffn_gate_inp.weight", count, hidden)
        yield self._one("ffn_down_exps.weight", count, hidden, width)
        if self.has(f"{self.start}ffn_gate_up_exps.weight"):
            yield self._one("ffn_gate_up_exps.weight", count, 2 * width, hidden)
        else:
            yield self._one("ffn_gate_exps.weight", count, width, hidden)
            yield self._one("ffn_up_exps.weight", count, width, hidden)
        if style == "gpt-oss":
            yield self._one("ffn_gate_inp.bias", count)
            yield self._one("ffn_down_exps.bias", count, hidden)
            yield self._one("ffn_gate_exps.bias", count, width)
            yield self._one("ffn_up_exps.bias", count, width)
        if self.sizes.shared:
            yield self._one("ffn_gate_inp_shexp.weight", 1, hidden)
            yield self._one("ffn_gate_shexp.weight", self.sizes.shared, hidden)
            yield self._one("ffn_up_shexp.weight", self.sizes.shared, hidden)
            yield self._one("ffn_down_shexp.weight", hidden, self.sizes.shared)

    def gemma4(self) -> Iterator[Wanted]:
        """What only its layers have."""
        experts, hidden, own = self.decoder.experts, self.decoder.hidden, self.decoder.per_layer
        yield self._one("layer_output_scale.weight", 1)
        if own:
            yield self._one("inp_gate.weight", own, hidden)
            yield self._one("proj.weight", hidden, own)
            yield self._one("post_norm.weight", hidden)
        if experts is not None:
            yield self._one("ffn_gate_inp.scale", hidden)
            yield self._one("ffn_down_exps.scale", experts.count)
            for name in _SPARSE_NORMS:
                yield self._one(f"{name}.weight", hidden)
