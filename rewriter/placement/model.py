"""What placing a model found out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rewriter.runtime import child

Feeds = Sequence[Mapping[str, np.ndarray[Any, Any]]]


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a model's nodes run: as ONNX Runtime partitioned them after its own optimizer, or as
    the file has them where the runtime takes it whole or not at all (OpenVINO).

    Attributes:
        runtime: the runtime and its versions, with the SoC where it is emulated.
        on_ep: nodes the target's provider took.
        on_cpu: nodes left to the CPU; 0 for a target that is the CPU.
        cpu_ops: op -> how many of the nodes left to the CPU.
        cpu_nodes: (name, op) of each node left to the CPU.
        reasons: node name -> why the provider refused it.
        partitions: how many times the model enters the provider.
        outputs: one dict of arrays for each feed.
        seconds: wall time, the child processes included.
        full: no node is left to the CPU, proven by a session that allows nothing else.
        note: what else must be known to read the numbers; empty when nothing is.
    """

    runtime: str
    on_ep: int
    on_cpu: int
    cpu_ops: Mapping[str, int]
    cpu_nodes: Sequence[tuple[str, str]]
    reasons: Mapping[str, str]
    partitions: int
    outputs: list[child.Arrays]
    seconds: float
    full: bool
    note: str = ""
