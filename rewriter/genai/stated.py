"""What was stated of a model, read before it is used: a file of a user's may hold anything."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rewriter.errors import BadInput

NAME = "genai_config.json"


def _number(value: Any) -> bool:
    return type(value) is int


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _ids(value: Any) -> bool:
    return value is None or all(map(_number, value if isinstance(value, list) else [value]))


def _object(value: Any) -> bool:
    return isinstance(value, dict)


def _names(value: Any) -> bool:
    return _object(value) and all(isinstance(name, str) for name in value.values())


def _nested(value: Any) -> bool:
    return isinstance(value, list) and all(_object(o) for e in value for o in (e, *_inside(e)))


def _pipeline(value: Any) -> bool:
    if not _nested(value):
        return False
    stages = [stage for entry in value for stage in entry.values()]
    lists = [stage.get(kind, []) for stage in stages for kind in ("inputs", "outputs")]
    return all(isinstance(li, list) and all(isinstance(n, str) for n in li) for li in lists)


def _inside(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else []


_DECODER = ("model", "decoder")
_MUST: tuple[tuple[tuple[str, ...], Callable[[Any], bool], str], ...] = (
    ((), _object, "an object"),
    (("model",), _object, "an object"),
    (("search",), _object, "an object"),
    (_DECODER, _object, "an object"),
    (("model", "context_length"), _number, "a whole number"),
    (("model", "pad_token_id"), _number, "a whole number"),
    (("model", "eos_token_id"), _ids, "a token id or a list of them"),
    (("search", "max_length"), _number, "a whole number"),
    (("search", "past_present_share_buffer"), _flag, "true or false"),
    ((*_DECODER, "filename"), _text, "the name of a file"),
    ((*_DECODER, "num_hidden_layers"), _number, "a whole number"),
    ((*_DECODER, "head_size"), _number, "a whole number"),
    ((*_DECODER, "num_key_value_heads"), _number, "a whole number"),
    ((*_DECODER, "sliding_window"), _object, "an object"),
    ((*_DECODER, "inputs"), _names, "an object of names"),
    ((*_DECODER, "outputs"), _names, "an object of names"),
    ((*_DECODER, "pipeline"), _pipeline, "a list of stages with lists of inputs and outputs"),
    ((*_DECODER, "session_options"), _object, "an object"),
    ((*_DECODER, "session_options", "provider_options"), _nested, "a list of objects"),
)
"""What is read of a file, from the outside in; all else is passed on unseen."""


def stated(content: Path | bytes) -> dict[str, Any]:
    """A configuration, or the part of one.

    Raises:
        BadInput: it is no JSON, or holds something else where a number or an object belongs.
    """
    raw = content if isinstance(content, bytes) else content.read_bytes()
    try:
        base: Any = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{NAME}: is no JSON ({error}); mend it or take it away") from None
    for path, holds, what in _MUST:
        value, there = base, True
        for key in path:
            there = there and key in value
            value = value[key] if there else None
        if there and not holds(value):
            key = f"'{'.'.join(path)}' " if path else ""
            raise BadInput(f"{NAME}: {key}is not {what}; mend it or take it away")
    return dict(base)
