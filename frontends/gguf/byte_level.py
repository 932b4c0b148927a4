"""Byte-level BPE (``tokenizer.ggml.model = gpt2``), and Gemma 4's BPE over characters."""

from __future__ import annotations

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from frontends.gguf.pre_tokenizers import pre_tokenizer
from frontends.gguf.vocabulary import KEY, Vocabulary, listed
from rewriter.errors import BadInput


def byte_level(vocabulary: Vocabulary) -> Tokenizer:
    """A text is split, its bytes are written as characters, and merged by rank.

    Raises:
        BadInput: how to split is not known, or a key is missing or damaged.
    """
    split = pre_tokenizer(vocabulary)
    tokenizer = Tokenizer(
        models.BPE(vocab=_ids(vocabulary), merges=_merges(vocabulary), ignore_merges=split.whole)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(one), "isolated") for one in split.splits),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def character_level(vocabulary: Vocabulary) -> Tokenizer:
    """Gemma 4: merges over whole lines, a space is ``▁``, what is no token goes as bytes."""
    unknown = vocabulary.special("unknown")
    tokenizer = Tokenizer(
        models.BPE(
            vocab=_ids(vocabulary),
            merges=_merges(vocabulary),
            unk_token=None if unknown is None else vocabulary.tokens[unknown],
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("\n+"), "isolated")
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
        ]
    )
    return tokenizer


def _ids(vocabulary: Vocabulary) -> dict[str, int]:
    return {text: i for i, text in enumerate(vocabulary.tokens)}


def _merges(vocabulary: Vocabulary) -> list[tuple[str, str]]:
    """Pairs by rank; a token may begin with a space, so the first one does not part them.

    Raises:
        BadInput: there are none, or one of them does not give a token.
    """
    path, known = vocabulary.path, set(vocabulary.tokens)
    pairs = []
    for line in listed(path, vocabulary.metadata, "merges", str):
        at = line.find(" ", 1)
        pair = line[:at], line[at + 1 :]
        if at < 0 or not known.issuperset({*pair, "".join(pair)}):
            raise BadInput(
                f"{path}: the key '{KEY}merges' holds {line!r}, which joins no two tokens to a "
                "third; convert the model again"
            )
        pairs.append(pair)
    if not pairs:
        raise BadInput(f"{path}: the key '{KEY}merges' is missing; convert the model again")
    return pairs
