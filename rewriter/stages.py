"""The stages of a run: said when they begin, timed when they end."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, MutableMapping
from contextlib import contextmanager


class Stages:
    """Says what begins and notes how long it took.

    Args:
        say: is told what begins.
        seconds: gets the time of each stage, by name; of all graphs together.
    """

    def __init__(self, say: Callable[[str], None], seconds: MutableMapping[str, float]) -> None:
        self._say = say
        self._seconds = seconds

    @contextmanager
    def __call__(self, name: str, words: str) -> Generator[None, None, None]:
        """One stage, around the work of it."""
        self._say(words)
        began = time.perf_counter()
        try:
            yield
        finally:
            spent = self._seconds.get(name, 0.0) + time.perf_counter() - began
            self._seconds[name] = round(spent, 3)
