"""How byte-level BPE splits a text first: the regular expressions behind ``tokenizer.ggml.pre``.

The expressions are those of the models' own tokenizers; one after the other splits what the one
before left, matches and gaps alike. llama.cpp splits the same where its regex engine can: for
``tekken``, ``gpt-4o`` and their kin it takes a letter beyond ASCII as both upper and lower case and
an accent as no part of a word, and for DeepSeek's an ideographic space as no such character.
"""

from __future__ import annotations

from dataclasses import dataclass

from frontends.gguf.vocabulary import KEY, Vocabulary
from rewriter.errors import BadInput

_ENDINGS = "'s|'t|'re|'ve|'m|'ll|'d"
_GPT2 = rf"{_ENDINGS}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|\s+(?!\S)|\s+"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_WORD = rf"(?i:{_ENDINGS})|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+"
_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_LLAMA3 = rf"{_WORD}|\p{{N}}{{1,3}}|{_SIGNS}|{_SPACES}"
_QWEN2 = rf"{_WORD}|\p{{N}}|{_SIGNS}|{_SPACES}"
_QWEN35 = (
    rf"(?i:{_ENDINGS})|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_BEFORE = r"[^\r\n\p{L}\p{N}]?"
_TEKKEN = (
    rf"{_BEFORE}{_UPPER}*{_LOWER}+|{_BEFORE}{_UPPER}+{_LOWER}*"
    rf"|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
)
_GPT4O = (
    rf"{_BEFORE}{_UPPER}*{_LOWER}+(?i:{_ENDINGS})?|{_BEFORE}{_UPPER}+{_LOWER}*(?i:{_ENDINGS})?"
    rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
)
_ASCII_SIGNS = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"
_DEEPSEEK3 = (
    rf"{_ASCII_SIGNS}[A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+"
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}"
)
_CJK, _KANA = (
    "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
)
_CASED = (
    r"[\p{Lu}\p{Ll}\p{Lt}"
    r"&&[^\x{560}-\x{588}\x{a790}-\x{ab68}\x{10570}-\x{105bc}\x{16e40}-\x{1df1e}]]"
)
"""Letters with two cases but rare ones, which DeepSeek's tokenizer leaves out."""
_SIGN_RUNS = "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"
_PUNCTUATION = r"[\p{P}\$\+<=>\^~\|`]+"
_BAILING = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*"
    r"|\s*[\r\n]|\s+(?!\S)|\s+"
)
_SEED = rf"{_WORD}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}"
_EXAONE_MOE = (
    rf"(?i:{_ENDINGS})|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
)
_SENTENCES = " ?[^(\\s|.,!?…\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """One way to split.

    Attributes:
        splits: regular expressions (Oniguruma), applied one after the other.
        whole: a piece that is a token is taken as it is, without merges.
        bos: a text begins with the bos token if the file does not say otherwise.
        genai: onnxruntime-genai (0.18.0, measured) splits alike, but for rare characters.
    """

    splits: tuple[str, ...]
    whole: bool = False
    bos: bool = False
    genai: bool = False


_KNOWN = {
    "default": PreTokenizer((_PUNCTUATION.replace("`", ""), _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
    "gpt-2 phi-2 olmo mpt jais trillion granite-docling exaone4 mellum gigachat a.x-4.0": (
        PreTokenizer((_GPT2,), genai=True)
    ),
    "starcoder refact command-r smollm codeshell exaone minerva-7b mellum2": (
        PreTokenizer((r"\p{N}", _GPT2), genai=True)
    ),
    "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2": (
        PreTokenizer((_LLAMA3,), whole=True, bos=True, genai=True)
    ),
    "dbrx smaug-bpe glm4 chatglm-bpe": PreTokenizer((_LLAMA3,), genai=True),
    "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2": (
        PreTokenizer((_QWEN2,), genai=True)
    ),
    "qwen35": PreTokenizer((_QWEN35,), genai=True),
    "gpt-4o llama4 kanana2 talkie minimax-m2": PreTokenizer((_GPT4O,), genai=True),
    "tekken": PreTokenizer((_TEKKEN,), whole=True, bos=True, genai=True),
    "deepseek-v3 hunyuan-dense joyai-llm hy_v4": (PreTokenizer((r"\p{N}{1,3}", _KANA, _DEEPSEEK3))),
    "deepseek-coder": PreTokenizer((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK, r"\p{N}")),
    "deepseek-llm": (
        PreTokenizer((r"[\r\n]", rf"\s?{_CASED}+", _SIGN_RUNS, r"\s+$", _CJK, r"\p{N}+"))
    ),
    "falcon": PreTokenizer((_PUNCTUATION, _GPT2, "[0-9][0-9][0-9]")),
    "bloom poro-chat gpt3-finnish": PreTokenizer((_SENTENCES,)),
    "viking": PreTokenizer((_SENTENCES, r"\p{N}")),
    "bailingmoe bailingmoe2 llada-moe": PreTokenizer((_BAILING,)),
    "seed-coder": PreTokenizer((_SEED,)),
    "exaone-moe": PreTokenizer((_EXAONE_MOE,)),
    "minicpm5": (
        PreTokenizer((r"\p{N}{1,3}", _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}+")), whole=True)
    ),
}

PRE_TOKENIZERS = {name: one for names, one in _KNOWN.items() for name in names.split()}
"""By the value of ``tokenizer.ggml.pre``."""


def pre_tokenizer(vocabulary: Vocabulary) -> PreTokenizer:
    """How a file splits a text.

    Raises:
        BadInput: it is not known.
    """
    if vocabulary.model == "gemma4":
        return PreTokenizer(("\n+",), genai=True)
    name = vocabulary.metadata.get(f"{KEY}pre", "default")
    found = PRE_TOKENIZERS.get(name)
    if found is None:
        raise BadInput(
            f"{vocabulary.path}: the key '{KEY}pre' is '{name}', and how that splits a text is not "
            f"known; known: {', '.join(PRE_TOKENIZERS)}"
        )
    return found
