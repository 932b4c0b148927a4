"""The time that proving a result may take, and what does not fit into it or into memory."""

from __future__ import annotations

import time

from rewriter.cost import Cost, free_gb
from rewriter.placement import emulated
from rewriter.settings import Settings

SLOWER = 3
"""How much slower than estimated a run in the emulator may be, before it is stopped."""

_SLICE_SECONDS = 60


class Budget:
    """Minutes that all steps of a proof share.

    Args:
        settings: what was asked.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._deadline = 0.0

    def begin(self) -> None:
        """From now on time is counted."""
        self._deadline = time.perf_counter() + self._settings.budget * 60

    def left(self) -> float:
        """Seconds that are left; a little at the end, so that there is something to stop."""
        return max(self._deadline - time.perf_counter(), 0.001)

    def slice_time(self) -> float:
        """Seconds for a slice: a minute even where less is left, or nothing would be seen."""
        self._deadline = max(self._deadline, time.perf_counter() + _SLICE_SECONDS)
        return self.left()

    def too_much(self, cost: Cost, runs: int, seconds: float, held: Cost | None = None) -> str:
        """Why the emulator would not finish, or not fit; empty if it would.

        Args:
            cost: of everything that runs.
            runs: how often.
            seconds: that there are.
            held: the cost of what is in memory at one time, if that is not all.
        """
        if self._settings.target.ep != "qnn" or not emulated():
            return ""
        minutes, needed, free = cost.minutes(runs), (held or cost).emulator_gb(), free_gb()
        if minutes * 60 > seconds:
            return (
                f"would take about {minutes:.2g} minutes in the emulator, more than is left of "
                f"--budget {self._settings.budget:g}"
            )
        if needed > free:
            return f"would take about {needed:.1f} GB in the emulator, and {free:.1f} are free"
        return ""
