"""What the files of a written folder are called: component, phase, part, compiled or not."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from rewriter.compiling.check import SUFFIX

_PART = re.compile(r"(?P<graph>.+)-(?P<number>\d+)-[a-z]+")
_PHASE = re.compile(r"(?:(?P<component>.+)-)?(?P<phase>prefill|decode)")


@dataclass(frozen=True, slots=True)
class GraphName:
    """What the name of a file says.

    Attributes:
        component: the file of the model it was made from, where those are several; else empty.
        phase: ``model``, ``prefill`` or ``decode``.
        part: its place among the parts of the graph, from 1; 0 if it is whole.
        compiled: it is what an NPU loads in the place of the graph.
    """

    component: str
    phase: str
    part: int
    compiled: bool

    @property
    def graph(self) -> str:
        """The name of the graph, of which a part has some."""
        if not self.component:
            return self.phase
        return self.component if self.phase == "model" else f"{self.component}-{self.phase}"


def graph_name(file: Path) -> GraphName:
    """Read the name of an ONNX file: ``text-prefill-2-layers_ctx.onnx``, ``model.onnx``, ..."""
    stem = file.stem.removesuffix(SUFFIX)
    part = _PART.fullmatch(stem)
    graph, number = (part["graph"], int(part["number"])) if part else (stem, 0)
    compiled = stem != file.stem
    if phase := _PHASE.fullmatch(graph):
        return GraphName(phase["component"] or "", phase["phase"], number, compiled)
    return GraphName("" if graph == "model" else graph, "model", number, compiled)


def compiled_file(file: Path) -> Path:
    """Where the compiled model of a graph lies; itself if it is one."""
    return file.with_name(f"{plain_file(file).stem}{SUFFIX}.onnx")


def plain_file(file: Path) -> Path:
    """The graph that a file was compiled from; itself if it is one."""
    return file.with_name(f"{file.stem.removesuffix(SUFFIX)}.onnx")
