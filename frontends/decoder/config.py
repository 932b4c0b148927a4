"""What a decoder computes: numbers read from a checkpoint, and how its architecture uses them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Activation = Literal["silu", "gelu", "gelu_tanh", "swiglu_oai"]


@dataclass(frozen=True, slots=True)
class Architecture:
    """How all models of one architecture are built; what a checkpoint's weights show by being
    there (biases, packed projections, experts, scales of layers) is not said here.

    Attributes:
        norm: the op of every norm.
        needs: norms and the like without which a layer is damaged, though others have none.
        activation: of the feed-forward part.
        gated: the feed-forward part multiplies what is activated by a second product.
        permuted: llama.cpp stores rows of Q and K for interleaved rotation; they are put back.
        normed_values: values pass a norm without weights before they enter the cache.
        ffn_norm: name of the norm before the feed-forward part.
        scales_embedding: embeddings are multiplied by the root of the hidden size.
        attention_scale: of the scores; 0 for 1/sqrt(head size).
        mean_scale_layers: models of so many layers scale scores by 1/sqrt(hidden size / heads).
        window_every: of so many layers the last attends to all, the others to a window, where
            the file does not say which; 1: all have the window; 0: there are no windows.
        sliding_base: rotary base of the layers with a window, which then have no scaling, where
            the file does not say it; 0: they rotate as the others do.
        rope_every: of so many layers the last is not rotated; 0: all are.
        rounded_yarn: the ramp of yarn starts and ends at whole features.
        renormalized: weights of the chosen experts add up to 1, where the file does not say.
    """

    norm: Literal["RMSNormalization", "LayerNormalization"] = "RMSNormalization"
    needs: tuple[str, ...] = ("attn_norm", "ffn_norm")
    activation: Activation = "silu"
    gated: bool = True
    permuted: bool = False
    normed_values: bool = False
    ffn_norm: str = "ffn_norm"
    scales_embedding: bool = False
    attention_scale: float = 0.0
    mean_scale_layers: int = 0
    window_every: int = 0
    sliding_base: float = 0.0
    rope_every: int = 0
    rounded_yarn: bool = True
    renormalized: bool = True


@dataclass(frozen=True, slots=True)
class Rope:
    """A rotary embedding.

    Attributes:
        dim: rotated features R of a head; the others pass.
        base: of the frequencies base^(-2j/R).
        factors: each frequency is divided by its own; R/2 numbers, empty for none.
        magnitude: of the cosines and sines (longrope, yarn).
    """

    dim: int
    base: float
    factors: tuple[float, ...] = ()
    magnitude: float = 1.0


@dataclass(frozen=True, slots=True)
class Layer:
    """What differs from layer to layer.

    Attributes:
        heads: query heads.
        kv_heads: key/value heads.
        head_dim: features of a head.
        rope: ``None`` where positions are not rotated in.
        window: keys a query sees, itself counted; 0 for all.
        shares: the layer whose keys and values are used; ``None`` for its own.
    """

    heads: int
    kv_heads: int
    head_dim: int
    rope: Rope | None
    window: int = 0
    shares: int | None = None


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts.

    Attributes:
        count: how many there are.
        used: of them for each token.
        renormalized: weights of those that are used add up to 1.
    """

    count: int
    used: int
    renormalized: bool


@dataclass(frozen=True, slots=True)
class Decoder:
    """One decoder.

    Attributes:
        name: of the architecture, as GGUF calls it.
        architecture: its entry.
        vocabulary: rows of the embedding.
        hidden: width of the residual stream.
        context: positions the rotary tables cover.
        epsilon: of all norms.
        layers: in order.
        experts: ``None`` for dense models.
        per_layer: width of the inputs each layer gets of its own; 0 for none.
        embedding_scale: multiplies embeddings.
        residual_scale: multiplies what a layer adds.
        attention_scale: of the scores; 0 for 1/sqrt(head size).
        attention_softcap: of the scores; 0 for none.
        final_softcap: of the logits; 0 for none.
        logit_scale: multiplies the logits.
    """

    name: str
    architecture: Architecture
    vocabulary: int
    hidden: int
    context: int
    epsilon: float
    layers: tuple[Layer, ...]
    experts: Experts | None = None
    per_layer: int = 0
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    attention_scale: float = 0.0
    attention_softcap: float = 0.0
    final_softcap: float = 0.0
    logit_scale: float = 1.0
