"""The likeliest token, again and again."""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence

import numpy as np

from rewriter.errors import BadInput
from rewriter.generate.decoder import Decoder
from rewriter.generate.folder import Folder
from rewriter.generate.plan import CacheFull, limit


def room(folder: Folder, prompt: int) -> int | None:
    """How many tokens can be generated after a prompt; nothing where there is no limit.

    The last of them is never read, so it needs no row of its own.

    Raises:
        CacheFull: the prompt itself does not fit.
    """
    most, why = limit(folder)
    if most is not None and prompt > most:
        raise CacheFull(f"the prompt of {prompt} tokens does not fit: {why}")
    return None if most is None else most - prompt + 1


def check_room(folder: Folder, prompt: int, tokens: int) -> None:
    """Whether so many tokens can be generated after a prompt.

    Raises:
        CacheFull: they cannot.
    """
    left = room(folder, prompt)
    if left is not None and tokens > left:
        why = limit(folder)[1]
        raise CacheFull(
            f"a prompt of {prompt} tokens leaves room for {left} new ones, not {tokens}: {why}"
        )


def generate(
    decoder: Decoder, prompt: Sequence[int], tokens: int, stop: Collection[int] = ()
) -> Generator[int, None, None]:
    """Tokens that follow a prompt; where the graph takes several sequences, all read the same.

    Args:
        decoder: what has read nothing yet, or what the prompt goes on from.
        prompt: ids, at least one.
        tokens: how many to generate at most.
        stop: ids that end it, which come as the last.

    Raises:
        CacheFull: the cache is full before that.
        BadInput: no prompt, or ids outside the vocabulary.
        RuntimeFault: the runtime fails, or gives no numbers.
    """
    if not len(prompt):
        raise BadInput("the prompt is empty; give at least one token")
    batch = decoder.folder.any_graph.batch or 1
    ids = np.tile(np.asarray(prompt, np.int64), (batch, 1))
    for _ in range(tokens):
        logits = decoder.feed(ids)[0, -1]
        if not np.isfinite(logits).all():
            raise BadInput(
                f"the logits after {decoder.done} tokens are no numbers; was the folder written "
                "for another EP, or does the model overflow in fp16?"
            )
        token = int(logits.argmax())
        yield token
        if token in stop:
            return
        ids = np.full((batch, 1), token, np.int64)
