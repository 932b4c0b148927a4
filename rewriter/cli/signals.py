"""What ends the command from outside cleans up as an error does: nothing is left behind."""

from __future__ import annotations

import signal
from types import FrameType
from typing import NoReturn

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")


def tidy_on_signals() -> None:
    """Turn Ctrl-C, ``kill`` and a closed terminal into exceptions.

    Whatever was set to be ignored (``nohup``) stays ignored.
    """
    for number in _known():
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _leave)


def _leave(number: int, _frame: FrameType | None) -> NoReturn:
    for each in _known():  # a second Ctrl-C must not cut the cleaning short
        signal.signal(each, signal.SIG_IGN)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)


def _known() -> list[signal.Signals]:
    return [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]
