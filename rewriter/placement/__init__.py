"""Where the nodes of a model land on the real runtime, and why."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rewriter.errors import RuntimeFault
from rewriter.placement import openvino, ort_cpu, qnn
from rewriter.placement.model import Feeds, Placement
from rewriter.placement.qnn import emulated

__all__ = ["Placement", "emulated", "place", "placeable"]

_PLACES = {"openvino": openvino.place, "ort-cpu": ort_cpu.place, "qnn": qnn.place}


def placeable(ep: str) -> bool:
    """Whether there is a way to ask an EP's runtime."""
    return ep in _PLACES


def place(
    model: Path,
    *,
    ep: str,
    options: Mapping[str, str],
    python: Path | None = None,
    time_limit: float = 600,
    feeds: Feeds = (),
) -> Placement:
    """Place a model on the installed runtime of a target, and run it where feeds are given.

    Args:
        model: the ONNX file, external data beside it.
        ep: the target's EP.
        options: provider options, which win over the ones that we set (the SoC of QNN's emulator,
            OpenVINO's exact arithmetic); for ``ort-cpu``, whose provider has none, session
            configuration entries.
        python: the interpreter whose runtime is used; this one when None.
        time_limit: seconds for everything together.
        feeds: inputs to run; what the outputs must be close to is the caller's knowledge.

    Raises:
        RuntimeFault: the runtime is missing, fails, crashes, or exceeds time or memory.
    """
    if not placeable(ep):
        raise RuntimeFault("missing", f"placement for {ep} is not built yet: use --no-place")
    return _PLACES[ep](model, options, python, time_limit, feeds)
