"""The report as JSON; the names are a contract (README, "The report")."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rewriter.errors import BadInput
from rewriter.outcome import GraphOutcome, Outcome, Parity
from rewriter.parity.compare import Error
from rewriter.parity.model import OutputParity
from rewriter.placement import Placement


def as_data(outcome: Outcome) -> dict[str, Any]:
    """The whole report, ready for JSON."""
    target = outcome.target
    return {
        "model": outcome.model,
        "target": {
            "ep": target.ep,
            "version": target.version,
            "extrapolated": target.extrapolated_from,
            "options": dict(target.options),
        },
        "exit": int(outcome.exit()),
        "output": outcome.output,
        "seconds": outcome.seconds,
        "bytes": {
            "weights_before": outcome.weights_before,
            "weights_after": outcome.weights_after,
        },
        "graphs": [_graph(graph) for graph in outcome.graphs],
    }


def write_report(outcome: Outcome, path: Path) -> None:
    """Write the report file.

    Raises:
        BadInput: it cannot be written.
    """
    text = json.dumps(as_data(outcome), indent=1, allow_nan=False)
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise BadInput(f"--report {path}: cannot be written: {error.strerror}") from None


def _graph(graph: GraphOutcome) -> dict[str, Any]:
    report = graph.report
    return {
        "phase": graph.phase,
        "file": graph.file,
        "dims": {
            "fixed": graph.dims.fixed,
            "derived": {k: v for k, (v, _) in graph.dims.derived.items()},
        },
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
        "parity": None if graph.parity is None else _parity(graph.parity),
        "placement": None if graph.placement is None else _placement(graph.placement),
        "disagreement": graph.fault or None,
        "notes": graph.notes,
    }


def _figures(error: Error | None) -> dict[str, float | None]:
    names = ("max_abs", "max_rel", "max_std", "rms_std")
    return {name: None if error is None else _finite(getattr(error, name)) for name in names}


def _finite(value: float) -> float | None:
    return value if abs(value) != float("inf") else None


def _output(output: OutputParity) -> dict[str, Any]:
    return {
        "name": output.name,
        **_figures(output.error),
        "tolerance": output.tolerance,
        "ok": output.ok,
        "note": output.note,
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
            }
            for site in parity.sites
        ],
        "model": model
        and {
            "outputs": [_output(output) for output in model.outputs],
            "ok": model.ok,
            "note": model.note,
            "scenarios": list(model.scenarios),
            "settings": model.settings,
            "default_drift": model.default_drift,
        },
        "device": None
        if device is None
        else {
            "outputs": [_output(output) for output in device],
            "ok": all(output.ok for output in device),
        },
    }


def _placement(placement: Placement) -> dict[str, Any]:
    return {
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
