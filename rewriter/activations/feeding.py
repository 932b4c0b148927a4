"""Running a graph on calibration data, its caches fed back, in a child process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from rewriter.generate.folder import Folder
from rewriter.generate.graph import Graph, read_graph
from rewriter.generate.plan import calls, inputs, limit
from rewriter.parity.settings import EXACT
from rewriter.runtime.child import Job
from rewriter.runtime.sessions import Sessions

Array = npt.NDArray[Any]
Arrays = dict[str, Array]


@dataclass(frozen=True, slots=True)
class Calibration:
    """What a graph is run on.

    Attributes:
        source: where it comes from, in words.
        prompts: token ids of a decoder, whose caches are fed back.
        feeds: all inputs of a graph, where those are given; there are no prompts then.
    """

    source: str
    prompts: tuple[Array, ...] = ()
    feeds: tuple[Arrays, ...] = ()


def decoder_of(file: Path) -> Folder:
    """A graph as one that is driven by tokens.

    Raises:
        BadInput: it is none.
    """
    return Folder(file.parent, {"model": read_graph("model", [file])})


class Runs:
    """A session of a graph on ONNX Runtime's CPU, exact; a context.

    Args:
        file: the graph.
        calibration: what to run it on.
        like: the graph whose caches it has, where it has other outputs besides; itself if ``None``.
        time_limit: seconds that one run may take.
    """

    def __init__(
        self,
        file: Path,
        calibration: Calibration,
        like: Path | None = None,
        time_limit: float = 600,
    ) -> None:
        self._calibration = calibration
        self._folder = decoder_of(like or file) if calibration.prompts else None
        self._job = Job(file, config=EXACT)
        self._sessions = Sessions("cpu", time_limit=time_limit)

    def __enter__(self) -> Runs:
        self._sessions.__enter__()
        self._number = self._sessions.open(self._job)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._sessions.__exit__(kind, error, at)

    def outputs(self, give: Sequence[str]) -> Iterator[Arrays]:
        """What each run gives; of ``logits``, rows of tokens only."""
        if self._folder is None:
            for feed in self._calibration.feeds:
                yield self._sessions.run(self._number, feed, kept={}, keep={}, give=give)
            return
        graph = self._folder.any_graph
        for prompt in self._calibration.prompts:
            for feeds, rows in self._calls(graph, prompt):
                found = self._run(graph, feeds, give)
                if "logits" in found and found["logits"].shape[1] == rows[1]:
                    found["logits"] = found["logits"][:, rows[0]]
                yield found

    def inputs(self) -> Iterator[tuple[int, Arrays, bool]]:
        """Of every run: its prompt, all inputs, caches as they are then, and if none is a pad."""
        if self._folder is None:
            yield from ((at, feed, True) for at, feed in enumerate(self._calibration.feeds))
            return
        graph = self._folder.any_graph
        for at, prompt in enumerate(self._calibration.prompts):
            for feeds, (rows, width) in self._calls(graph, prompt):
                yield at, {**feeds, **self._caches(graph)}, rows.stop - rows.start == width
                self._run(graph, feeds, [])

    def _caches(self, graph: Graph) -> Arrays:
        names = list(graph.caches.all)
        return self._sessions.kept(names) if names else {}

    def _calls(self, graph: Graph, prompt: Array) -> Iterator[tuple[Arrays, tuple[slice, int]]]:
        """Inputs of every call for a prompt, from empty caches on, and which columns are new."""
        assert self._folder is not None
        ids = fitting(self._folder, prompt)
        empty = {name: cache.empty(ids.shape[0]) for name, cache in graph.caches.all.items()}
        self._sessions.zeros(empty)
        for call in calls(self._folder, 0, ids.shape[1]):
            yield inputs(graph, call, ids), (call.rows, call.width)

    def _run(self, graph: Graph, feeds: Arrays, give: Sequence[str]) -> Arrays:
        caches = graph.caches.all
        return self._sessions.run(
            self._number,
            feeds,
            kept={name: name for name in caches},
            keep={cache.present: name for name, cache in caches.items()},
            give=give,
        )


def fitting(folder: Folder, prompt: Array) -> Array:
    """A prompt (T,) for a graph: as many sequences as it takes, no longer than its cache.

    Where the graph reads several tokens at a time it is cut to whole calls, so that no pad is
    among what is calibrated, unless that leaves nothing.
    """
    graph, most = folder.any_graph, limit(folder)[0]
    length = min(len(prompt), most or len(prompt))
    if graph.width and length > graph.width:
        length -= length % graph.width
    return np.repeat(prompt[None, :length], graph.batch or 1, axis=0).astype(np.int64)


def runs_without_pads(file: Path, given: Calibration, count: int) -> list[Arrays]:
    """Inputs of the last run without pads of each of so many prompts, see :meth:`Runs.inputs`.

    Raises:
        RuntimeFault: ONNX Runtime fails.
    """
    some = replace(given, prompts=given.prompts[:count], feeds=given.feeds[:count])
    with Runs(file, some) as runs:
        return list({at: feeds for at, feeds, whole in runs.inputs() if whole}.values())
