"""The part of a configuration that describes a model, for those who build one from a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Sequence


def genai_base(
    kind: str,
    *,
    context_length: int,
    hidden_size: int,
    num_attention_heads: int,
    bos: int | None = None,
    ends: Sequence[int] = (),
    pad: int | None = None,
) -> bytes:
    """What :func:`~rewriter.genai.adapt` starts from.

    Args:
        kind: ``model.type``, what the runtime calls the architecture; ``decoder`` for any.
        context_length: positions that the model was trained for.
        hidden_size: of the model.
        num_attention_heads: of its queries, the most of any layer.
        bos: id of the token that begins a text.
        ends: ids of tokens that end an answer, the usual one first.
        pad: id of a token that no prompt holds.
    """
    model = {
        "type": kind,
        **({} if bos is None else {"bos_token_id": bos}),
        **({} if not ends else {"eos_token_id": ends[0] if len(ends) == 1 else list(ends)}),
        # The runtime pads with something in any case; nothing attends to it.
        "pad_token_id": next((i for i in (pad, *ends, bos) if i is not None), 0),
        "context_length": context_length,
        "decoder": {"hidden_size": hidden_size, "num_attention_heads": num_attention_heads},
    }
    return json.dumps({"model": model}).encode()
