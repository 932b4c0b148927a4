"""Where a model comes from, as the pipeline sees it: formats are known only to ``frontends``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

CONTEXT = "rewriter.context"
"""Key of a model's metadata: how many positions it was trained for, where the format says it."""


@dataclass(frozen=True, slots=True)
class Companions:
    """Tokenizer and configuration files that belong to a model.

    Attributes:
        files: by name, a file or its content.
        notes: what could not be made, and what a person should know, as sentences.
    """

    files: Mapping[str, Path | bytes]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WeightKind:
    """A row of the report: what became of the tensors of one type.

    Attributes:
        type: of the checkpoint's format.
        form: what they are now.
        tensors: how many.
        bytes_in: in the file.
        bytes_out: in the result.
        error: largest ``|w - w'| / max |w|`` of a tensor, 0 where all are exact; known once the
            result is written.
    """

    type: str
    form: str
    tensors: int
    bytes_in: int
    bytes_out: int
    error: float


@dataclass(frozen=True, slots=True)
class Source:
    """A model that can be read as often as it is needed.

    Attributes:
        file: the model, or the first file of it.
        read: the graph, anew each time, weights left on disk. The number is of positions to
            serve, ``None`` for all.
        companions: what goes with it; given the folder that the graphs were written to, also
            what has to fit them.
        kinds: what became of the weights last read, known once they are written.
        built: the graph is made from a checkpoint, so that there is no ONNX file of it yet.
    """

    file: Path
    read: Callable[[int | None], ir.Model]
    companions: Callable[[Path | None], Companions]
    kinds: Callable[[], Sequence[WeightKind]] = tuple
    built: bool = False
