"""Damage that parsing a protobuf does not notice: names that are no text, attributes of no type.

Both would be found only when the result is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx

from rewriter.errors import BadInput


def check_damage(path: Path, model: onnx.ModelProto) -> None:
    """Look at every message of a model.

    Raises:
        BadInput: something in it can only come from damage.
    """
    for message in _messages(model):
        if isinstance(message, onnx.AttributeProto) and not _typed(message):
            raise BadInput(
                f"{path}: the attribute {message.name} has the type {message.type}, which is none; "
                "export or copy the model again"
            )
        for name, text in _texts(message):
            if isinstance(text, bytes):
                raise BadInput(
                    f"{path}: damaged: the {name} {text!r} is no text; export or copy it again"
                )


def _messages(message: Any) -> Iterator[Any]:
    yield message
    for field, value in message.ListFields():
        if field.type != field.TYPE_MESSAGE:
            continue
        for part in value if _many(value) else (value,):
            yield from _messages(part)


def _texts(message: Any) -> Iterator[tuple[str, str | bytes]]:
    for field, value in message.ListFields():
        if field.type == field.TYPE_STRING:
            for text in value if _many(value) else (value,):
                yield field.name, text


def _many(value: Any) -> bool:
    """Whether a field repeats: protobuf has no other sign that all its versions share."""
    return not isinstance(value, str | bytes) and hasattr(value, "__len__")


def _typed(attribute: onnx.AttributeProto) -> bool:
    known = onnx.AttributeProto.AttributeType.values()
    return attribute.type in known and attribute.type != onnx.AttributeProto.UNDEFINED
