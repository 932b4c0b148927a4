"""What a GGUF file's keys say of a decoder, and every way in which they can say too little."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from frontends.decoder.config import Decoder, Rope
from frontends.decoder.weights import Float, Weight
from frontends.gguf.config import decoder_of
from rewriter.errors import BadInput

PATH = Path("model.gguf")
LLAMA = {
    "general.architecture": "llama",
    "llama.block_count": 4,
    "llama.context_length": 512,
    "llama.embedding_length": 64,
    "llama.attention.head_count": 4,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
}


class _Weights(dict[str, Weight]):
    """A table of 10 tokens, and vectors."""

    def __init__(self, **vectors: list[float]) -> None:
        super().__init__({"token_embd.weight": Float(ir.tensor(np.zeros((10, 64), np.float32)))})
        for name, numbers in vectors.items():
            self[f"{name}.weight"] = Float(ir.tensor(np.asarray(numbers, np.float32)))


def _decoder(*, arch: str = "llama", weights: Any = None, **more: Any) -> Decoder:
    keys = {k.replace("llama", arch): v for k, v in LLAMA.items()}
    keys["general.architecture"] = arch
    keys |= {f"{arch}.{k.replace('__', '.')}": v for k, v in more.items()}
    return decoder_of(PATH, keys, weights or _Weights())


def test_what_is_not_said_follows_from_the_rest() -> None:
    decoder = _decoder()
    assert decoder.vocabulary == 10
    layer = decoder.layers[0]
    assert (layer.heads, layer.kv_heads, layer.head_dim) == (4, 4, 16)
    assert layer.rope == Rope(16, 10000.0)
    assert layer.window == 0


def test_head_size_is_the_key_never_hidden_over_heads() -> None:
    """D56: Qwen3 has heads of 128 where hidden over heads is 64."""
    assert _decoder(arch="qwen3", attention__key_length=128).layers[0].head_dim == 128


def test_unknown_architecture_lists_the_known() -> None:
    with pytest.raises(BadInput, match=r"'mamba' cannot be built; known: .*llama"):
        _decoder(arch="mamba")


@pytest.mark.parametrize("key", [k for k in LLAMA if k.startswith("llama.")])
def test_a_missing_key_is_named(key: str) -> None:
    keys = {k: v for k, v in LLAMA.items() if k != key}
    with pytest.raises(BadInput, match=f"the key '{key}' is missing"):
        decoder_of(PATH, keys, _Weights())


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"attention__clamp_kqv": 8.0}, r"'llama.attention.clamp_kqv' is 8.0"),
        ({"attention__causal": False}, r"'llama.attention.causal' is False"),
        ({"some__new_key": [1] * 99}, r"'llama.some.new_key' is \[1, 1, .*\.\.\.,"),
        ({"attention__sliding_window": 8}, r"not known which layers of 'llama' use a window"),
        ({"attention__value_length": 8}, r"value_length' is 8, and keys have 16"),
        ({"attention__head_count": [4, 4]}, r"holds 2 values for 4 layers"),
        ({"rope__scaling__type": "su"}, r"rope.scaling.type' is 'su', which cannot be built"),
        ({"rope__scaling__type": "linear"}, r"rope.scaling.factor' is missing"),
    ],
)
def test_what_is_not_understood_stops(more: dict[str, Any], words: str) -> None:
    """D14 for the last two: a scaling of unknown type, or without its factor, names the key."""
    with pytest.raises(BadInput, match=words):
        _decoder(**more)


def test_neutral_values_are_no_fault() -> None:
    _decoder(attention__clamp_kqv=0.0, attention__causal=True, feed_forward_length=99)


def test_divisors_of_another_size() -> None:
    with pytest.raises(
        BadInput, match=r"'rope_freqs.weight' has the shape \[3\], and 16 rotated features have 8"
    ):
        _decoder(weights=_Weights(rope_freqs=[1, 1, 1]))


def test_linear_scaling_divides_every_frequency() -> None:
    """D14: neither the type nor the factor is passed over."""
    rope = _decoder(rope__scaling__type="linear", rope__scaling__factor=4.0).layers[0].rope
    assert rope is not None
    assert rope.factors == (4.0,) * 8


def test_yarn_leaves_fast_frequencies_and_divides_slow_ones() -> None:
    """The ends of the ramp, and 1 + 0.1·ln(factor) on cosines and sines."""
    more: dict[str, Any] = {"type": "yarn", "factor": 16.0, "original_context_length": 64}
    rope = _decoder(**{f"rope__scaling__{k}": v for k, v in more.items()}).layers[0].rope
    assert rope is not None
    assert rope.factors[0] == 1
    assert rope.factors[-1] == pytest.approx(16)
    assert rope.magnitude == pytest.approx(1.2772588722)


@pytest.mark.parametrize(("context", "factor"), [(32, 1.0), (512, 2.0)])
def test_longrope_goes_by_the_length_that_is_served(context: int, factor: float) -> None:
    weights = _Weights(rope_factors_short=[1.0] * 8, rope_factors_long=[2.0] * 8)
    keys = {k.replace("llama", "phi3"): v for k, v in LLAMA.items()}
    keys |= {"general.architecture": "phi3", "phi3.rope.scaling.original_context_length": 64}
    rope = decoder_of(PATH, keys, weights, context).layers[0].rope
    assert rope is not None
    assert rope.factors == (factor,) * 8


def test_windows_follow_the_architecture_or_the_file() -> None:
    decoder = _decoder(arch="gemma2", attention__sliding_window=8)
    assert [layer.window for layer in decoder.layers] == [8, 0, 8, 0]
    pattern = [True, False, False, True]
    decoder = _decoder(
        arch="gemma3", attention__sliding_window=8, attention__sliding_window_pattern=pattern
    )
    assert [layer.window for layer in decoder.layers] == [8, 0, 0, 8]
    assert decoder.layers[0].rope == Rope(16, 10000.0)


def test_shared_caches_come_from_the_last_layer_of_their_kind() -> None:
    decoder = _decoder(
        arch="gemma4",
        attention__sliding_window=8,
        attention__sliding_window_pattern=[True, False, True, False],
        attention__shared_kv_layers=2,
    )
    assert [layer.shares for layer in decoder.layers] == [None, None, 0, 1]


def test_some_layers_of_smollm3_are_not_rotated() -> None:
    assert [layer.rope is None for layer in _decoder(arch="smollm3").layers] == [False] * 3 + [True]


def test_scales_of_granite() -> None:
    decoder = _decoder(
        arch="granite",
        embedding_scale=12.0,
        residual_scale=0.22,
        attention__scale=0.0078,
        logit_scale=8.0,
    )
    found = (decoder.embedding_scale, decoder.residual_scale, decoder.attention_scale)
    assert found == (12.0, 0.22, 0.0078)
    assert decoder.logit_scale == pytest.approx(1 / 8)
