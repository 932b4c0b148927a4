"""What a folder holds: the graphs of a decoder, which have to fit together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rewriter.errors import BadInput
from rewriter.generate.cache import compare
from rewriter.generate.files import graph_files
from rewriter.generate.graph import Graph, read_graph


@dataclass(frozen=True, slots=True)
class Folder:
    """What a folder holds.

    Attributes:
        path: of the folder.
        graphs: ``model``, or ``prefill`` and ``decode``, or one of those, by name.
        context: how many tokens its configuration allows, where it says so.
    """

    path: Path
    graphs: Mapping[str, Graph]
    context: int | None = None

    @property
    def any_graph(self) -> Graph:
        """One of the graphs: they share batch, vocabulary and caches."""
        return next(iter(self.graphs.values()))

    @property
    def vocabulary(self) -> int | None:
        """How many logits there are; nothing where the graph does not say it."""
        return self.any_graph.logits.dim(2)

    @property
    def positions(self) -> int | None:
        """How many tokens there are positions for."""
        known = [self.context, *(graph.positions for graph in self.graphs.values())]
        return min((count for count in known if count), default=None)


def read_folder(path: Path) -> Folder:
    """Look at a folder of ``rewrite``.

    Raises:
        BadInput: it holds no graphs, or such that do not fit together or do not generate text.
    """
    graphs = {name: read_graph(name, files) for name, files in graph_files(path).items()}
    if len(graphs) > 1:
        _check_pair(graphs["prefill"], graphs["decode"])
    return Folder(path, graphs)


def _check_pair(prefill: Graph, decode: Graph) -> None:
    compare(prefill.caches, decode.caches)
    for what, one, other in (
        ("sequences", prefill.batch, decode.batch),
        ("logits", prefill.logits.dim(2), decode.logits.dim(2)),
    ):
        if one != other:
            raise BadInput(
                f"prefill has {one} {what} and decode {other}; they are not of one model"
            )
