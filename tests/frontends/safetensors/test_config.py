"""``config.json``: what older and newer versions write, and every key that is not honoured."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from frontends.decoder.config import Decoder
from frontends.safetensors.config import decoder_of
from rewriter.errors import BadInput
from tests.frontends.safetensors.altered import CASES, changed, config_of

PATH = Path("config.json")


def _decoder(case: str, keys: dict[str, Any] | None = None, context: int | None = None) -> Decoder:
    return decoder_of(PATH, changed(config_of(case), keys or {}), context)[0]


def _fault(case: str, keys: dict[str, Any]) -> str:
    with pytest.raises(BadInput) as caught:
        _decoder(case, keys)
    message = str(caught.value)
    assert message.startswith("config.json: ")
    assert "\n" not in message
    return message


# The same model in other words.

YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 24, "beta_fast": 4.0}
SAME: list[tuple[str, dict[str, Any]]] = [
    ("qwen2-window", {"rope_parameters": ..., "rope_theta": 10000.0, "rope_scaling": YARN}),
    ("qwen2-window", {"layer_types": ...}),
    ("qwen2-window", {"dtype": ..., "torch_dtype": "float16", "use_cache": False}),
    ("qwen2moe", {"layer_types": ...}),
    ("qwen3", {"rope_parameters": ..., "rope_theta": 10000}),
    ("qwen3", {"rope_parameters": ...}),
    ("qwen3", {"rope_scaling": None, "sliding_window": 7, "max_window_layers": 1}),
    ("qwen3", {"rope_parameters.rope_type": "dynamic", "rope_parameters.factor": 4.0}),
    ("gemma", {"hidden_activation": "gelu_pytorch_tanh", "hidden_act": "gelu"}),
    ("gemma2", {"layer_types": ..., "cache_implementation": "hybrid", "sliding_window_size": 5}),
    ("gemma2", {"hidden_act": "gelu_pytorch_tanh"}),
    ("gemma3", {"rope_parameters": ..., "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0,
                "rope_scaling": {"rope_type": "linear", "factor": 8.0}}),
    ("gemma3", {"layer_types": ..., "sliding_window_pattern": 6}),
    ("gemma4-moe", {"rope_parameters": ...}),
    ("gemma4-moe", {"use_bidirectional_attention": "vision"}),
    ("gemma4-moe", {"sliding_window_pattern": 6}),
    ("gpt-oss", {"experts_per_token": 2, "swiglu_limit": 7.0, "initial_context_length": 64}),
    ("gpt-oss", {"layer_types": ...}),
    ("llama3", {"head_dim": None}),
    ("mistral", {"layer_types": ["sliding_attention"] * 2}),
    ("phi3-long", {"rope_parameters.rope_type": ..., "rope_parameters.type": "su"}),
    ("phi3-long", {"rope_parameters.original_max_position_embeddings": ...}),
    ("smollm3", {"layer_types": ...}),
    ("stablelm", {"rope_parameters": ..., "partial_rotary_factor": 0.25, "rope_theta": 10000}),
    ("stablelm", {"rope_parameters": ...}),
    ("starcoder2", {"mlp_type": "default", "norm_type": "layer_norm"}),
]  # fmt: skip


@pytest.mark.parametrize(("case", "keys"), SAME)
def test_other_words_for_the_same(case: str, keys: dict[str, Any]) -> None:
    assert _decoder(case, keys) == _decoder(case)


def test_sizes_of_layers_one_by_one() -> None:
    """Since transformers 5.24 a key says what is unusual in each layer."""
    keys = {
        "global_head_dim": ...,
        "per_layer_config": {"2": {"head_dim": 32}, "4": {"head_dim": 32}},
    }
    assert _decoder("gemma4-e2b", keys) == _decoder("gemma4-e2b")
    keys = {"global_head_dim": ..., "num_global_key_value_heads": ...,
            "per_layer_config": {"2": {"head_dim": 32, "num_key_value_heads": 1}}}  # fmt: skip
    assert _decoder("gemma4-moe", keys) == _decoder("gemma4-moe")


def test_text_keys_that_are_not_written() -> None:
    """Parts of a configuration are written as what differs from the class."""
    names = ("rms_norm_eps", "hidden_activation", "vocab_size")
    keys: dict[str, Any] = {f"text_config.{name}": ... for name in names}
    found = _decoder("gemma3-vision", keys)
    assert (found.epsilon, found.vocabulary) == (1e-6, 262208)
    assert found.architecture.activation == "gelu_tanh"


# Numbers, by formulas typed out here.


def test_llama3_rope() -> None:
    rope = _decoder("llama3").layers[0].rope
    assert rope is not None
    for j, factor in enumerate(rope.factors):
        frequency = 10000.0 ** (-2 * j / 8)
        turns = 24 * frequency / (2 * math.pi)
        kept = min(max((turns - 1) / (4 - 1), 0), 1)
        assert 1 / factor == pytest.approx(kept + (1 - kept) / 8)
    assert len(rope.factors) == 4


def test_proportional_rope_has_a_tail_that_does_not_turn() -> None:
    rope = _decoder("gemma4-moe").layers[2].rope
    assert rope is not None
    assert (rope.dim, rope.base) == (32, 1e6)
    assert rope.factors == (1.0,) * 4 + (math.inf,) * 12
    factor = {"rope_parameters.full_attention.factor": 2.0}
    rope = _decoder("gemma4-moe", factor).layers[2].rope
    assert rope is not None
    assert rope.factors[:5] == (2.0,) * 4 + (math.inf,)


def test_longrope_is_chosen_by_the_positions_that_are_served() -> None:
    short, long = (_decoder("phi3-long", context=n).layers[0].rope for n in (24, 25))
    assert short is not None
    assert long is not None
    assert short.factors == (1.0, 1.3, 1.6)
    assert long.factors == (3.0, 3.3, 3.6)
    expected = math.sqrt(1 + math.log(96 / 24) / math.log(24))
    assert short.magnitude == long.magnitude == pytest.approx(expected)


@pytest.mark.parametrize(
    ("keys", "windows"),
    [
        ({"max_window_layers": 0, "layer_types": ...}, [5, 5]),
        ({"max_window_layers": 2, "layer_types": ...}, [0, 0]),
        ({"layer_types": ["sliding_attention", "full_attention"]}, [5, 0]),
        ({"use_sliding_window": False, "layer_types": ...}, [0, 0]),
        ({"sliding_window": None, "layer_types": ...}, [0, 0]),
    ],
)
def test_windows_of_qwen2(keys: dict[str, Any], windows: list[int]) -> None:
    assert [layer.window for layer in _decoder("qwen2-window", keys).layers] == windows


@pytest.mark.parametrize(
    ("named", "kind"),
    [("gelu", "gelu"), ("gelu_new", "gelu_tanh"), ("silu", "silu"), ("swish", "silu")],
)
def test_activations(named: str, kind: str) -> None:
    assert _decoder("starcoder2", {"hidden_act": named}).architecture.activation == kind


PHI4_MINI = {
    "_name_or_path": "Phi-4-mini-instruct", "architectures": ["Phi3ForCausalLM"],
    "attention_bias": False, "attention_dropout": 0.0, "auto_map": {"AutoConfig": "x"},
    "bos_token_id": 199999, "embd_pdrop": 0.0, "eos_token_id": 199999, "full_attn_mod": 1,
    "hidden_act": "silu", "hidden_size": 3072, "initializer_range": 0.02,
    "intermediate_size": 8192, "interpolate_factor": 1, "lm_head_bias": False,
    "max_position_embeddings": 131072, "mlp_bias": False, "model_type": "phi3",
    "num_attention_heads": 24, "num_hidden_layers": 32, "num_key_value_heads": 8,
    "original_max_position_embeddings": 4096, "pad_token_id": 199999,
    "partial_rotary_factor": 0.75, "resid_pdrop": 0.0, "rms_norm_eps": 1e-05,
    "rope_scaling": {"long_factor": [2.0] * 48, "short_factor": [1.0] * 48, "type": "longrope"},
    "rope_theta": 10000.0, "sliding_window": 262144, "tie_word_embeddings": True,
    "torch_dtype": "bfloat16", "transformers_version": "4.45.0", "use_cache": True,
    "vocab_size": 200064,
}  # fmt: skip
GEMMA3_27B = {
    "architectures": ["Gemma3ForConditionalGeneration"], "boi_token_index": 255999,
    "eoi_token_index": 256000, "eos_token_id": [1, 106], "image_token_index": 262144,
    "initializer_range": 0.02, "mm_tokens_per_image": 256, "model_type": "gemma3",
    "text_config": {
        "head_dim": 128, "hidden_size": 5376, "intermediate_size": 21504,
        "model_type": "gemma3_text", "num_attention_heads": 32, "num_hidden_layers": 62,
        "num_key_value_heads": 16, "query_pre_attn_scalar": 168,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024,
    },
    "torch_dtype": "bfloat16", "transformers_version": "4.50.0.dev0",
    "vision_config": {"hidden_size": 1152, "model_type": "siglip_vision_model"},
}  # fmt: skip


def test_published_configurations() -> None:
    """As the models' own pages have them, lists of factors shortened to one value."""
    phi = decoder_of(PATH, PHI4_MINI)[0]
    assert phi.layers[0].rope is not None
    assert (phi.layers[0].rope.dim, phi.layers[0].rope.factors) == (96, (2.0,) * 48)
    assert phi.layers[0].rope.magnitude == pytest.approx(
        math.sqrt(1 + math.log(32) / math.log(4096))
    )
    gemma = decoder_of(PATH, GEMMA3_27B)[0]
    assert [layer.window for layer in gemma.layers[:7]] == [1024] * 5 + [0, 1024]
    full, sliding = gemma.layers[5].rope, gemma.layers[0].rope
    assert full is not None
    assert sliding is not None
    assert (full.base, full.factors[0], sliding.base, sliding.factors) == (1e6, 8.0, 1e4, ())
    assert (gemma.attention_scale, gemma.vocabulary) == (168**-0.5, 262208)


