"""What compiling gives, and the errors of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rewriter.errors import RewriteError


class NotCompiled(RewriteError):
    """The table calls a graph, a SoC or an option good, and the compiler refuses it."""

    exit_code = 5


class Differs(RewriteError):
    """A compiled context computes something else than the graph it was compiled from."""

    exit_code = 4


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled context.

    Attributes:
        context: ``X_ctx.onnx``, whose nodes are EPContext.
        binary: what it loads, in the same folder.
        bytes: of the binary.
        nodes: of the source graph that it holds, as the runtime's own optimizer left them.
        soc: the SoC it was compiled for, such as ``SC8380XP (60, v73)``; empty for that of the
            machine itself.
        seconds: wall time of everything.
        equal: in a fresh process its outputs were those of the uncompiled session, bit for bit;
            ``None`` where no feeds were given.
        note: what else must be known, as sentences; empty when nothing.
    """

    context: Path
    binary: Path
    bytes: int
    nodes: int
    soc: str
    seconds: float
    equal: bool | None
    note: str
