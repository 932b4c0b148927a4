"""Readers: a file of some format to the portable graph, weights left on disk."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rewriter.errors import BadInput

if TYPE_CHECKING:
    import onnx_ir as ir

    from frontends.gguf.requantize import Kind
    from rewriter.source import Companions, Source

__all__ = ["model_file", "open_source", "read"]

_COMPANIONS = re.compile(
    r".*(config|token|vocab|merges|chat_template|processor).*\.(json|txt)"
    r"|.*\.(jinja|model|tiktoken)"
)
"""Tokenizer and configuration files, which go with a model; notes and reports do not."""


_GENAI = "genai_config.json"
_LATER_SHARD = re.compile(r".+-(?!00001)\d{5}-of-\d{5}\.gguf", re.IGNORECASE)
"""All shards of a GGUF model but the first, which stands for the others."""


def _onnx(path: Path, weights: Kind) -> Source:
    from frontends.onnx.reader import read_onnx
    from rewriter.source import Source

    if weights != "exact":
        raise BadInput(
            f"{path}: --weights {weights} is for checkpoints; an ONNX file keeps the weights it has"
        )
    return Source(path, lambda _: read_onnx(path), partial(_beside, path))


def _gguf(path: Path, weights: Kind) -> Source:
    from frontends.gguf.reader import gguf_source

    return gguf_source(path, weights)


_FORMATS: dict[str, Callable[[Path, Kind], Source]] = {".gguf": _gguf, ".onnx": _onnx}


def read(path: str | Path) -> ir.Model:
    """Read a model: an ONNX file as it is, a checkpoint as a portable graph.

    Args:
        path: an ``.onnx`` or ``.gguf`` file, or a folder that holds exactly one.

    Raises:
        BadInput: there is no such file, no reader for it, or it cannot be used as it is.
    """
    return open_source(path).read(None)


def open_source(path: str | Path, weights: Kind = "exact") -> Source:
    """A model that can be read several times, and what goes with it.

    Args:
        path: as in :func:`read`.
        weights: a smaller form for the weights of a checkpoint; all but ``exact`` lose something.

    Raises:
        BadInput: there is no such file, no reader for it, or nothing to make smaller.
    """
    found = model_file(path)
    return _FORMATS[found.suffix.lower()](found, weights)


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
    if found.suffix.lower() not in _FORMATS:
        raise BadInput(
            f"{found}: no reader for '{found.suffix}' files; this version reads {_known()}"
        )
    if not found.is_file():
        raise BadInput(f"{found}: is a pipe or a device; write it to a file first")
    return found


def _only_model(folder: Path) -> Path:
    found = (p for p in folder.iterdir() if p.suffix.lower() in _FORMATS and p.is_file())
    models = sorted(p for p in found if not _LATER_SHARD.fullmatch(p.name))
    if len(models) == 1:
        return models[0]
    if not models:
        raise BadInput(f"{folder}: this folder holds no model; this version reads {_known()}")
    names = ", ".join(p.name for p in models)
    raise BadInput(f"{folder}: this folder holds {len(models)} models, name one: {names}")


def _known() -> str:
    return ", ".join(sorted(_FORMATS))


def _beside(path: Path, written: Path | None) -> Companions:
    """Tokenizer and configuration files that lie beside a model.

    What tells onnxruntime-genai of a ``model.onnx`` stays behind where there are phases instead.
    """
    from rewriter.source import Companions

    files = sorted(p for p in path.parent.iterdir() if p.is_file())
    found = {p.name: p for p in files if _COMPANIONS.fullmatch(p.name)}
    if written is None or _GENAI not in found or (written / "model.onnx").is_file():
        return Companions(found)
    del found[_GENAI]
    return Companions(
        found, (f"no {_GENAI} was written: the runtime takes a graph of any length, not phases",)
    )
