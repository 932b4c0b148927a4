"""Files made of a vocabulary: what they say, and what is refused or only noted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from frontends.gguf.tokenizer import tokenizer_files
from frontends.gguf.vocabulary import Vocabulary
from rewriter.errors import BadInput

PATH = Path("model.gguf")
LETTERS = [chr(i) for i in range(ord("!"), ord("~") + 1)]
BPE: dict[str, Any] = {
    "model": "gpt2",
    "pre": "gpt-2",
    "tokens": ["<s>", "<|im_end|>", "<pad>", *LETTERS, "Ġ", "ab", "Ġab"],
    "token_type": [3, 3, 3] + [1] * (len(LETTERS) + 3),
    "merges": ["a b", "Ġ ab"],
    "bos_token_id": 0,
    "eos_token_id": 1,
    "padding_token_id": 2,
}
SPM: dict[str, Any] = {
    "model": "llama",
    "tokens": ["<unk>", "<s>", "</s>", "▁", "a", "b", "ab", "▁ab", "ba"],
    "scores": [0.0, 0.0, 0.0, -9.0, -9.0, -9.0, -2.0, -3.0, -1.0],
    "token_type": [2, 3, 3, 1, 1, 1, 1, 1, 1],
}


def _metadata(base: dict[str, Any], **more: Any) -> dict[str, Any]:
    kept = {k: v for k, v in {**base, **more}.items() if v is not None}
    return {f"tokenizer.ggml.{k}": v for k, v in kept.items()}


def _made(base: dict[str, Any], **more: Any) -> tuple[Tokenizer, dict[str, Any]]:
    made = tokenizer_files(PATH, _metadata(base, **more))
    assert made.notes == ()
    extra = set() if base is BPE else {"tokenizer_module.json"}
    assert set(made.files) == {"tokenizer.json", "tokenizer_config.json", *extra}
    tokenizer = Tokenizer.from_str(made.files["tokenizer.json"].decode())
    return tokenizer, json.loads(made.files["tokenizer_config.json"])


def _tokens(tokenizer: Tokenizer, text: str) -> list[str]:
    tokens: list[str] = tokenizer.encode(text).tokens
    return tokens


def test_ids_are_those_of_the_file() -> None:
    for base in (BPE, SPM):
        tokenizer, _ = _made(base)
        assert [tokenizer.id_to_token(i) for i in range(len(base["tokens"]))] == base["tokens"]
        assert tokenizer.get_vocab_size() == len(base["tokens"])


def test_scores_may_be_whole_numbers() -> None:
    whole = [int(score) for score in SPM["scores"]]
    assert _tokens(_made(SPM, scores=whole)[0], "aba") == ["<s>", "▁", "a", "ba"]


def test_scores_order_the_merges() -> None:
    """First comes ba, then ab; ▁ab only if ▁ and ab are left."""
    tokenizer, _ = _made(SPM)
    assert _tokens(tokenizer, "ab") == ["<s>", "▁ab"]
    assert _tokens(tokenizer, "aba") == ["<s>", "▁", "a", "ba"]
    swapped = [*SPM["scores"][:6], -1.0, -3.0, -2.0]
    assert _tokens(_made(SPM, scores=swapped)[0], "aba") == ["<s>", "▁ab", "a"]


@pytest.mark.parametrize(
    ("bos", "eos", "tokens"),
    [
        (None, None, ["ab"]),
        (True, None, ["<s>", "ab"]),
        (False, True, ["ab", "<|im_end|>"]),
        (True, True, ["<s>", "ab", "<|im_end|>"]),
    ],
)
def test_tokens_put_around_a_text(bos: bool | None, eos: bool | None, tokens: list[str]) -> None:
    tokenizer, config = _made(BPE, add_bos_token=bos, add_eos_token=eos)
    assert _tokens(tokenizer, "ab") == tokens
    assert (config["add_bos_token"], config["add_eos_token"]) == (bool(bos), bool(eos))
    pair = tokenizer.encode("ab", "ab").tokens
    assert pair == tokens * 2


def test_what_a_kind_implies() -> None:
    """Llama 3's splits begin with bos, SentencePiece's too; a key says otherwise."""
    assert _tokens(_made(BPE, pre="llama-bpe")[0], "ab") == ["<s>", "ab"]
    assert _tokens(_made(BPE, pre="llama-bpe", add_bos_token=False)[0], "ab") == ["ab"]
    assert _tokens(_made(SPM, add_bos_token=False)[0], "ab") == ["▁ab"]
    _, config = _made(SPM)
    assert config["bos_token"], config["eos_token"] == ("<s>", "</s>")
    assert config["unk_token"] == "<unk>"
    assert "pad_token" not in config


def test_a_missing_bos_is_not_added() -> None:
    tokenizer, config = _made(BPE, pre="llama-bpe", bos_token_id=None)
    assert _tokens(tokenizer, "ab") == ["ab"]
    assert not config["add_bos_token"]
    assert _made(BPE, bos_token_id=9999)[1].get("bos_token") is None


def test_special_tokens_are_found_in_a_text_and_left_out_when_decoded() -> None:
    tokenizer, _ = _made(BPE, token_type=[3, 3, 4] + [1] * (len(LETTERS) + 3))
    ids = tokenizer.encode("a<s>b<pad>ab").ids
    assert [tokenizer.id_to_token(i) for i in ids] == ["a", "<s>", "b", "<pad>", "ab"]
    assert tokenizer.decode(ids) == "ab<pad>ab"
    assert tokenizer.decode(ids, skip_special_tokens=False) == "a<s>b<pad>ab"


def test_a_whole_token_is_taken_where_merges_do_not_lead_to_it() -> None:
    tokens = [*BPE["tokens"], "abc"]
    kinds = [*BPE["token_type"], 1]
    assert _tokens(_made(BPE, tokens=tokens, token_type=kinds)[0], "abc") == ["ab", "c"]
    llama = _made(BPE, tokens=tokens, token_type=kinds, pre="llama-bpe", add_bos_token=False)[0]
    assert _tokens(llama, "abc") == ["abc"]


def test_tokens_that_end_an_answer() -> None:
    names = ["<s>", "<eos>", "<|eot_id|>", "x", "<|end|>", "<|return|>", "<|call|>"]
    metadata = _metadata({"model": "gpt2", "tokens": names, "eos_token_id": 3, "eot_token_id": 2})
    assert Vocabulary.of(PATH, metadata).ends() == [3, 2, 1, 5, 6]
    metadata = _metadata({"model": "gpt2", "tokens": names[:5]})
    assert Vocabulary.of(PATH, metadata).ends() == [1, 2, 4]
    gemma = _metadata({"model": "gemma4", "tokens": ["</s>", "<|tool_response>", "<turn|>"]})
    assert Vocabulary.of(PATH, gemma).ends() == [1, 2]


def test_templates() -> None:
    key = "tokenizer.chat_template"
    named = {f"{key}.tool_use": "ü {{ y }}", f"{key}s": ["tool_use"], f"{key}.../x": "z"}
    files = tokenizer_files(PATH, {**_metadata(BPE), key: "é {{ x }}", **named}).files
    assert json.loads(files["tokenizer_config.json"])["chat_template"] == "é {{ x }}"
    assert files["chat_template.tool_use.jinja"].decode() == "ü {{ y }}"
    assert len(files) == 3
    assert "chat_template" not in _made(BPE)[1]


def test_content_is_the_same_from_run_to_run() -> None:
    for base in (BPE, SPM):
        one, other = (tokenizer_files(PATH, _metadata(base)).files for _ in range(2))
        assert one == other


@pytest.mark.parametrize("model", ["bert", "t5", "rwkv", "plamo2", "none"])
def test_other_kinds_are_noted(model: str) -> None:
    made = tokenizer_files(PATH, _metadata(BPE, model=model))
    assert not made.files
    assert f"'tokenizer.ggml.model' is '{model}'" in made.notes[0]


@pytest.mark.parametrize("missing", ["model", "tokens"])
def test_a_file_without_tokenizer_is_noted(missing: str) -> None:
    made = tokenizer_files(PATH, _metadata(BPE, **{missing: None}))
    assert not made.files
    assert f"no key 'tokenizer.ggml.{missing}'" in made.notes[0]


@pytest.mark.parametrize(
    ("base", "more", "words"),
    [
        (BPE, {"pre": "abacus"}, "'tokenizer.ggml.pre' is 'abacus'"),
        (BPE, {"merges": None}, "'tokenizer.ggml.merges' is missing"),
        (BPE, {"merges": ["a b", "b a"]}, "holds 'b a'"),
        (BPE, {"merges": ["ab"]}, "holds 'ab'"),
        (BPE, {"tokens": [1, 2]}, "'tokenizer.ggml.tokens' is damaged"),
        (BPE, {"token_type": [1]}, "holds 1 values for"),
        (BPE, {"tokens": [*BPE["tokens"][:-1], "<s>"]}, "holds '<s>' as 0 and as"),
        (SPM, {"scores": None}, "'tokenizer.ggml.scores' is missing"),
        (SPM, {"scores": [1.0]}, "holds 1 values for 9 tokens"),
        (SPM, {"scores": "x"}, "'tokenizer.ggml.scores' is damaged"),
    ],
)
def test_damage_is_named(base: dict[str, Any], more: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput) as raised:
        tokenizer_files(PATH, _metadata(base, **more))
    assert words in str(raised.value)
    assert str(raised.value).startswith("model.gguf: ")
