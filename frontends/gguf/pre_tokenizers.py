"""How byte-level BPE splits a text first: the regular expressions behind ``tokenizer.ggml.pre``.

The expressions are those of the models' own tokenizers; one after the other splits what the one
before left, matches and gaps alike. llama.cpp splits the same, but for ``tekken``, ``gpt-4o`` and
their kin: its regex engine knows no classes like ``\\p{Lu}``, and it takes every letter beyond ASCII
as both upper and lower case, and accents as no part of a word.
"""

from __future__ import annotations

from dataclasses import dataclass

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
_CJK, _KANA = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
_CASED = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗ"  # noqa: RUF001
    "ὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯ"  # noqa: RUF001
    "ꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"  # noqa: RUF001
)
"""Letters with two cases, as DeepSeek's tokenizers list them."""
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
_SENTENCES = " ?[^(\\s|.,!?…。，、।۔،)]+"  # noqa: RUF001


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """One way to split.

    Attributes:
        splits: regular expressions (Oniguruma), applied one after the other.
        whole: a piece that is a token is taken as it is, without merges.
        bos: a text begins with the bos token if the file does not say otherwise.
    """

    splits: tuple[str, ...]
    whole: bool = False
    bos: bool = False


_LIKE_GPT2 = PreTokenizer((_GPT2,))
_DIGITS = PreTokenizer((r"\p{N}", _GPT2))
_LIKE_LLAMA3 = PreTokenizer((_LLAMA3,), whole=True, bos=True)
_LIKE_QWEN2 = PreTokenizer((_QWEN2,))
_LIKE_GPT4O = PreTokenizer((_GPT4O,))
_LIKE_DEEPSEEK3 = PreTokenizer((r"\p{N}{1,3}", _KANA, _DEEPSEEK3))
_LIKE_BLOOM = PreTokenizer((_SENTENCES,))
_LIKE_BAILING = PreTokenizer((_BAILING,))

PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    "default": PreTokenizer((_PUNCTUATION.replace("`", ""), _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
    **dict.fromkeys(
        ("gpt-2", "phi-2", "olmo", "mpt", "jais", "trillion", "granite-docling", "exaone4", "mellum",
         "gigachat", "a.x-4.0", "modern-bert"),
        _LIKE_GPT2,
    ),
    **dict.fromkeys(
        ("starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b",
         "mellum2"),
        _DIGITS,
    ),
    **dict.fromkeys(
        ("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"),
        _LIKE_LLAMA3,
    ),
    **dict.fromkeys(("dbrx", "smaug-bpe", "glm4", "chatglm-bpe"), PreTokenizer((_LLAMA3,))),
    **dict.fromkeys(
        ("qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "stablelm2", "hunyuan",
         "solar-open", "grok-2"),
        _LIKE_QWEN2,
    ),
    "qwen35": PreTokenizer((_QWEN35,)),
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"), _LIKE_GPT4O),
    **dict.fromkeys(("tiny_aya", "cohere2moe"),
                    PreTokenizer((r"\d{1,3}(?=(?:\d{3})*\b)", _GPT4O))),
    "tekken": PreTokenizer((_TEKKEN,), whole=True, bos=True),
    **dict.fromkeys(("deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"), _LIKE_DEEPSEEK3),
    "deepseek-coder": PreTokenizer((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK, r"\p{N}")),
    "deepseek-llm": PreTokenizer((
        r"[\r\n]", rf"\s?[{_CASED}]+", r"\s?[!-/:-~！-／：-～‘-‟\u3000-。]+",  # noqa: RUF001
        r"\s+$", _CJK, r"\p{N}+",
    )),
    "falcon": PreTokenizer((_PUNCTUATION, _GPT2, "[0-9][0-9][0-9]")),
    **dict.fromkeys(("bloom", "poro-chat", "gpt3-finnish"), _LIKE_BLOOM),
    "viking": PreTokenizer((_SENTENCES, r"\p{N}")),
    **dict.fromkeys(("bailingmoe", "bailingmoe2", "llada-moe"), _LIKE_BAILING),
    "seed-coder": PreTokenizer((_SEED,)),
    "exaone-moe": PreTokenizer((_EXAONE_MOE,)),
    "minicpm5": PreTokenizer((r"\p{N}{1,3}", _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}+")), whole=True),
}  # fmt: skip
"""By the value of ``tokenizer.ggml.pre``."""
