"""A folder that is driven: tokens go in, logits come out, caches stay where the sessions are."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from rewriter.compiling.check import Context, check_context
from rewriter.errors import BadInput, RuntimeFault
from rewriter.generate.folder import Folder
from rewriter.generate.graph import Graph, Part
from rewriter.generate.no_kernel import no_kernel
from rewriter.generate.plan import Call, calls, inputs
from rewriter.parity.settings import EXACT, drop_accuracy_level
from rewriter.placement import qnn
from rewriter.runtime.child import Job, Refused
from rewriter.runtime.sessions import Sessions
from rewriter.runtime.versions import installed

Array = npt.NDArray[Any]
EPS = {"ort-cpu": "cpu", "qnn": "qnn", "openvino": "openvino"}
"""Where a folder can be run, and what the workers call it."""


def check_ids(folder: Folder, ids: npt.ArrayLike) -> None:
    """Every id is one that the model has.

    Raises:
        BadInput: one is not.
    """
    array, size = np.asarray(ids), folder.vocabulary
    outside = array[(array < 0) | (array >= (size or array.max() + 1))]
    if outside.size:
        known = f", whose ids are 0 to {size - 1}" if size else ""
        raise BadInput(f"token id {outside[0]} is outside the vocabulary{known}")


@dataclass(slots=True)
class Decoder:
    """A folder with its sessions, and the tokens it has read.

    Attributes:
        folder: what is driven.
        ep: where it runs, one of :data:`EPS`.
        versions: of the runtime.
        compiled: compiled models are run in the place of the graphs.
        options: of the EP's provider.
        seconds: how long each call took, with the graph's name.
    """

    folder: Folder
    ep: str
    sessions: Sessions
    versions: dict[str, str] = field(default_factory=dict)
    compiled: bool = False
    options: dict[str, str] = field(default_factory=dict)
    seconds: list[tuple[str, float]] = field(default_factory=list)
    _numbers: dict[str, int] = field(default_factory=dict)
    _ids: Array | None = None
    _turn: int = 0

    @property
    def done(self) -> int:
        """How many tokens were read."""
        return 0 if self._ids is None else int(self._ids.shape[1])

    def feed(self, ids: npt.ArrayLike) -> Array:
        """Read tokens after those read before.

        Args:
            ids: (B, n), or (n) for one sequence; a graph of a fixed batch takes so many.

        Returns:
            Logits (B, n, V) in float32, or (B, 1, V) of the last where a graph gives no others.

        Raises:
            CacheFull: they do not fit.
            BadInput: ids outside the vocabulary, none, or another batch.
            RuntimeFault: the runtime fails.
        """
        new = self._checked(np.asarray(ids))
        planned = calls(self.folder, self.done, new.shape[1])
        if self._ids is None:
            self._begin(new.shape[0])
        every = new if self._ids is None else np.concatenate([self._ids, new], axis=1)
        found = [self._call(call, every) for call in planned]
        self._ids = every
        return np.concatenate(found, axis=1)

    def restart(self) -> None:
        """Forget every token."""
        self._ids = None

    def caches(self) -> dict[str, Array]:
        """What the caches hold, by the names of the inputs."""
        names = list(self.folder.any_graph.caches.all)
        found = self.sessions.kept([self._key(name) for name in names])
        return {name: found[self._key(name)] for name in names}

    def _checked(self, ids: Array) -> Array:
        new = np.atleast_2d(ids)
        if new.ndim != 2 or not new.size or new.dtype.kind not in "iu":
            given = f"{new.dtype} {new.shape}"
            raise BadInput(f"token ids are one whole number or more, not {given}")
        check_ids(self.folder, new)
        wanted = self.folder.any_graph.batch if self._ids is None else self._ids.shape[0]
        if wanted is not None and new.shape[0] != wanted:
            raise BadInput(
                f"{new.shape[0]} sequences were given, and the graphs take {wanted} at a time"
            )
        return new

    def _key(self, past: str, turn: int = 0) -> str:
        """Where a cache is kept: a part may read what a part before it has replaced already."""
        return f"{(self._turn + turn) % 2}:{past}"

    def _begin(self, batch: int) -> None:
        caches = self.folder.any_graph.caches.all
        self.sessions.zeros({self._key(name): cache.empty(batch) for name, cache in caches.items()})

    def _call(self, call: Call, ids: Array) -> Array:
        graph = self.folder.graphs[call.graph]
        feeds = inputs(graph, call, ids)
        presents = {cache.present: name for name, cache in graph.caches.all.items()}
        began = time.perf_counter()
        given: dict[str, str] = {}
        logits = None
        for part in graph.parts:
            kept = {name: given[name] for name in part.inputs if name in given}
            kept |= {n: self._key(n) for n in part.inputs if n in graph.caches.all}
            keep = {n: self._key(presents[n], 1) for n in part.outputs if n in presents}
            hidden = {n: f"part:{n}" for n in part.outputs if n not in presents}
            hidden.pop("logits", None)
            last = part is graph.parts[-1]
            found = self.sessions.run(
                self._numbers[part.name],
                {name: array for name, array in feeds.items() if name in part.inputs},
                kept=kept,
                keep=keep if last else {**keep, **hidden},
                give=["logits"] if last else [],
            )
            given |= hidden | keep
            logits = found.get("logits")
        assert logits is not None
        self._turn += 1
        self.seconds.append((call.graph, time.perf_counter() - began))
        whole = logits.shape[1] == call.width
        return logits[:, call.rows if whole else slice(-1, None)].astype(np.float32)


@contextmanager
def opened(
    folder: Folder,
    ep: str = "ort-cpu",
    *,
    python: Path | None = None,
    exact: bool = True,
    time_limit: float = 600,
    say: Callable[[str], None] = lambda _: None,
) -> Generator[Decoder, None, None]:
    """Drive a folder.

    Args:
        folder: what :func:`read_folder` found.
        ep: one of :data:`EPS`.
        python: the interpreter whose runtime is used; this one when None.
        exact: on the CPU, what parity compares: no optimizations, and no activation is rounded,
            whatever leave to a file gives. Otherwise the file runs as any program would run it.
        time_limit: seconds that each session and each run may take.
        say: is told what begins.

    Raises:
        BadInput: the EP does not take a graph whole, or has no kernel for a node.
        RuntimeFault: the runtime is missing, fails, crashes, or exceeds time or memory.
    """
    parts = [(g, part) for g in folder.graphs.values() for part in g.parts]
    contexts = _contexts([part for _, part in parts], python) if ep == "qnn" else {}
    with (
        TemporaryDirectory(prefix="rewrite-") as name,
        Sessions(EPS[ep], python=python, exact=exact, time_limit=time_limit) as sessions,
    ):
        decoder = Decoder(folder, ep, sessions, compiled=bool(contexts))
        for graph, part in parts:
            say(f"creating the session of {part.name}")
            _check_kind(ep, graph, part)
            if ep == "ort-cpu" and exact:
                job = _exact(part, Path(name))
            else:
                job = _job(part, ep, contexts.get(part.name))
            decoder.options.update(job.provider_options)
            decoder._numbers[part.name] = _open(sessions, job, part, python)
        decoder.versions = dict(sessions.versions)
        yield decoder


def _check_kind(ep: str, graph: Graph, part: Part) -> None:
    if part.file == part.compiled and ep != "qnn":
        raise BadInput(
            f"{part.file.name}: is compiled for QNN; run it with --ep qnn, or put "
            f"{part.name}.onnx beside it"
        )
    free = [str(d) for p in part.inputs.values() for d in p.shape if isinstance(d, str)]
    if ep == "qnn" and free:
        raise BadInput(
            f"{part.file.name}: its {', '.join(dict.fromkeys(free))} are free, and QNN runs fixed "
            f"shapes only; write the folder with 'rewrite MODEL --ep qnn --static both', or run "
            f"{graph.name} with --ep ort-cpu"
        )


def _contexts(parts: Sequence[Part], python: Path | None) -> dict[str, Context]:
    """Compiled models by the names of the parts; none unless every part has one.

    Raises:
        BadInput: one cannot be loaded here, or no longer stands for its graph.
    """
    files = {part.name: part.compiled for part in parts if part.compiled is not None}
    if len(files) < len(parts):
        return {}
    version = installed("qnn", python)
    return {name: check_context(file, version=version) for name, file in files.items()}


def _job(part: Part, ep: str, context: Context | None) -> Job:
    if ep != "qnn":
        return Job(part.file, ep=EPS[ep], optimize=True)
    options = {} if context is None else context.options
    return Job(
        part.file if context is None else context.file,
        ep="qnn",
        provider_options={**qnn.default_options(), **options},
        config=qnn.NO_FALLBACK,
        optimize=True,
    )


def _exact(part: Part, folder: Path) -> Job:
    """The graph without leave to round activations, if it gives any; its weights stay in place."""
    model, file = ir.load(part.file), part.file
    if drop_accuracy_level(model):
        file = folder / part.file.name
        ir.save(model, file)
    data = None if file == part.file else part.file.parent
    return Job(file, external_data_dir=data, config=EXACT)


def _open(sessions: Sessions, job: Job, part: Part, python: Path | None) -> int:
    try:
        return sessions.open(job)
    except Refused as refused:
        raise BadInput(
            f"{part.file.name}: OpenVINO does not read it; write the folder with 'rewrite MODEL "
            f"--ep openvino' ({refused})"
        ) from None
    except RuntimeFault as fault:
        cpu = job.ep == "cpu" and fault.kind == "error"
        if cpu and (known := no_kernel(part, str(fault), python)):
            raise BadInput(known) from None
        if not qnn.refused_fallback(fault):
            raise
        raise BadInput(
            f"{part.file.name}: QNN does not take all of its nodes; write the folder with "
            "'rewrite MODEL --ep qnn', whose report says where nodes land"
        ) from None
