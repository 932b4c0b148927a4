"""OpenVINO: its reader takes a file whole or not at all, and names the ops it cannot translate."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import onnx_ir as ir

from rewriter.placement.model import Feeds, Placement
from rewriter.runtime import child
from rewriter.runtime.log import label, sentence
from rewriter.runtime.versions import installed

# The reader's words until 2025.4 and since 2026.2; the latter write an op's version behind it.
_UNKNOWN = re.compile(
    r"(?:does not support the following ONNX operations|No conversion rule found for operations): "
    r"(.+)"
)
_OP_VERSION = re.compile(r"-\d+$")
# A node by its type and its name or an output; what is wrong with it goes up to the next one.
_FAILED = re.compile(
    r"While validating ONNX node '<Node\((\S+)\): (.*?)>':"
    r"(.*?)(?=While validating ONNX node|^Check '.*' failed at|^-- |^Summary:|\Z)",
    re.DOTALL | re.MULTILINE,
)
_NO_RULE = "OpenVINO's reader does not know the op"
_NOTE = "OpenVINO refuses the whole file because of these nodes: no node of it runs"


def place(
    model: Path,
    options: Mapping[str, str],
    python: Path | None,
    time_limit: float,
    feeds: Feeds,
) -> Placement:
    """Read and compile a model for the CPU plugin; ``options`` win over exact arithmetic."""
    began = time.monotonic()
    nodes = list(ir.traversal.RecursiveGraphIterator(ir.load(model).graph))
    job = child.Job(model, ep="openvino", provider_options=options, feeds=feeds)
    try:
        result = child.run(job, python=python, time_limit=time_limit)
    except child.Refused as refusal:
        reasons = _reasons(refusal.said, nodes)
        if not reasons:
            raise
        version = installed("openvino", python)
        return _refused(f"openvino {version}", nodes, reasons, time.monotonic() - began)
    arithmetic = options.get("INFERENCE_PRECISION_HINT", "f32")
    return Placement(
        runtime=f"openvino {result.versions['openvino']} (CPU plugin, {arithmetic})",
        on_ep=len(nodes),
        on_cpu=0,
        cpu_ops={},
        cpu_nodes=[],
        reasons={},
        partitions=1,
        outputs=result.outputs,
        seconds=time.monotonic() - began,
        full=True,
        note=", ".join(f"{name}={value}" for name, value in options.items()),
    )


def _refused(
    runtime: str, nodes: list[ir.Node], reasons: Mapping[ir.Node, str], seconds: float
) -> Placement:
    left = {node: (label(node.name or "", _op(node)), _op(node)) for node in reasons}
    return Placement(
        runtime=runtime,
        on_ep=len(nodes) - len(left),
        on_cpu=len(left),
        cpu_ops=dict(sorted(Counter(op for _, op in left.values()).items())),
        cpu_nodes=list(left.values()),
        reasons={left[node][0]: why for node, why in reasons.items()},
        partitions=0,
        outputs=[],
        seconds=seconds,
        full=False,
        note=_NOTE,
    )


def _reasons(said: str, nodes: Iterable[ir.Node]) -> dict[ir.Node, str]:
    """The nodes a refusal is about, in the file's order, and why."""
    unknown = {
        _OP_VERSION.sub("", op.strip()) for line in _UNKNOWN.findall(said) for op in line.split(",")
    }
    failed = {(op, name): sentence(why) for op, name, why in _FAILED.findall(said)}
    found = {}
    for node in nodes:
        if ".".join(filter(None, (node.domain, node.op_type))) in unknown:
            found[node] = _NO_RULE
            continue
        for name in (node.name, *(value.name for value in node.outputs)):
            if name and (node.op_type, name) in failed:
                found[node] = failed[node.op_type, name]
    return found


def _op(node: ir.Node) -> str:
    return f"{node.domain}::{node.op_type}" if node.domain else node.op_type
