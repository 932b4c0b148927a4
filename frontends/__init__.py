"""Readers: a file of some format to the portable graph, weights left on disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rewriter.errors import BadInput

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["companions", "read"]

_COMPANIONS = (".json", ".txt", ".jinja", ".model", ".tiktoken")
"""Endings of tokenizer and configuration files, which go with a model."""


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
    return _READERS[_suffix(model_file(path))](model_file(path))


def model_file(path: str | Path) -> Path:
    """The file to read: the path itself, or the one model in a folder.

    Raises:
        BadInput: nothing is there, or more than one model.
    """
    found = Path(path)
    if not found.exists():
        raise BadInput(f"{found}: there is no such file")
    if not found.is_dir():
        return found
    models = sorted(p for p in found.iterdir() if p.suffix in _READERS)
    if len(models) == 1:
        return models[0]
    names = ", ".join(p.name for p in models) or "none"
    raise BadInput(f"{found}: name one model file of this folder; it holds {names}")


def companions(path: str | Path) -> list[Path]:
    """Tokenizer and configuration files that lie beside a model."""
    folder = model_file(path).parent
    return sorted(p for p in folder.iterdir() if p.is_file() and p.suffix in _COMPANIONS)


def _suffix(path: Path) -> str:
    if path.suffix in _READERS:
        return path.suffix
    known = ", ".join(sorted(_READERS))
    raise BadInput(f"{path}: no reader for '{path.suffix}' files; this version reads {known}")
