"""Running cases on a runtime that may refuse, crash, hang, or print what it likes.

One child serves many cases; what kills it is recorded, and the next case gets a new one. So does
the one after an error: a runtime that failed once is not asked again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType

from capabilities import target
from rewriter.errors import RuntimeFault
from rewriter.parity.settings import EXACT, drop_accuracy_level
from rewriter.placement.qnn import default_options
from rewriter.probe.case import Built, Case
from rewriter.probe.host import SATURATES, multiplies_codes, saturates
from rewriter.probe.operands import Array
from rewriter.probe.verdict import (
    CPU,
    Measured,
    compared,
    figure,
    ops_of,
    placed,
    shows_nothing,
)
from rewriter.runtime.child import Job, Refused
from rewriter.runtime.sessions import Sessions

MEMORY = 3 << 30
"""Bytes that a child may hold: the models are small, and some have a runtime take all there is."""
_WORDS = {"crash": "CRASH", "memory": "CRASH", "timeout": "TIMEOUT"}
_NOTE = 100
_DOING = re.compile(
    r"^[\w ]+? (?:failed|crashed with (?P<signal>\w+)|was stopped after (?P<limit>[\d.]+ s)) "
    r"while (?:creating the session of|running) case\.onnx(?:; allow more time.*)?"
    r"(?:: (?:Model wasn't fully converted\. )?(?:Failed operations detailed log: -- )?)?"
    r"(?:\S+ with a message: )?(?:While validating ONNX node '.*?': )?"
)
"""What a fault begins with; all but a signal and a waiting time is in the verdict."""
_MACHINE = re.compile(r"(?<![\w.])/[\w./+-]+|0x[0-9a-fA-F]+|\b\d{7,}\w*|rewrite-\w+")
"""Paths, addresses and run numbers: what differs from machine to machine in a runtime's words."""


class Supervised:
    """A child that serves sessions and is started anew when it is needed.

    Args:
        ep: of :class:`~rewriter.runtime.child.Job`.
        python: the interpreter whose runtime is used; this one when None.
        time_limit: seconds that one answer may take.
    """

    def __init__(self, ep: str, python: Path | None, time_limit: float) -> None:
        self.ep = ep
        self._python, self._limit = python, time_limit
        self._sessions: Sessions | None = None

    def sessions(self) -> Sessions:
        """The child, alive."""
        if self._sessions is None:
            fresh = Sessions(
                self.ep,
                python=self._python,
                exact=self.ep == "cpu",
                time_limit=self._limit,
                memory_limit=MEMORY,
            )
            self._sessions = fresh.__enter__()
        return self._sessions

    def run(self, number: int, feeds: Mapping[str, Array], names: list[str]) -> dict[str, Array]:
        """Outputs of a session; a child that fails ends.

        Raises:
            RuntimeFault: the runtime fails, crashes, or takes too long.
        """
        try:
            return self.sessions().run(number, feeds, kept={}, keep={}, give=names)
        except RuntimeFault:
            self.end()
            raise

    def close(self, number: int) -> None:
        """Give a session up, unless the child is gone already."""
        if self._sessions is not None:
            self._sessions.close(number)

    def end(self) -> None:
        """End the child, if there is one."""
        if self._sessions is not None:
            sessions, self._sessions = self._sessions, None
            sessions.__exit__(None, None, None)


