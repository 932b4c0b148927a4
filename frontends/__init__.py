"""Readers: a file of some format to the portable graph, weights left on disk."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rewriter.errors import BadInput

if TYPE_CHECKING:
    import onnx_ir as ir

    from frontends.decoder.requantize import Kind
    from rewriter.source import Companions, Source

__all__ = ["model_file", "open_source", "open_sources", "read"]

_COMPANIONS = re.compile(
    r".*(config|token|vocab|merges|chat_template|processor).*\.(json|txt)"
    r"|.*\.(jinja|model|tiktoken)"
)
"""Tokenizer and configuration files, which go with a model; notes and reports do not."""


_GENAI = "genai_config.json"
_PART = ".safetensors"
"""A file of a checkpoint whose other files lie beside it."""
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


def _safetensors(path: Path, weights: Kind) -> Source:
    from frontends.safetensors.reader import safetensors_source

    return safetensors_source(path.parent, weights)


_FORMATS: dict[str, Callable[[Path, Kind], Source]] = {
    ".gguf": _gguf,
    ".onnx": _onnx,
    ".safetensors": _safetensors,
}


def read(path: str | Path) -> ir.Model:
    """Read a model: an ONNX file as it is, a checkpoint as a portable graph.

    Args:
        path: an ``.onnx`` or ``.gguf`` file, a checkpoint of transformers (its folder, or a
            ``.safetensors`` file in it), or a folder that holds exactly one of all these.

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


def open_sources(path: str | Path, weights: Kind = "exact") -> list[Source]:
    """The files of a model, each as :func:`open_source` gives it.

    A folder of several ONNX files is one model: decoder, embedding and encoders, or the phases
    and parts of one. Anything else is one file.

    Args:
        path: as in :func:`read`, or such a folder.
        weights: as in :func:`open_source`.

    Raises:
        BadInput: as in :func:`open_source`.
    """
    from rewriter.source import Companions

    found = Path(path)
    models = _models(found) if found.is_dir() else []
    if len(models) < 2 or any(model.suffix.lower() != ".onnx" for model in models):
        return [open_source(path, weights)]
    models.sort(key=lambda path: ("decode" in path.stem, path.name))  # prompts are read first
    sources = [replace(_onnx(model, weights), name=model.stem) for model in models]
    rest = Companions({})
    return [sources[0], *(replace(s, companions=lambda: rest) for s in sources[1:])]


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


def _models(folder: Path) -> list[Path]:
    from rewriter.leftovers import check_whole

    check_whole(folder)
    found = (p for p in folder.iterdir() if p.suffix.lower() in _FORMATS and p.is_file())
    models = sorted(p for p in found if not _LATER_SHARD.fullmatch(p.name))
    models = [p for p in models if not _is_compiled(p)]
    return [p for p in models if p.suffix.lower() != _PART] + _checkpoint(folder, models)


def _is_compiled(path: Path) -> bool:
    """Whether the graph that it was compiled from lies beside it."""
    graph = path.with_name(f"{path.stem.removesuffix('_ctx')}{path.suffix}")
    return graph != path and graph.is_file()


def _checkpoint(folder: Path, models: list[Path]) -> list[Path]:
    """One file that stands for all of a checkpoint, which may be among those that are missing."""
    parts = [p for p in models if p.suffix.lower() == _PART]
    if not parts and not (folder / f"model{_PART}.index.json").is_file():
        return []
    return parts[:1] or [folder / f"model{_PART}"]


def _only_model(folder: Path) -> Path:
    models = _models(folder)
    if len(models) == 1:
        return models[0]
    if not models:
        raise BadInput(f"{folder}: this folder holds no model; this version reads {_known()}")
    names = ", ".join(p.name for p in models)
    raise BadInput(f"{folder}: this folder holds {len(models)} models, name one: {names}")


def _known() -> str:
    return ", ".join(sorted(_FORMATS))


def _beside(path: Path) -> Companions:
    """Tokenizer and configuration files that lie beside a model.

    Raises:
        BadInput: what onnxruntime-genai is told is not to be read.
    """
    from rewriter.source import Companions, GenaiBase

    files = sorted(p for p in path.parent.iterdir() if p.is_file())
    found = {p.name: p for p in files if _COMPANIONS.fullmatch(p.name)}
    config = found.pop(_GENAI, None)
    if config is None:
        return Companions(found)
    from rewriter.genai.stated import stated

    stated(config)  # what is wrong with it is found before the work
    return Companions(found, genai=GenaiBase(config))
