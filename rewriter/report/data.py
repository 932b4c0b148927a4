"""The report as JSON; the names are a contract (README, "The report")."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from capabilities import Target
from rewriter.compiling.model import Compiled
from rewriter.outcome import GraphOutcome, Outcome, Parity, PartOutcome
from rewriter.parity.compare import Error
from rewriter.parity.outputs import Bound, InHalf, OutputParity
from rewriter.placement import Placement
from rewriter.record import MaskChange, MaskKept, Report
from rewriter.report.activations import activation_data, step_data
from rewriter.slices import Slice


def as_data(outcome: Outcome) -> dict[str, Any]:
    """The whole report, ready for JSON."""
    return {
        "model": outcome.model,
        "target": target_data(outcome.target),
        "exit": int(outcome.exit()),
        "output": outcome.output,
        "seconds": outcome.seconds,
        "bytes": {
            "weights_before": outcome.weights_before,
            "weights_after": outcome.weights_after,
        },
        "weights": [asdict(kind) for kind in outcome.weights],
        "weight_errors": [asdict(error) for error in outcome.weight_errors],
        "graphs": [_graph(graph) for graph in outcome.graphs],
    }


def target_data(target: Target) -> dict[str, Any]:
    """A target for JSON."""
    return {
        "ep": target.ep,
        "version": target.version,
        "extrapolated": target.extrapolated_from,
        "options": dict(target.options),
    }


def as_json(outcome: Outcome) -> str:
    """The whole report as the text of a JSON file."""
    return as_text("model", as_data(outcome)) + "\n"


SCHEMA = 1
"""Of all that is printed as JSON; raised where a name goes or means something else."""


def as_text(command: str, data: Mapping[str, Any]) -> str:
    """What a subcommand found, as one JSON object.

    Args:
        command: the subcommand.
        data: what it found, by name; a number that JSON does not have becomes null.
    """
    whole = {"schema": SCHEMA, "command": command, **data}
    return json.dumps(finite(whole), indent=1, allow_nan=False)


def finite(data: Any) -> Any:
    """The same data with ``None`` for every number that JSON does not have."""
    if isinstance(data, dict):
        return {str(key): finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


def _graph(graph: GraphOutcome) -> dict[str, Any]:
    report = graph.report
    return {
        "phase": graph.phase,
        "role": graph.role,
        "file": graph.file,
        "dims": {
            "fixed": graph.dims.fixed,
            "derived": {k: v for k, (v, _) in graph.dims.derived.items()},
        },
        **plan_data(report),
        "masks": [asdict(mask) | _old(mask) for mask in report.masks],
        "masks_kept": [asdict(mask) | _old(mask) for mask in report.masks_kept],
        "parity": None if graph.parity is None else _parity(graph.parity),
        "placement": None if graph.placement is None else _placement(graph.placement, graph.part),
        "parts": [_part(part) for part in graph.parts],
        "compiled": [_compiled(made) for made in graph.compiled],
        "quantized": [asdict(weight) for weight in graph.quantized],
        "traffic": graph.traffic
        and {**asdict(graph.traffic), "bytes_per_token": graph.traffic.per_token},
        "activations": activation_data(graph.activations),
        "disagreement": graph.fault or None,
        "notes": graph.notes,
    }


def plan_data(report: Report) -> dict[str, Any]:
    """What the engine did, or would do, and what stays."""
    return {
        "folded": report.folded,
        "ops_before": dict(sorted(report.ops_before.items())),
        "ops_after": dict(sorted(report.ops_after.items())),
        "rules": [
            {"rule": rule, "op": op, "sites": sites}
            for (rule, op), sites in sorted(report.sites().items())
        ],
        "stuck": [
            {
                "node": node.node,
                "op": node.op,
                "form": node.form,
                "why": node.why,
                "tried": [{"rule": t.rule, "refused": t.reason} for t in node.tried],
            }
            for node in report.stuck
        ],
        "unknown": [{"node": node, "op": op} for node, op in report.unknown],
    }


def _part(part: PartOutcome) -> dict[str, Any]:
    placed = None if part.placement is None else _placement(part.placement, None)
    return {"file": part.file, **asdict(part.cut), "placement": placed}


def _compiled(made: Compiled) -> dict[str, Any]:
    files = {"context": made.context.name, "binary": made.binary.name}
    return {**asdict(made), **files}


def _old(mask: MaskChange | MaskKept) -> dict[str, Any]:
    """The number a mask held; JSON has no -inf, which is a word then."""
    return {} if math.isfinite(mask.old) else {"old": str(mask.old)}


def _figures(error: Error | None) -> dict[str, float | None]:
    names = ("max_abs", "max_rel", "max_std", "rms_std")
    return {name: None if error is None else getattr(error, name) for name in names}


def _output(output: OutputParity) -> dict[str, Any]:
    return {
        "name": output.name,
        **_figures(output.error),
        "tolerance": output.tolerance,
        "ok": output.ok,
        "note": output.note,
    }


def _half(half: InHalf | None) -> dict[str, Any] | None:
    """Both sides in the half-precision type of the original, against it in float32."""
    if half is None:
        return None
    return {
        "type": half.dtype,
        "original": half.original and _figures(half.original),
        "result": half.result and _figures(half.result),
        "tolerance": half.tolerance,
        "ok": half.ok,
        "note": half.note,
    }


def _bound(bound: Bound | None) -> dict[str, Any] | None:
    """What an output of a device was held to."""
    if bound is None:
        return None
    return {
        "max_std": bound.largest,
        "rms_std": bound.rms,
        "estimate": bound.estimate and _figures(bound.estimate),
    }


def _parity(parity: Parity) -> dict[str, Any]:
    model, device = parity.model, parity.device
    return {
        "sites": [
            {
                "rule": site.rule,
                "signature": site.signature,
                "count": site.count,
                **_figures(site.error),
                "tolerance": site.tolerance,
                "ok": site.ok,
                "note": site.note,
                "half": _half(site.half),
            }
            for site in parity.sites
        ],
        "model": model
        and {
            "outputs": [_output(one) | {"half": _half(one.half)} for one in model.outputs],
            "reference": model.reference,
            "ok": model.ok,
            "slice": model.part and dict(zip(("nodes", "of"), model.part, strict=True)),
            "note": model.note,
            "scenarios": list(model.scenarios),
            "settings": model.settings,
            "default_drift": model.default_drift,
        },
        "device": None
        if device is None
        else {
            "outputs": [_output(one) | {"bound": _bound(one.bound)} for one in device],
            "ok": all(output.ok for output in device),
        },
        "device_quantized": step_data(parity.steps),
    }


def _placement(placement: Placement, part: Slice | None) -> dict[str, Any]:
    return {
        "slice": part and {"nodes": part.nodes, "of": part.of},
        "runtime": placement.runtime,
        "on_ep": placement.on_ep,
        "on_cpu": placement.on_cpu,
        "cpu_ops": dict(placement.cpu_ops),
        "cpu_nodes": [list(node) for node in placement.cpu_nodes],
        "reasons": dict(placement.reasons),
        "partitions": placement.partitions,
        "full": placement.full,
        "note": placement.note,
    }
