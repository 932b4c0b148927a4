"""The sessions that compiling takes, each in a process of its own, within one time limit."""

from __future__ import annotations

import time
from pathlib import Path

from rewriter.compiling.model import NotCompiled
from rewriter.compiling.settings import Chosen
from rewriter.errors import BadInput, OutOfResources, RewriteError, RuntimeFault
from rewriter.placement import qnn
from rewriter.placement.model import Feeds
from rewriter.runtime import child

_NO_ROOM = ("No space left on device", "Disk quota exceeded", "File too large")
_SHOWN = 3


class Sessions:
    """Sessions with the same options, on QNN alone.

    Args:
        chosen: the options.
        python: the interpreter whose runtime is used; this one when None.
        time_limit: seconds for all of them.
    """

    def __init__(self, chosen: Chosen, python: Path | None, time_limit: float) -> None:
        self._chosen, self._python = chosen, python
        self._deadline = time.monotonic() + time_limit

    def run(self, model: Path, feeds: Feeds = (), context: Path | None = None) -> child.Result:
        """Create a session and run it.

        Args:
            model: its file.
            feeds: what to run.
            context: where a compiled context is written, the binary beside it.

        Raises:
            BadInput: the runtime is missing.
            NotCompiled: it refuses the model, or leaves nodes to the CPU.
            OutOfResources: memory or disk ran out.
            RuntimeFault: it took too long.
        """
        entries = {} if context is None else _writing(context)
        job = child.Job(
            model,
            ep="qnn",
            by_name=True,
            provider_options=self._chosen.options,
            config={**qnn.NO_FALLBACK, **entries},
            optimize=True,
            feeds=feeds,
            assignment=True,
        )
        try:
            return child.run(job, python=self._python, time_limit=self._left())
        except RuntimeFault as fault:
            if fault.kind == "timeout":
                raise
            raise self._error(model, fault) from None

    def _left(self) -> float:
        return max(self._deadline - time.monotonic(), 0.001)

    def _error(self, model: Path, fault: RuntimeFault) -> RewriteError:
        text = str(fault)
        if fault.kind == "missing":
            return BadInput(f"--compile: {text}")
        if fault.kind == "memory":
            return OutOfResources(f"compiling {model.name}: {text}")
        if any(sign in text for sign in _NO_ROOM):
            return OutOfResources(f"compiling {model.name}: the disk is full ({text})")
        if qnn.refused_fallback(fault):
            return NotCompiled(f"{model.name}: {self._left_over(model)}")
        return NotCompiled(f"{model.name}: {text}")

    def _left_over(self, model: Path) -> str:
        """What a session without the CPU was refused for."""
        placed = qnn.place(model, self._chosen.options, self._python, self._left(), ())
        if placed.on_ep == 0 and not placed.reasons:
            return f"nothing of it was compiled: {placed.note}"
        named = [
            f"'{name}' ({op}){': ' + placed.reasons[name] if name in placed.reasons else ''}"
            for name, op in placed.cpu_nodes[:_SHOWN]
        ]
        more = placed.on_cpu - len(named)
        soc = self._chosen.soc
        hint = "" if soc is None or soc.float16 else f" ({soc} has no float16, so no float ops)"
        return (
            f"{placed.on_cpu} nodes would stay on the CPU, and a context holds only what QNN "
            f"takes: {'; '.join(named)}{f' and {more} more' if more else ''}{hint}"
        )


def _writing(context: Path) -> dict[str, str]:
    return {
        "ep.context_enable": "1",
        "ep.context_embed_mode": "0",
        "ep.context_file_path": str(context.absolute()),
    }
