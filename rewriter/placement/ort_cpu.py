"""ONNX Runtime's own CPU kernels: every node is at home, or no session is created."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from rewriter.placement.model import Feeds, Placement
from rewriter.runtime import child


def place(
    model: Path,
    options: Mapping[str, str],
    python: Path | None,
    time_limit: float,
    feeds: Feeds,
) -> Placement:
    """Place a model on the CPU provider; ``options`` are session configuration entries."""
    began = time.monotonic()
    job = child.Job(model, config=options, optimize=True, feeds=feeds, assignment=True)
    result = child.run(job, python=python, time_limit=time_limit)
    return Placement(
        runtime=f"onnxruntime {result.versions['onnxruntime']}",
        on_ep=sum(len(part.nodes) for part in result.assignment),
        on_cpu=0,
        cpu_ops={},
        cpu_nodes=[],
        reasons={},
        partitions=1,
        outputs=result.outputs,
        seconds=time.monotonic() - began,
        full=True,
    )
