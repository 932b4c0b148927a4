"""The table against a runtime: what each case confirms, contradicts, or is the first to say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from capabilities import Judgement, Target, Verdict
from rewriter.errors import RuntimeFault
from rewriter.probe.case import Built, Case
from rewriter.probe.operands import run
from rewriter.probe.runtime import Prober
from rewriter.probe.verdict import Measured

_BAD = frozenset({Verdict.ILLEGAL, Verdict.WRONG})
CHILDREN = 2
"""Runtimes that are asked at the same time; more would want memory that small machines lack."""

_SUM = Case("Add", "sum", "f32", lambda graph: graph.op("Add", run(2, 8), run(2, 8)))

CONFIRMED, CONTRADICTED, NEW, UNKNOWN = "confirmed", "contradicted", "new", "no reference"
STATES = (CONFIRMED, CONTRADICTED, NEW, UNKNOWN)


@dataclass(frozen=True, slots=True)
class Finding:
    """One case: what the table says, and what was measured.

    Attributes:
        case: what was run.
        judged: the table's verdict at the version, with the row.
        measured: what became of it.
        among_others: what became of it in a child that had run others, if that means another
            thing.
    """

    case: Case
    judged: Judgement
    measured: Measured
    among_others: Measured | None = None

    @property
    def state(self) -> str:
        """One of :data:`STATES`."""
        if not self.measured.known:
            return UNKNOWN
        if self.judged.verdict is Verdict.UNKNOWN:
            return NEW
        return CONFIRMED if self.judged.verdict is self.measured.meaning else CONTRADICTED


def judged(built: Built, target: Target) -> Judgement:
    """The table's verdict on a case: on its node, or on a neighbour that cannot stay either."""
    own = target.judge(built.facts(target))
    if own.verdict in _BAD:
        return own
    others = (
        target.judge(built.facts(target, node)) for node in built.model.graph if node != built.unit
    )
    return next((other for other in others if other.verdict in _BAD), own)


def probe(
    cases: Sequence[Case],
    target: Target,
    *,
    python: Path | None = None,
    time_limit: float = 60,
    seen: Callable[[Finding], None] = lambda _finding: None,
) -> list[Finding]:
    """Measure cases on the runtime of a target, in the order of the cases.

    What the table does not expect is measured again, alone in a child: what one model leaves
    behind in a runtime must not pass for what another does.

    Args:
        cases: to run.
        target: whose table is compared.
        python: the interpreter whose runtime is used; this one when None.
        time_limit: seconds that one step of a case may take.
        seen: told each finding as it comes, in no order.

    Raises:
        RuntimeFault: the runtime is not installed, or does not even add two tensors.
    """
    _check(target.ep, python, time_limit)
    waiting: Iterator[tuple[int, Case]] = iter(enumerate(cases))
    lock = Lock()
    found: dict[int, Finding] = {}

    def taken() -> tuple[int, Case] | None:
        with lock:
            return next(waiting, None)

    def work() -> None:
        with Prober(target.ep, python, time_limit) as prober:
            for number, case in iter(taken, None):
                found[number] = _find(prober, case, target)
                seen(found[number])

    with ThreadPoolExecutor(CHILDREN) as pool:
        try:
            for done in [pool.submit(work) for _ in range(min(CHILDREN, len(cases)))]:
                done.result()
        finally:  # where something else ends this, the threads finish the case that they are at
            with lock:
                waiting = iter(())
    return [found[number] for number in range(len(cases))]


def _check(ep: str, python: Path | None, time_limit: float) -> None:
    """Ask for a sum first: where that fails, the environment is what is broken."""
    with Prober(ep, python, time_limit) as prober:
        found = prober.measure(_SUM)
    if found.meaning is not Verdict.LEGAL:
        words = f"{found.verdict} {found.note}".strip()
        raise RuntimeFault("error", f"{ep} does not even add two tensors here: {words}")


def _find(prober: Prober, case: Case, target: Target) -> Finding:
    judgement = judged(case.built(), target)
    first = Finding(case, judgement, prober.measure(case))
    if first.state == CONFIRMED:
        return first
    alone = prober.measure(case, alone=True)
    other = first.measured if first.measured.meaning is not alone.meaning else None
    return Finding(case, judgement, alone, other)