class Prober:
    """Measures cases on one EP; a context that leaves no child and no file.

    Args:
        ep: ``qnn`` or ``openvino``.
        python: the interpreter whose runtime is used; this one when None.
        time_limit: seconds that one step of a case may take.
    """

    def __init__(self, ep: str, python: Path | None = None, time_limit: float = 60) -> None:
        self.ep = ep
        self._runtime = Supervised(ep, python, time_limit)
        self._oracle = Supervised("cpu", None, time_limit)

    def __enter__(self) -> Prober:
        self._home = TemporaryDirectory(prefix="rewrite-", ignore_cleanup_errors=True)
        self._folder = Path(self._home.name)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._runtime.end()
        self._oracle.end()
        self._home.cleanup()

    def measure(self, case: Case, *, alone: bool = False) -> Measured:
        """What the runtime does with a case; ``alone`` in a child that saw no other.

        Raises:
            RuntimeFault: the runtime is not installed.
        """
        if alone:
            self._runtime.end()
        built = case.built()
        file = self._folder / "case.onnx"
        built.save(file)
        try:
            found = self._measured(case, built, file)
        except RuntimeFault as fault:
            if fault.kind == "missing":
                raise
            if fault.kind == "memory" and not alone:  # it may be that of the cases before
                return self.measure(case, alone=True)
            return Measured(self._word(fault), note=_tidy(_said(fault)))
        finally:
            if alone:
                self._runtime.end()
        return found

    def _measured(self, case: Case, built: Built, file: Path) -> Measured:
        job = Job(
            file,
            ep=self.ep,
            optimize=True,
            assignment=self.ep == "qnn",
            provider_options=self._options(case),
        )
        try:
            number, word, note = self._opened(job, built)
        except RuntimeFault as fault:
            self._runtime.end()
            raise _Opening(fault) from fault
        try:
            if word not in {"HTP", "HTP+io", "OK"}:
                return Measured(word, note=note)
            reference = self._reference(case, built, file)
            if not reference:
                return Measured(f"{word}-NOREF", note=note)
            outputs = self._runtime.run(number, built.feeds, list(reference))
        finally:
            self._runtime.close(number)
        return self._judged(built, word, note, reference, outputs)

    def _opened(self, job: Job, built: Built) -> tuple[int, str, str]:
        """A session, where it put the nodes, and why."""
        sessions = self._runtime.sessions()
        number, partitions = sessions.place(job)
        if self.ep != "qnn":
            return number, "OK", ""
        word = placed(partitions, built.model)
        left = [node for part in partitions if part.ep == CPU for node in part.nodes]
        if not partitions:
            return number, word, "no node is left: ONNX Runtime computes it before"
        if not left:
            return number, word, "" if word == "HTP" else f"{len(partitions)} partitions"
        note = f"cpu={ops_of(left)}"
        if word != "HTP+io":
            sessions.close(number)
            sessions.said()
            number, _ = sessions.place(replace(job, verbose=True))
            reasons = sorted(set(sessions.said().reasons.values()))
            said = [f"reason={_tidy(reason)}" for reason in reasons[:1]]
            note = " ; ".join(said if word == "CPU" and said else [note, *said])
        return number, word, note

    def _reference(self, case: Case, built: Built, file: Path) -> dict[str, Array]:
        """What is right; nothing where no kernel computes it, or it shows nothing."""
        if case.reference is not None:
            return dict(case.reference(built.feeds))
        drop_accuracy_level(built.model)
        built.save(file)
        names = [value.name or "" for value in built.model.graph.outputs]
        try:
            number = self._oracle.sessions().open(Job(file, config=EXACT))
            found = self._oracle.run(number, built.feeds, names)
            self._oracle.close(number)
        except RuntimeFault:
            self._oracle.end()
            return {}
        right = {name: built.defined(name, array) for name, array in found.items()}
        return {} if shows_nothing(right) else right

    def _judged(
        self,
        built: Built,
        word: str,
        note: str,
        reference: Mapping[str, Array],
        outputs: Mapping[str, Array],
    ) -> Measured:
        found = {name: built.defined(name, array) for name, array in outputs.items()}
        worst = compared(self.ep, built.model, reference, found)
        codes = self.ep == "openvino" and multiplies_codes(built.facts(target(self.ep)))
        if worst.flaw and codes and saturates():
            return Measured(f"{word}-NOREF", note=SATURATES)
        apart, relative = (
            figure(error, right=not worst.flaw) for error in (worst.apart, worst.relative)
        )
        return Measured(f"{word}-{worst.flaw}" if worst.flaw else word, apart, relative, note)

    def _options(self, case: Case) -> dict[str, str]:
        options = default_options() if self.ep == "qnn" else {}
        for name, value in case.options.items():
            if value.startswith("{"):
                path = self._folder / f"{name}.json"
                path.write_text(json.dumps(json.loads(value)), encoding="utf-8")
                value = str(path)
            options[name] = value
        return options

    def _word(self, fault: RuntimeFault) -> str:
        if fault.kind in _WORDS:
            return _WORDS[fault.kind]
        if not isinstance(fault, _Opening):
            return "RUN_ERROR"
        if self.ep == "qnn":
            return "LOAD_ERROR"
        return "READ_ERROR" if fault.refused else "COMPILE_ERROR"


class _Opening(RuntimeFault):
    """A fault before the session was there."""

    def __init__(self, fault: RuntimeFault) -> None:
        super().__init__(fault.kind, str(fault))
        self.refused = isinstance(fault, Refused)


def _said(fault: RuntimeFault) -> str:
    """What a fault adds to its verdict."""
    if fault.kind == "memory":  # how much there is, and who notices, differs between machines
        return "memory"
    return _DOING.sub(lambda match: match["signal"] or match["limit"] or "", str(fault))


def _tidy(words: str) -> str:
    """A runtime's words on one line, without what differs from machine to machine."""
    text = " ".join(_MACHINE.sub("…", words).replace(";", ",").split())
    return text if len(text) <= _NOTE else f"{text[: _NOTE - 1].rstrip()}…"