# Keys that are not honoured are refused by name.

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("qwen3", {"architectures": ["BertModel"]}, "architecture 'BertModel' cannot be built; known:"),
    ("qwen3", {"architectures": None}, "'architectures' is None"),
    ("qwen3", {"architectures": ["Qwen3ForCausalLM", "Other"]}, "name the one class"),
    ("qwen3", {"hidden_size": ...}, "'hidden_size' is missing"),
    ("qwen3", {"hidden_size": "32"}, "'hidden_size' is '32', no whole number"),
    ("qwen3", {"num_hidden_layers": 0}, "'num_hidden_layers' is 0, no whole number from 1"),
    ("qwen3", {"rms_norm_eps": 0}, "'rms_norm_eps' is 0, no number above 0"),
    ("qwen3", {"num_key_value_heads": 3}, "no multiple of the 3 key and value heads"),
    ("qwen3", {"hidden_act": "relu2"}, "'hidden_act' is 'relu2', which cannot be built"),
    ("qwen3moe", {"hidden_act": "gelu"}, "'hidden_act' is 'gelu', which cannot be built"),
    ("gemma", {"hidden_act": "gelu"}, "add 'hidden_activation' with the one"),
    ("gpt-oss", {"hidden_act": "gelu"}, "'hidden_act' is 'gelu', which cannot be built"),
    ("gpt-oss", {"swiglu_limit": 5.0}, "'swiglu_limit' is 5.0, which cannot be built; known: 7"),
    ("gpt-oss", {"experts_per_token": 3}, "is 3, and 'num_experts_per_tok' is 2"),
    ("mixtral", {"num_experts_per_tok": 6}, "is 6, and there are 5 experts"),
    ("qwen3", {"use_sliding_window": True, "sliding_window": 5, "logn_attn": True}, "'logn_attn'"),
    ("qwen3", {"clip_qkv": 8.0}, "'clip_qkv' is 8.0, which 'Qwen3ForCausalLM' models"),
    ("llama3", {"sliding_window": 5}, "'sliding_window' is 5, which"),
    ("llama3", {"attn_logit_softcapping": 50.0}, "'attn_logit_softcapping'"),
    ("llama3", {"embedding_multiplier": 2.0}, "'embedding_multiplier'"),
    ("llama3", {"attention_bias": "yes"}, "'attention_bias' is 'yes', neither true nor false"),
    ("mistral", {"attention_bias": True}, "'attention_bias' is True"),
    ("gemma2", {"use_bidirectional_attention": True}, "'use_bidirectional_attention' is True"),
    ("gemma3", {"use_bidirectional_attention": True}, "'use_bidirectional_attention' is True"),
    ("gemma4-moe", {"use_bidirectional_attention": "all"}, "'use_bidirectional_attention'"),
    ("gemma4-vision", {"text_config.other": 1}, "'text_config.other' is 1"),
    ("gemma4-vision", {"other": 1}, "'other' is 1"),
    ("gemma4-vision", {"text_config": 5}, "'text_config' is 5, no object"),
    ("gemma2", {"sliding_window_size": 9}, "is 9, and 'sliding_window' is 5"),
    ("gemma2", {"layer_types": ["chunked_attention"] * 2}, "a layer of 'chunked_attention'"),
    ("gemma2", {"layer_types": ["full_attention"]}, "a list of 1 where there should be 2"),
    ("gemma2", {"layer_types": "full_attention"}, "no list"),
    ("gemma2", {"sliding_window": None}, "and there is no window"),
    ("mistral", {"layer_types": ["full_attention"] * 2}, "do not look at"),
    ("gemma3-vision", {"text_config.final_logit_softcapping": 30.0}, "softcapping' is 30.0"),
    ("gemma4-moe", {"sliding_window_pattern": 2, "layer_types": ...}, "'sliding_window_pattern'"),
    ("gemma4-e2b", {"num_kv_shared_layers": 4}, "which leaves layer 2 no layer of its kind"),
    ("gemma4-e2b", {"per_layer_config": {"7": {}}}, "no object with numbers of layers"),
    ("gemma4-e2b", {"per_layer_config": {"2": {"sliding_window": 4}}},
     "'per_layer_config.2.sliding_window' is 4"),
    ("qwen3", {"rope_parameters.rope_type": "other"}, "'rope_parameters.rope_type' is 'other'"),
    ("qwen3", {"rope_parameters.factor": 2.0}, "'rope_parameters.factor' is 2.0"),
    ("qwen3", {"rope_parameters.mrope_section": [1, 2]}, "'rope_parameters.mrope_section'"),
    ("qwen3", {"rope_parameters.partial_rotary_factor": 0.5}, "partial_rotary_factor' is 0.5"),
    ("qwen3", {"partial_rotary_factor": 0.5}, "'partial_rotary_factor' is 0.5"),
    ("qwen3", {"rope_scaling": {"type": "linear", "factor": 2.0}}, "says something else"),
    ("qwen3", {"rope_parameters": 5}, "'rope_parameters' is 5, no object"),
    ("qwen3", {"rope_parameters.rope_theta": 0.5}, "rope_theta' is 0.5, no number above 1"),
    ("qwen3", {"rope_theta": 500.0}, "is 500.0, and 'rope_parameters.rope_theta' is 10000"),
    ("gemma3", {"rope_theta": 500.0},
     "'rope_theta' is 500.0, and 'rope_parameters.full_attention.rope_theta' is 1000000"),
    ("gemma3", {"rope_local_base_freq": 500.0},
     "freq' is 500.0, and 'rope_parameters.sliding_attention.rope_theta' is 10000"),
    ("gpt-oss", {"rope_parameters.beta_fast": 0.5}, "is 0.5, below 'beta_slow', which is 1"),
    ("llama3", {"rope_parameters.high_freq_factor": 1.0}, "not below 'high_freq_factor'"),
    ("llama3", {"rope_parameters.factor": ...}, "'rope_parameters.factor' is missing"),
    ("llama3", {"rope_parameters.beta_fast": 2.0}, "'rope_parameters.beta_fast' is 2.0"),
    ("phi3-long", {"rope_parameters.long_factor": [1.0]}, "a list of 1 where there should be 3"),
    ("phi3-long", {"rope_parameters.long_factor": [1.0, 0, 2.0]}, "are numbers above 0"),
    ("phi3-long", {"rope_parameters.long_mscale": 1.2}, "'rope_parameters.long_mscale' is 1.2"),
    ("stablelm", {"rope_parameters.partial_rotary_factor": 0.01}, "which rotates 0 of 16"),
    ("gemma4-moe", {"rope_parameters.full_attention.rope_type": "linear"}, "'linear'"),
    ("gemma4-moe", {"rope_parameters.full_attention.other": 1}, "full_attention.other' is 1"),
    ("gemma4-moe", {"rope_parameters.full_attention": ...},
     "'rope_parameters.full_attention' is missing"),
    ("granite", {"logits_scaling": 0}, "'logits_scaling' is 0, no number above 0"),
]  # fmt: skip


@pytest.mark.parametrize(("case", "keys", "words"), REFUSED)
def test_refused_by_name(case: str, keys: dict[str, Any], words: str) -> None:
    assert words in _fault(case, keys)


@pytest.mark.parametrize("case", CASES)
def test_a_key_that_nobody_knows(case: str) -> None:
    assert "the key 'attention_temperature' is 2.0" in _fault(case, {"attention_temperature": 2.0})


STRANGE: tuple[Any, ...] = (
    None, True, 0, -1, 1, 2**40, 1.5, math.nan, "x", [], [1], ["x", 2], {}, {"x": 1}, {"0": 5},
)  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_strange_values_are_nobodys_internal_error(case: str) -> None:
    """A key of any value, at any depth, is read, or refused in one sentence."""
    refused = 0
    for name in _names(config_of(case)):
        for value in STRANGE:
            try:
                _decoder(case, {name: value})
            except BadInput as error:
                refused += 1
                message = str(error)
                if "\n" in message or not message.startswith("config.json: "):
                    raise
    assert refused > 100


def _names(config: dict[str, Any]) -> list[str]:
    found = list(config)
    for name, value in config.items():
        if isinstance(value, dict):
            found += [f"{name}.{below}" for below in _names(value)]
    return found
