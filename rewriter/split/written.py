"""Parts beside the whole graph that they were cut from, over the same weight file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from rewriter.errors import RewriteError
from rewriter.output import disk
from rewriter.shared_weights import missing_weights
from rewriter.split.check import check
from rewriter.split.parts import Part, split
from rewriter.split.report import Cut, cut_at


@dataclass(frozen=True, slots=True)
class Written:
    """A part on disk.

    Attributes:
        path: its file, beside the whole.
        cut: what is in it.
    """

    path: Path
    cut: Cut


def write_parts(whole: Path, parts: int | None) -> list[Written]:
    """Split a written graph; each part is read back, and nothing is removed.

    Args:
        whole: a graph whose large constants are in a file beside it. Parts refer to that file, so
            that no weight is read or written.
        parts: see :func:`rewriter.split.parts.split`.

    Returns:
        The parts in the order they run, in files ``<whole>-<number>-<name>.onnx``.

    Raises:
        BadInput: it cannot be split so.
        OutOfResources: the disk is full.
        RewriteError: what was read back does not make up the whole.
    """
    model = ir.load(whole)
    made = split(model, parts)
    paths = [
        whole.with_name(f"{whole.stem}-{number}-{part.name}{whole.suffix}")
        for number, part in enumerate(made, 1)
    ]
    for part, path in zip(made, paths, strict=True):
        with disk(whole.parent):
            ir.save(part.model, path)
    read = [Part(part.name, ir.load(path)) for part, path in zip(made, paths, strict=True)]
    check(read, model)
    for part, path in zip(read, paths, strict=True):
        if problem := missing_weights(part.model):
            raise RewriteError(f"{path.name} was written wrong: {problem}")
    cuts = cut_at(read, model)
    return [Written(path, cut) for path, cut in zip(paths, cuts, strict=True)]
