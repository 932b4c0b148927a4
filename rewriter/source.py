"""Where a model comes from, as the pipeline sees it: formats are known only to ``frontends``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

CONTEXT = "rewriter.context"
"""Key of a model's metadata: how many positions it was trained for, where the format says it."""


@dataclass(frozen=True, slots=True)
class GenaiBase:
    """What a source knows for ``genai_config.json``; what describes the graphs is added to it.

    Attributes:
        content: the file as it lay beside the model, or the part of one that a checkpoint gives.
        notes: what a person should know who runs the result.
    """

    content: Path | bytes
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Companions:
    """Tokenizer and configuration files that belong to a model.

    Attributes:
        files: by name, a file or its content.
        notes: what could not be made, and what a person should know, as sentences.
        genai: for the configuration of onnxruntime-genai, which has to fit what is written.
    """

    files: Mapping[str, Path | bytes]
    notes: tuple[str, ...] = ()
    genai: GenaiBase | None = None

    def paths(self) -> list[Path]:
        """The files that lie beside the model."""
        content = [] if self.genai is None else [self.genai.content]
        return [found for found in (*self.files.values(), *content) if isinstance(found, Path)]


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
        companions: what goes with it.
        kinds: what became of the weights last read, known once they are written.
        built: the graph is made from a checkpoint, so that there is no ONNX file of it yet.
        name: of this file among several that are one model; empty where it is the only one.
    """

    file: Path
    read: Callable[[int | None], ir.Model]
    companions: Callable[[], Companions]
    kinds: Callable[[], Sequence[WeightKind]] = tuple
    built: bool = False
    name: str = ""

    def graph(self, phase: str) -> str:
        """The name of the graph of a phase: of its file among several, and of the phase."""
        if not self.name:
            return phase
        return self.name if phase == "model" else f"{self.name}-{phase}"
