"""The report on the terminal: what changed, is it the same function, where will it run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rewriter.outcome import Exit, GraphOutcome, Outcome, Parity
from rewriter.parity.compare import Error
from rewriter.record import Report

_STYLE = {True: "bold green", False: "bold red"}
_MEANING = {
    Exit.GOOD: "every node is legal, parity is good",
    Exit.STUCK: "nodes are left that cannot be shown to run",
    Exit.PARITY: "the result is not the same function; nothing was written",
    Exit.DISAGREE: "the table and the runtime disagree; please report this",
}
_MOST = 20


def show(outcome: Outcome, console: Console) -> None:
    """Print the report of a run."""
    for graph in outcome.graphs:
        show_plan(graph.report, console)
        _dims(graph, console)
        if graph.parity is not None:
            _parity(graph.parity, console)
        _placement(graph, console)
        for note in graph.notes:
            console.print(Text(f"  note: {note}", style="yellow"))
    before, after = outcome.weights_before, outcome.weights_after
    console.print(f"  weights     {before:,} bytes before, {after:,} after", highlight=False)
    code = outcome.exit()
    where = f"; written to {outcome.output}" if outcome.output else ""
    style = _STYLE[code is Exit.GOOD]
    console.print(Text(f"{_MEANING[code]}{where} (exit {int(code)})", style=style))


def show_plan(report: Report, console: Console) -> None:
    """Print what the engine did, or would do, and what stays behind."""
    target = report.target
    title = f"{target}"
    if target.extrapolated_from:
        title += f" (not measured: extrapolated from {target.extrapolated_from})"
    console.print(Text(title, style="bold"))
    rules = report.sites()
    if rules:
        table = Table(box=None, pad_edge=False, padding=(0, 2))
        for column in ("  rule", "op", "sites"):
            table.add_column(column, justify="right" if column == "sites" else "left")
        for (rule, op), sites in sorted(rules.items(), key=lambda item: -item[1]):
            table.add_row(f"  {rule}", op, str(sites))
        console.print(table)
    else:
        console.print("  nothing to change")
    for line in _op_lines(report.ops_before, report.ops_after):
        console.print(Text(f"  {line}"))
    for node in report.stuck[:_MOST]:
        console.print(Text(f"  stuck: {node.op} '{node.node}' [{node.form}]: {node.why}", "red"))
        for tried in node.tried:
            console.print(Text(f"         {tried.rule} refused: {tried.reason}", style="red"))
        if not node.tried:
            console.print(Text("         no rule lowers it", style="red"))
    if len(report.stuck) > _MOST:
        console.print(Text(f"  ... and {len(report.stuck) - _MOST} more stuck nodes", "red"))
    for op, count in sorted(Counter(op for _, op in report.unknown).items()):
        console.print(Text(f"  unknown: {op} x {count}: the table has no row for it", "yellow"))


def _op_lines(before: Counter[str], after: Counter[str]) -> Iterator[str]:
    gone = [f"{op} {before[op]}→{after[op]}" for op in sorted(before) if after[op] < before[op]]
    new = [f"{op} {before[op]}→{after[op]}" for op in sorted(after) if after[op] > before[op]]
    yield f"nodes       {before.total()} before, {after.total()} after"
    if gone:
        yield "fewer       " + ", ".join(gone)
    if new:
        yield "more        " + ", ".join(new)


def _dims(graph: GraphOutcome, console: Console) -> None:
    dims = graph.dims
    words = [f"{k}={v}" for k, v in dims.fixed.items()]
    words += [f"{k}={v} (from {how})" for k, (v, how) in dims.derived.items()]
    if words:
        console.print(Text("  dims        " + ", ".join(words)))


def _figure(error: Error | None) -> str:
    return "not comparable" if error is None else f"{error.max_std:.1e} of std"


def _parity(parity: Parity, console: Console) -> None:
    if parity.sites:
        bad = [site for site in parity.sites if not site.ok]
        worst = max((s.error.max_rel for s in parity.sites if s.error), default=0.0)
        text = f"  sites       {len(parity.sites)} kinds compared, worst {worst:.1e} of max"
        console.print(Text(text, style=_STYLE[not bad]))
        for site in bad:
            found = site.note or f"{site.error.max_rel:.1e} > {site.tolerance:.1e}"  # type: ignore[union-attr]
            console.print(Text(f"    {site.rule}: {found}: {site.signature}", style="red"))
    if parity.model is not None:
        outputs, note = parity.model.outputs, parity.model.note
        rows = len(parity.model.scenarios)
        worst_output = max(
            outputs, key=lambda o: o.error.max_std if o.error else float("inf"), default=None
        )
        figure = note or (
            f"{worst_output.name} {_figure(worst_output.error)}" if worst_output else ""
        )
        text = f"  model       {len(outputs)} outputs, {rows} runs, worst: {figure}"
        console.print(Text(text, style=_STYLE[parity.model.ok]))
        for output in outputs:
            if not output.ok:
                found = output.note or f"{_figure(output.error)} > {output.tolerance:.1e}"
                console.print(Text(f"    {output.name}: {found}", style="red"))
        if parity.model.default_drift is not None:
            drift = f"{parity.model.default_drift:.1e}"
            console.print(
                Text(
                    f"              at ORT's default options they differ by {drift} of std",
                    style="dim",
                )
            )
    if parity.device is not None:
        first = parity.device[0]
        good = all(output.ok for output in parity.device)
        rms = f", rms {first.error.rms_std:.1e}" if first.error else ""
        text = f"  device      {first.name} {_figure(first.error)}{rms} from exact arithmetic"
        console.print(Text(text, style=_STYLE[good]))


def _placement(graph: GraphOutcome, console: Console) -> None:
    placement = graph.placement
    if graph.fault:
        console.print(Text(f"  placement   the runtime failed: {graph.fault}", style="bold red"))
    if placement is None:
        return
    text = (
        f"  placement   {placement.on_ep} nodes on the EP, {placement.on_cpu} on the CPU, "
        f"{placement.partitions} partition(s); {placement.runtime}"
    )
    console.print(Text(text, style=_STYLE[placement.full]))
    if placement.note:
        console.print(Text(f"              {placement.note}", style="yellow"))
    for name, op in list(placement.cpu_nodes)[:_MOST]:
        reason = placement.reasons.get(name, "the runtime gives no reason")
        console.print(Text(f"    CPU: {op} '{name}': {reason}", style="red"))
