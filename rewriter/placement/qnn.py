"""Where nodes land on QNN, and why.

A session that was created with ``session.disable_cpu_ep_fallback`` is the proof that no node is
left to the CPU, so that comes first; only when it is refused, a second session is created that
records which nodes were left over, with QNN's reasons from the verbose log.
"""

from __future__ import annotations

import platform
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from rewriter.errors import RuntimeFault
from rewriter.placement.model import Feeds, Placement
from rewriter.runtime import child
from rewriter.runtime.log import label

# The emulator needs a SoC: without one it computes in fp32 and hides every device error.
_EMULATED_SOC = {"soc_model": "60", "htp_arch": "73"}
_FP32_SOCS = frozenset({"0", "30"})
NO_FALLBACK = {"session.disable_cpu_ep_fallback": "1"}
"""Entry of a session that QNN has to take whole."""

_REFUSED_FALLBACK = "fallback to CPU EP has been explicitly disabled"
_CPU = "CPUExecutionProvider"


def place(
    model: Path,
    options: Mapping[str, str],
    python: Path | None,
    time_limit: float,
    feeds: Feeds,
) -> Placement:
    """Place a model on QNN; ``options`` win over the ones the emulator needs."""
    began = time.monotonic()
    settings = {**default_options(), **options}
    strict = child.Job(
        model,
        ep="qnn",
        provider_options=settings,
        config=NO_FALLBACK,
        optimize=True,
        feeds=feeds,
        assignment=True,
    )
    try:
        result, proven = child.run(strict, python=python, time_limit=time_limit), True
    except RuntimeFault as fault:
        if not refused_fallback(fault):
            raise
        lenient = replace(strict, config={}, verbose=True)
        left = max(time_limit - (time.monotonic() - began), 0)
        result, proven = child.run(lenient, python=python, time_limit=left), False
    return _placement(result, settings, proven=proven, seconds=time.monotonic() - began)


def _placement(
    result: child.Result, settings: Mapping[str, str], *, proven: bool, seconds: float
) -> Placement:
    taken = [part for part in result.assignment if part.ep != _CPU]
    left = [node for part in result.assignment if part.ep == _CPU for node in part.nodes]
    on_ep = sum(len(part.nodes) for part in taken)
    names = {label(node.name, node.op) for node in left}
    reasons = {name: why for name, why in result.reasons.items() if name in names}
    silent = on_ep == 0 and bool(left) and not reasons
    return Placement(
        runtime=_runtime(result.versions, settings),
        on_ep=on_ep,
        on_cpu=len(left),
        cpu_ops=dict(sorted(Counter(node.op for node in left).items())),
        cpu_nodes=[(label(node.name, node.op), node.op) for node in left],
        reasons=reasons,
        partitions=len(taken),
        outputs=result.outputs,
        seconds=seconds,
        full=proven and not left,
        note=_silent_note(result, settings) if silent else _arithmetic_note(settings),
    )


def default_options() -> dict[str, str]:
    """Provider options that a session needs here; none on a device."""
    return dict(_EMULATED_SOC) if emulated() else {}


def refused_fallback(fault: RuntimeFault) -> bool:
    """Whether a session with :data:`NO_FALLBACK` was refused because nodes would be left."""
    return _REFUSED_FALLBACK in str(fault)


def emulated() -> bool:
    """Whether QNN's libraries emulate the NPU here: the x86-64 Linux build always does."""
    return sys.platform == "linux" and platform.machine() == "x86_64"


def _runtime(versions: Mapping[str, str], settings: Mapping[str, str]) -> str:
    text = f"onnxruntime-qnn {versions['onnxruntime-qnn']} / onnxruntime {versions['onnxruntime']}"
    return f"{text} (emulated, soc {settings['soc_model']})" if emulated() else text


def _silent_note(result: child.Result, settings: Mapping[str, str]) -> str:
    """QNN drops the whole graph without an error when it cannot set up the device."""
    said = f": {result.errors[0]}" if result.errors else ""
    soc = (
        f"; is soc_model={settings['soc_model']} a SoC it knows?" if "soc_model" in settings else ""
    )
    return f"QNN took no node at all and gave no reason for any{said}{soc}"


def _arithmetic_note(settings: Mapping[str, str]) -> str:
    if emulated() and settings["soc_model"] in _FP32_SOCS:
        return (
            f"soc_model={settings['soc_model']} emulates fp32 arithmetic; the device computes "
            "in fp16, so these outputs are no evidence of its accuracy"
        )
    return ""
