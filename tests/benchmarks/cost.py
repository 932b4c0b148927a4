"""What work costs, and how two costs are compared: always in turn, never from two days."""

from __future__ import annotations

import gc
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

Pairs = list[tuple["Cost", "Cost | None"]]


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one run.

    Attributes:
        wall: seconds on the clock.
        cpu: seconds of user and system time, children included.
        anonymous: most bytes of memory at once that no file holds; 0 where it was not looked at.
        figure: what else was counted.
    """

    wall: float = 0.0
    cpu: float = 0.0
    anonymous: int = 0
    figure: float = 0.0


Measured = Callable[[], Cost]


@dataclass(frozen=True, slots=True)
class Line:
    """One row of the table.

    Attributes:
        work: what is done.
        against: what it is compared with.
        unit: of the two figures.
        ours: median of our figure.
        other: median of the other; none where it is not installed.
        ratio: median of the ratios of pairs.
        goal: highest ratio that is good enough.
    """

    work: str
    against: str
    unit: str
    ours: float
    other: float | None
    ratio: float | None
    goal: float


def in_process(make: Callable[[], Callable[[], object]]) -> Measured:
    """The cost of a call in this process.

    Args:
        make: prepares the work, which is not counted.
    """

    def measured() -> Cost:
        work = make()
        gc.collect()  # what was left by the work before is not this one's
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        return Cost(time.perf_counter() - wall, time.process_time() - cpu)

    return measured


def command(*words: str | Path, cwd: Path | None = None) -> Measured:
    """The cost of a command and its children.

    Raises:
        RuntimeError: when run, if it fails; with the end of what it said.
    """

    def measured() -> Cost:
        before, wall, anonymous = os.times(), time.perf_counter(), 0
        with tempfile.TemporaryFile("w+") as said:
            with subprocess.Popen(words, stdout=said, stderr=said, cwd=cwd) as child:
                while child.poll() is None:
                    anonymous = max(anonymous, sum(map(_anonymous, _family(child.pid))))
                    time.sleep(0.02 if anonymous else 0.002)
            wall = time.perf_counter() - wall
            after = os.times()
            said.seek(0)
            tail = said.read()[-2000:]
        if child.returncode:
            raise RuntimeError(f"{words[0]} ended with {child.returncode}: {tail}")
        cpu = sum(after[2:4]) - sum(before[2:4])
        return Cost(wall, cpu, anonymous)

    return measured


def _family(pid: int) -> Iterator[int]:
    """A process and its children, as far down as they go."""
    yield pid
    for task in _read(Path(f"/proc/{pid}/task/{pid}/children")).split():
        yield from _family(int(task))


def _anonymous(pid: int) -> int:
    lines = _read(Path(f"/proc/{pid}/status")).splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon")), 0)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError:  # it has ended
        return ""


def in_turn(runs: int, ours: Measured, other: Measured | None) -> Pairs:
    """Both, one after the other, so that what else the machine does falls on both."""
    return [(ours(), None if other is None else other()) for _ in range(runs)]


def line(
    work: str,
    against: str,
    goal: float,
    pairs: Sequence[tuple[Cost, Cost | None]],
    figure: Callable[[Cost], float],
    unit: str,
) -> Line:
    """Medians of one figure over pairs."""
    mine = [figure(one) for one, _ in pairs]
    others = [figure(other) for _, other in pairs if other is not None]
    ratio = statistics.median(a / b for a, b in zip(mine, others, strict=True)) if others else None
    other = statistics.median(others) if others else None
    return Line(work, against, unit, statistics.median(mine), other, ratio, goal)


def wall(cost: Cost) -> float:
    """Seconds on the clock."""
    return cost.wall


def cpu(cost: Cost) -> float:
    """Seconds of work."""
    return cost.cpu


def megabytes(cost: Cost) -> float:
    """Most anonymous memory, in MB."""
    return cost.anonymous / 1e6


def counted(cost: Cost) -> float:
    """What was counted."""
    return cost.figure
