"""Sessions that live in one child process as long as somebody asks them.

What :mod:`rewriter.runtime.child` is for one job, this is for many runs whose outputs are the
inputs of later ones: those stay in the child.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rewriter.runtime import log, process
from rewriter.runtime.child import Job, Partition, job_fields, partitions
from rewriter.runtime.served import Arrays, Served

SESSION_WORKER = Path(__file__).with_name("session_worker.py")


class Sessions(Served):
    """Sessions of one runtime; a context that starts the child and ends it, whatever happens.

    Args:
        ep: ``"cpu"``, ``"qnn"`` or ``"openvino"``.
        python: the interpreter whose runtime is used; this one when None.
        exact: without kernels that round activations.
        time_limit: seconds that one answer may take.
        memory_limit: bytes that the child may hold while it answers (Linux); None for any.

    Attributes:
        versions: distribution -> version, known once a session is open.
    """

    def __init__(
        self,
        ep: str,
        *,
        python: Path | None = None,
        exact: bool = True,
        time_limit: float = 600,
        memory_limit: int | None = None,
    ) -> None:
        super().__init__(
            SESSION_WORKER,
            ep,
            python=python,
            exact=exact,
            time_limit=time_limit,
            memory_limit=memory_limit,
        )
        self.versions: Mapping[str, str] = {}
        self._heard = 0

    def open(self, job: Job) -> int:
        """Create a session; returns its number.

        Raises:
            Refused: OpenVINO's reader does not translate the model.
            RuntimeFault: the runtime is missing, fails, crashes, or exceeds time or memory.
        """
        return self.place(job)[0]

    def place(self, job: Job) -> tuple[int, tuple[Partition, ...]]:
        """Create a session; its number, and the partitions where the job asks for them.

        Raises:
            Refused: OpenVINO's reader does not translate the model.
            RuntimeFault: the runtime is missing, fails, crashes, or exceeds time or memory.
        """
        head, _ = self.ask({"do": "open", "job": job_fields(job)})
        self.versions = head["versions"]
        return int(head["session"]), partitions(head["assignment"])

    def close(self, session: int) -> None:
        """Give up a session; the numbers of the others stay."""
        self.ask({"do": "close", "session": session})

    def said(self) -> log.Log:
        """What the runtime has logged since this was asked last."""
        start, self._heard = self._heard, (self._folder / "log").stat().st_size
        return process.seen(self._folder, start)

    def zeros(self, shapes: Mapping[str, tuple[Sequence[int], np.dtype[Any]]]) -> None:
        """Keep arrays of zeros in the child, by a key."""
        told = {key: (list(shape), dtype.str) for key, (shape, dtype) in shapes.items()}
        self.ask({"do": "zeros", "shapes": told})

    def keep(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Keep arrays in the child, by a key."""
        self.ask({"do": "keep"}, arrays)

    def kept(self, keys: Sequence[str]) -> Arrays:
        """What the child keeps."""
        return self.ask({"do": "give", "keys": list(keys)})[1]

    def run(
        self,
        session: int,
        feeds: Mapping[str, npt.NDArray[Any]],
        *,
        kept: Mapping[str, str],
        keep: Mapping[str, str],
        give: Sequence[str],
    ) -> Arrays:
        """Run a session.

        Args:
            session: its number.
            feeds: inputs by name.
            kept: inputs that the child has, name to key.
            keep: outputs that stay there, name to key.
            give: names of the outputs to return.

        Raises:
            RuntimeFault: the runtime fails, crashes, or exceeds time or memory.
        """
        head = {"do": "run", "session": session, "kept": dict(kept), "keep": dict(keep)}
        return self.ask({**head, "give": list(give)}, feeds)[1]
