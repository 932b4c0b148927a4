"""An audit on the terminal."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.text import Text

from rewriter.audit import Audit, Drift, Dump
from rewriter.audit.dump import FILES
from rewriter.report.clean import printable


def show_audit(found: Audit, written: Dump | None, folder: Path | None, console: Console) -> None:
    """Print how far the outputs are apart, and where that begins.

    Args:
        found: the audit.
        written: the part that was written, if one was.
        folder: where it lies now.
        console: of results.
    """

    def line(text: str, style: str = "") -> None:
        console.print(Text(printable(text), style=style))

    for output in found.outputs:
        figure = f"{output.error.max_std:.1e} of std" if output.error else output.note
        style = "green" if output.ok else "red"
        line(f"  {output.name}: {figure} (at most {output.tolerance:.0e})", style)
    line(f"  over {len(found.scenarios)} runs: {'; '.join(found.scenarios)}")
    if found.ok:
        line("the two models are one function", "bold green")
        return
    if found.drift is None:
        line(
            f"the models differ, and where it begins cannot be said: the {found.compared} inner "
            "values that both compute under one name agree",
            "bold red",
        )
        return
    for text in _told(found, found.drift):
        line(text, "red")
    if written is not None:
        before, after = written.nodes
        line(
            f"  written to {folder}: {before} node(s) of the original, {after} of the result, "
            f"with inputs; they differ by {written.error.max_std:.1e} of std ({', '.join(FILES)})"
        )
    line("the result is not the same function", "bold red")


def _told(found: Audit, drift: Drift) -> list[str]:
    built = f"built by the rule {drift.rule} for '{drift.source}'" if drift.rule else "no rule's"
    agreed = ", ".join(drift.agreed) or "constants alone"
    figure = f"{drift.error.max_std:.1e} of std (at most {drift.tolerance:.0e})"
    return [
        f"  first drift: the value '{drift.value}' is off by {figure}; {len(found.good)} agree",
        f"    original: {drift.op} '{drift.node}'",
        f"    result:   {drift.result_op}, {built}",
        f"    made of values that agree: {agreed}",
    ]
