"""SentencePiece-style BPE (``tokenizer.ggml.model = llama``): merges by score, or bytes."""

from __future__ import annotations

from tokenizers import Tokenizer, decoders, models, normalizers

from frontends.gguf.vocabulary import KEY, Kind, Vocabulary, listed
from rewriter.errors import BadInput

SPACE = "▁"


def sentencepiece(vocabulary: Vocabulary) -> Tokenizer:
    """What llama.cpp does: the best-scored pair of neighbours is joined until none is a token.

    A space precedes the text, and what follows a special token, unless the file says otherwise.
    Runs of spaces are kept, unlike SentencePiece's own normalization of most models, which GGUF
    does not carry for this kind.

    Raises:
        BadInput: a key is missing or damaged.
    """
    unknown = vocabulary.special("unknown")
    tokenizer = Tokenizer(
        models.BPE(
            vocab={text: i for i, text in enumerate(vocabulary.tokens)},
            merges=_merges(vocabulary),
            unk_token=None if unknown is None else vocabulary.tokens[unknown],
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    escape, unescape = normalizers.Replace(" ", SPACE), decoders.Replace(SPACE, " ")
    bytes_, whole = decoders.ByteFallback(), decoders.Fuse()
    if vocabulary.flag("add_space_prefix", default=True):
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), escape])
        tokenizer.decoder = decoders.Sequence([unescape, bytes_, whole, decoders.Strip(" ", 1, 0)])
    else:
        tokenizer.normalizer = normalizers.Sequence([escape])
        tokenizer.decoder = decoders.Sequence([unescape, bytes_, whole])
    return tokenizer


def _merges(vocabulary: Vocabulary) -> list[tuple[str, str]]:
    """Every way to join two tokens to a third, those of a better-scored one first.

    Special tokens are cut out before, and bytes stand for themselves: neither is joined.

    Raises:
        BadInput: the tokens have no scores.
    """
    tokens = vocabulary.tokens
    scores = listed(vocabulary.path, vocabulary.metadata, "scores", (int, float), len(tokens))
    if not scores:
        raise BadInput(
            f"{vocabulary.path}: the key '{KEY}scores' is missing; convert the model again"
        )
    known = set(tokens)
    joined = {Kind.NORMAL, Kind.UNUSED, Kind.UNDEFINED}
    found = [i for i in range(len(tokens)) if vocabulary.kinds[i] in joined]
    found.sort(key=lambda i: -scores[i])
    return [
        (text[:at], text[at:])
        for text in (tokens[i] for i in found)
        for at in range(1, len(text))
        if text[:at] in known and text[at:] in known
    ]
