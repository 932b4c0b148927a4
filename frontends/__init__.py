"""Readers: a file of some format to the portable graph, weights left on disk."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rewriter.errors import BadInput

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["companions", "model_file", "read"]

_COMPANIONS = re.compile(
    r".*(config|token|vocab|merges|chat_template|processor).*\.(json|txt)"
    r"|.*\.(jinja|model|tiktoken)"
)
"""Tokenizer and configuration files, which go with a model; notes and reports do not."""


def _onnx(path: Path) -> ir.Model:
    from frontends.onnx.reader import read_onnx

    return read_onnx(path)


_READERS: dict[str, Callable[[Path], ir.Model]] = {".onnx": _onnx}


def read(path: str | Path) -> ir.Model:
    """Read a model.

    Args:
        path: an ``.onnx`` file, or a folder that holds exactly one.

    Raises:
        BadInput: there is no such file, no reader for it, or it cannot be used as it is.
    """
    found = model_file(path)
    return _READERS[found.suffix.lower()](found)


def model_file(path: str | Path) -> Path:
    """The file to read: the path itself, or the one model in a folder.

    Raises:
        BadInput: nothing is there, more than one model, or nothing that can be read.
    """
    found = Path(path)
    if found.is_dir():
        return _only_model(found)
    if not found.exists():
        raise BadInput(f"{found}: there is no such file")
    if found.suffix.lower() not in _READERS:
        raise BadInput(
            f"{found}: no reader for '{found.suffix}' files; this version reads {_known()}"
        )
    return found


def _only_model(folder: Path) -> Path:
    models = sorted(p for p in folder.iterdir() if p.suffix.lower() in _READERS and p.is_file())
    if len(models) == 1:
        return models[0]
    if not models:
        raise BadInput(f"{folder}: this folder holds no model; this version reads {_known()}")
    names = ", ".join(p.name for p in models)
    raise BadInput(f"{folder}: this folder holds {len(models)} models, name one: {names}")


def _known() -> str:
    return ", ".join(sorted(_READERS))


def companions(path: str | Path) -> list[Path]:
    """Tokenizer and configuration files that lie beside a model."""
    folder = model_file(path).parent
    return sorted(p for p in folder.iterdir() if p.is_file() and _COMPANIONS.fullmatch(p.name))
