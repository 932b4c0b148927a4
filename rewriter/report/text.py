"""The report on the terminal: what changed, is it the same function, where will it run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from rewriter.outcome import Exit, GraphOutcome, Outcome, Parity
from rewriter.parity.compare import Error
from rewriter.record import Report
from rewriter.report.clean import printable

_STYLE = {True: "bold green", False: "bold red"}
_MOST = 20


def show(outcome: Outcome, console: Console) -> None:
    """Print the report of a run."""
    for graph in outcome.graphs:
        show_plan(graph.report, console)
        _dims(graph, console)
        if graph.parity is not None:
            _parity(graph.parity, console)
        _placement(graph, console)
        show_notes(graph.notes, console)
    before, after = outcome.weights_before, outcome.weights_after
    _line(console, f"  weights     {before:,} bytes before, {after:,} after")
    code = outcome.exit()
    where = f"written to {outcome.output}" if outcome.output else "nothing was written"
    style = _STYLE[code is Exit.GOOD]
    _line(console, f"{_meaning(outcome)}; {where} (exit {int(code)})", style=style)


def show_notes(notes: Sequence[str], console: Console) -> None:
    """Print what a person should know besides."""
    for note in notes:
        _line(console, f"  note: {note}", style="yellow")


def _line(console: Console, text: str, style: str = "") -> None:
    """Print one line, whatever the names in it hold."""
    console.print(Text(printable(text), style=style))


def _meaning(outcome: Outcome) -> str:
    """The exit code in words, with no claim that was not checked."""
    code, graphs = outcome.exit(), outcome.graphs
    if code is Exit.STUCK:
        accept = " (--allow-stuck accepts them)" if any(g.report.stuck for g in graphs) else ""
        return f"nodes are left that cannot be shown to run{accept}"
    if code is Exit.DISAGREE:
        return "the table and the runtime disagree; please report this"
    if code is Exit.PARITY:
        if any(g.parity is not None and g.parity.wrong for g in graphs):
            return "the result is not the same function"
        return "it could not be shown that the result is the same function"
    proof = "parity is good" if all(g.parity is not None for g in graphs) else "parity not checked"
    left = sum(len(g.report.stuck) + len(g.unplaced()) for g in graphs)
    return f"{f'{left} node(s) left as they were' if left else 'every node is legal'}, {proof}"


def show_plan(report: Report, console: Console) -> None:
    """Print what the engine did, or would do, and what stays behind."""
    target = report.target
    title = f"{target}"
    if target.extrapolated_from:
        title += f" (not measured: extrapolated from {target.extrapolated_from})"
    _line(console, title, style="bold")
    rules = report.sites()
    for line in _rule_lines(rules) if rules else ("nothing to change",):
        _line(console, f"  {line}")
    arrow = "→" if console.encoding.startswith("utf") else "->"
    for line in _op_lines(report.ops_before, report.ops_after, arrow):
        _line(console, f"  {line}")
    for node in report.stuck[:_MOST]:
        _line(console, f"  stuck: {node.op} '{node.node}' [{node.form}]: {node.why}", "red")
        for tried in node.tried:
            _line(console, f"         {tried.rule} refused: {tried.reason}", style="red")
        if not node.tried:
            _line(console, "         no rule lowers it", style="red")
    if len(report.stuck) > _MOST:
        _line(console, f"  ... and {len(report.stuck) - _MOST} more stuck nodes", "red")
    for op, count in sorted(Counter(op for _, op in report.unknown).items()):
        _line(console, f"  unknown: {op} x {count}: the table has no row for it", "yellow")


def _rule_lines(rules: Counter[tuple[str, str]]) -> Iterator[str]:
    """A table that is never cut to the width of a terminal: names are there to be copied."""
    rows = [("rule", "op", "sites")]
    rows += [(rule, op, str(n)) for (rule, op), n in sorted(rules.items(), key=lambda i: -i[1])]
    first, second, third = (max(len(row[column]) for row in rows) for column in range(3))
    for rule, op, sites in rows:
        yield f"{rule:{first}}  {op:{second}}  {sites:>{third}}"


def _op_lines(before: Counter[str], after: Counter[str], arrow: str) -> Iterator[str]:
    changed = {op: f"{op} {before[op]}{arrow}{after[op]}" for op in sorted({*before, *after})}
    gone = [text for op, text in changed.items() if after[op] < before[op]]
    new = [text for op, text in changed.items() if after[op] > before[op]]
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
        _line(console, "  dims        " + ", ".join(words))


def _figure(error: Error | None) -> str:
    return "not comparable" if error is None else f"{error.max_std:.1e} of std"


def _parity(parity: Parity, console: Console) -> None:
    if parity.sites:
        bad = [site for site in parity.sites if not site.ok]
        worst = max((s.error.max_rel for s in parity.sites if s.error), default=0.0)
        text = f"  sites       {len(parity.sites)} kinds compared, worst {worst:.1e} of max"
        _line(console, text, style=_STYLE[not bad])
        for site in bad:
            found = site.note or f"{site.error.max_rel:.1e} > {site.tolerance:.1e}"  # type: ignore[union-attr]
            _line(console, f"    {site.rule}: {found}: {site.signature}", style="red")
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
        _line(console, text, style=_STYLE[parity.model.ok])
        for output in outputs:
            if not output.ok:
                found = output.note or f"{_figure(output.error)} > {output.tolerance:.1e}"
                _line(console, f"    {output.name}: {found}", style="red")
        if parity.model.default_drift is not None:
            drift = f"{parity.model.default_drift:.1e}"
            _line(
                console,
                f"              at ORT's default options they differ by {drift} of std",
                style="dim",
            )
    if parity.device is not None:
        first = parity.device[0]
        good = all(output.ok for output in parity.device)
        rms = f", rms {first.error.rms_std:.1e}" if first.error else ""
        text = f"  device      {first.name} {_figure(first.error)}{rms} from exact arithmetic"
        _line(console, text, style=_STYLE[good])


def _placement(graph: GraphOutcome, console: Console) -> None:
    placement = graph.placement
    if graph.fault:
        _line(console, f"  placement   the runtime failed: {graph.fault}", style="bold red")
    if placement is None:
        return
    text = (
        f"  placement   {placement.on_ep} nodes on the EP, {placement.on_cpu} on the CPU, "
        f"{placement.partitions} partition(s); {placement.runtime}"
    )
    _line(console, text, style=_STYLE[placement.full])
    if graph.part is not None:
        _line(console, f"              placed: {graph.part}", style="yellow")
    if placement.note:
        _line(console, f"              {placement.note}", style="yellow")
    for name, op in list(placement.cpu_nodes)[:_MOST]:
        reason = placement.reasons.get(name, "the runtime gives no reason")
        _line(console, f"    CPU: {op} '{name}': {reason}", style="red")
