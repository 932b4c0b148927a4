"""The report on the terminal: what changed, is it the same function, where will it run."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from rich.console import Console
from rich.text import Text

from rewriter.outcome import Exit, GraphOutcome, Outcome, Parity
from rewriter.parity.compare import Error
from rewriter.parity.model import ModelParity
from rewriter.parity.outputs import InHalf, OutputParity
from rewriter.parity.sites import SiteParity
from rewriter.record import Report, StuckNode
from rewriter.report.activations import activation_lines, step_lines
from rewriter.report.clean import printable
from rewriter.report.quantized import error_lines, storage_lines

_STYLE = {True: "bold green", False: "bold red"}
_JOINED = "\N{NO-BREAK SPACE}"
"""Stands between what may not be wrapped."""
_LINE = 100
"""Characters of a line of counts."""
_GROUPS = 6
"""Kinds of nodes, or outputs, that are listed: the story is to fit on a screen."""
_Key = TypeVar("_Key")


def show(outcome: Outcome, console: Console) -> None:
    """Print the report of a run."""
    for graph in outcome.graphs:
        if len(outcome.graphs) > 1:
            _line(console, f"{graph.phase} ({graph.role}):", style="bold")
        show_plan(graph.report, console)
        _dims(graph, console)
        _masks(graph.report, console)
        if graph.parity is not None:
            _parity(graph.parity, console)
        _placement(graph, console)
        _files(graph, console)
        for line in storage_lines(graph):
            _line(console, line)
        if graph.activations is not None:
            for line in activation_lines(graph.activations):
                _line(console, line)
        show_notes(graph.notes, console)
    for kind in outcome.weights:
        change = f"largest error {kind.error:.1e} of max" if kind.error else "exact"
        figures = f"{kind.bytes_in:,} bytes in, {kind.bytes_out:,} out"
        _line(console, f"  {kind.type:11} {kind.tensors} tensors, {figures}: {kind.form}, {change}")
    for line in error_lines(outcome.weight_errors):
        _line(console, line)
    before, after = outcome.weights_before, outcome.weights_after
    graph_bytes = "in the portable graph" if outcome.weights else "before"
    _line(console, f"  weights     {before:,} bytes {graph_bytes}, {after:,} after")
    code = outcome.exit()
    where = f"written to {outcome.output}" if outcome.output else "nothing was written"
    style = _STYLE[code is Exit.GOOD]
    _line(console, f"{meaning(outcome)}; {where} (exit {int(code)})", style=style)


def _files(graph: GraphOutcome, console: Console) -> None:
    """The files of a graph, where there are more than one."""
    for part in graph.parts:
        cut = part.cut
        handed = ", ".join(f"{v.name} {list(v.shape)}" for v in cut.hands) or "nothing"
        placed = part.placement
        where = "" if placed is None else f", {placed.on_ep} on {graph.report.target.ep}"
        _line(
            console,
            f"  part        {part.file}: {cut.nodes} nodes{where}, {cut.weights:,} bytes of "
            f"weights; hands on {handed}",
        )
    for made in graph.compiled:
        equal = {True: "bit-equal when loaded again", None: "not compared"}.get(made.equal, "")
        soc = f" for {made.soc}" if made.soc else ""
        _line(
            console,
            f"  compiled    {made.context.name}, {made.bytes:,} bytes of {made.binary.name}{soc}, "
            f"{equal}",
        )


def show_notes(notes: Sequence[str], console: Console) -> None:
    """Print what a person should know besides."""
    for note in notes:
        _line(console, f"  note: {note}", style="yellow")


def _line(console: Console, text: str, style: str = "") -> None:
    """Print one line, whatever the names in it hold."""
    console.print(Text(printable(text), style=style))


def meaning(outcome: Outcome) -> str:
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
    for line in _op_lines(report, arrow):
        _line(console, f"  {line}")
    for text in _stuck_lines(report.stuck):
        _line(console, f"  {text}", "red")
    for op, count in sorted(Counter(op for _, op in report.unknown).items()):
        _line(console, f"  unknown: {op} x {count}: the table has no row for it", "yellow")


def _stuck_lines(stuck: Sequence[StuckNode]) -> Iterator[str]:
    """What stays behind: nodes of one op for one reason are one line."""
    groups: dict[tuple[str, str, str, tuple[tuple[str, str], ...]], list[str]] = {}
    for node in stuck:
        tried = tuple((one.rule, one.reason) for one in node.tried)
        groups.setdefault((node.op, node.form, node.why, tried), []).append(node.node)
    for (op, form, why, tried), names in _first(groups):
        yield f"stuck: {op} {_named(names)} [{form}]: {why}"
        for rule, reason in tried:
            yield f"       {rule} refused: {reason}"
        if not tried:
            yield "       no rule lowers it"
    if len(groups) > _GROUPS:
        yield f"... and {len(groups) - _GROUPS} more kinds of stuck nodes; the report file has all"


def _first(groups: Mapping[_Key, list[str]]) -> list[tuple[_Key, list[str]]]:
    """The largest groups."""
    return sorted(groups.items(), key=lambda group: -len(group[1]))[:_GROUPS]


def _named(names: Sequence[str]) -> str:
    """A node by its name; of several the first, and how many there are."""
    return f"'{names[0]}'" + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def _rule_lines(rules: Counter[tuple[str, str]]) -> Iterator[str]:
    """A table that is never cut to the width of a terminal: names are there to be copied."""
    rows = [("rule", "op", "sites")]
    rows += [(rule, op, str(n)) for (rule, op), n in sorted(rules.items(), key=lambda i: -i[1])]
    first, second, third = (max(len(row[column]) for row in rows) for column in range(3))
    for rule, op, sites in rows:
        yield f"{rule:{first}}  {op:{second}}  {sites:>{third}}"


def _op_lines(report: Report, arrow: str) -> Iterator[str]:
    before, after = report.ops_before, report.ops_after
    changed = {
        op: f"{op}{_JOINED}{before[op]}{arrow}{after[op]}" for op in sorted({*before, *after})
    }
    gone = [text for op, text in changed.items() if after[op] < before[op]]
    new = [text for op, text in changed.items() if after[op] > before[op]]
    constant = f"; {report.folded} more were constant" if report.folded else ""
    yield f"nodes       {before.total()} before, {after.total()} after{constant}"
    for title, texts in (("fewer", gone), ("more", new)):
        if texts:
            for line in textwrap.wrap(  # op and counts stay together
                f"{title:12}" + ", ".join(texts),
                _LINE,
                subsequent_indent=" " * 12,
                break_long_words=False,
                break_on_hyphens=False,
            ):
                yield line.replace(_JOINED, " ")


def _dims(graph: GraphOutcome, console: Console) -> None:
    dims = graph.dims
    words = [f"{k}={v}" for k, v in dims.fixed.items()]
    words += [f"{k}={v} (from {how})" for k, (v, how) in dims.derived.items()]
    if words:
        _line(console, "  dims        " + ", ".join(words))


def _masks(report: Report, console: Console) -> None:
    """Mask values: old and new, with the nodes they act in; and those that were left."""
    arrow = "→" if console.encoding.startswith("utf") else "->"
    for old, new in dict.fromkeys((mask.old, mask.new) for mask in report.masks):
        found = [mask for mask in report.masks if (mask.old, mask.new) == (old, new)]
        sites = len({site for mask in found for site in mask.sites})
        what = f"{len(found)} constant(s), {sites} site(s)"
        _line(console, f"  mask value  {old:g} {arrow} {new:g}: {what}")
    for kept in report.masks_kept:
        text = f"  mask value  '{kept.value}' keeps {kept.old:g}: {kept.why}"
        _line(console, text, style="yellow")


def _figure(error: Error | None) -> str:
    return "not comparable" if error is None else f"{error.max_std:.1e} of std"


def _parity(parity: Parity, console: Console) -> None:
    if parity.sites:
        _sites(parity.sites, console)
    if parity.model is not None:
        _model(parity.model, console)
    if parity.device is not None:
        _device(parity.device, console)
    for text, good in step_lines(parity.steps) if parity.steps else ():
        _line(console, text, style=_STYLE[good])


def _sites(sites: Sequence[SiteParity], console: Console) -> None:
    bad = [site for site in sites if not site.ok]
    worst = max((s.error.max_rel for s in sites if s.error), default=0.0)
    kinds = "kind" if len(sites) == 1 else "kinds"
    text = f"  sites       {len(sites)} {kinds} compared, worst {worst:.1e} of max"
    _line(console, text, style=_STYLE[not bad])
    for site in bad[:_GROUPS]:
        _line(console, f"    {site.rule}: {_why_bad(site)}: {site.signature}", style="red")
    for note in sorted({site.note for site in sites if site.ok and site.note}):
        _line(console, f"              {note}", style="yellow")


def _why_bad(one: SiteParity | OutputParity) -> str:
    """What is beyond its tolerance, or why there is no figure."""
    error = one.error
    if error is None:
        return one.note or "not comparable"
    value, unit = (error.max_rel, "max") if isinstance(one, SiteParity) else (error.max_std, "std")
    half = one.half
    if value <= one.tolerance and half is not None:
        if half.result is None:
            return half.note
        value = half.result.max_rel if unit == "max" else half.result.max_std
        return f"{value:.1e} of {unit} > {half.tolerance:.1e} in {half.dtype}"
    return f"{value:.1e} of {unit} > {one.tolerance:.1e}"


def _model(model: ModelParity, console: Console) -> None:
    worst = max(
        model.outputs, key=lambda o: o.error.max_std if o.error else float("inf"), default=None
    )
    figure = model.note or (f"{worst.name} {_figure(worst.error)}" if worst else "")
    text = (
        f"  model       {len(model.outputs)} outputs, {len(model.scenarios)} runs, worst: {figure}"
    )
    _line(console, text, style=_STYLE[model.ok])
    bad = [output for output in model.outputs if not output.ok]
    for output in bad[:_GROUPS]:
        _line(console, f"    {output.name}: {_why_bad(output)}", style="red")
    if len(bad) > _GROUPS:
        _line(console, f"    and {len(bad) - _GROUPS} more outputs", style="red")
    if model.reference:
        _line(console, f"              compared with {model.reference}", style="dim")
    halves = [output.half for output in model.outputs if output.half is not None]
    if halves:
        _line(console, f"              {_in_half(halves)}", style="dim")
    if model.default_drift is not None:
        drift = f"at ORT's default options they differ by {model.default_drift:.1e} of std"
        _line(console, f"              {drift}", style="dim")


def _in_half(halves: Sequence[InHalf]) -> str:
    """Both sides in the type of the original, at the output where the result is worst."""
    worst = max(halves, key=lambda half: half.result.max_std if half.result else float("inf"))
    if worst.note:
        return worst.note
    return (
        f"in {worst.dtype}: original {_figure(worst.original)}, result {_figure(worst.result)} "
        f"(at most {worst.tolerance:.1e})"
    )


def _share(output: OutputParity) -> float:
    """How much of what it is allowed an output of a device takes."""
    error, bound = output.error, output.bound
    if error is None:
        return float("inf")
    if bound is None:
        return error.max_std / output.tolerance if output.tolerance else error.max_std
    return max(error.max_std / bound.largest, error.rms_std / bound.rms)


def _device(device: Sequence[OutputParity], console: Console) -> None:
    good = all(output.ok for output in device)
    worst = max(device, key=_share)
    others = [one for one in device if not one.ok and one is not worst]
    for output in (worst, *others[: _GROUPS // 2]):
        rms = f", rms {output.error.rms_std:.1e}" if output.error else ""
        text = f"  device      {output.name} {_figure(output.error)}{rms} from exact arithmetic"
        _line(console, text, style=_STYLE[good])
        bound = output.bound
        if bound is not None:
            why = "the fixed bound"
            if bound.estimate is not None:
                cost = f"{bound.estimate.max_std:.1e}, rms {bound.estimate.rms_std:.1e}"
                why = f"what its arithmetic is estimated to cost here: {cost}"
            held = f"held to {bound.largest:.1e}, rms {bound.rms:.1e}: {why}"
            _line(console, f"              {held}", style="dim")
        if output.note:
            _line(console, f"              {output.note}", style="yellow")
    if len(others) > _GROUPS // 2:
        more = f"{len(others) - _GROUPS // 2} more outputs are beyond what they are held to"
        _line(console, f"              and {more}", style="bold red")


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
    groups: dict[tuple[str, str], list[str]] = {}
    for name, op in placement.cpu_nodes:
        reason = placement.reasons.get(name, "the runtime gives no reason")
        groups.setdefault((op, reason), []).append(name)
    for (op, reason), names in _first(groups):
        _line(console, f"    CPU: {op} {_named(names)}: {reason}", style="red")
    if len(groups) > _GROUPS:
        _line(console, f"    and {len(groups) - _GROUPS} more kinds of nodes", style="red")
