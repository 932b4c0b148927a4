"""An audit of a device on the terminal."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.text import Text

from rewriter.audit.on_device import FILES, Departure, DeviceAudit
from rewriter.parity.outputs import OutputParity
from rewriter.report.clean import printable

_MOST = 5
"""Names in a line."""
_OUTPUTS = 10
"""Outputs that are listed, the worst first."""


def show_device_audit(found: DeviceAudit, folder: Path | None, console: Console) -> None:
    """Print how far a device is from ONNX Runtime's CPU, and where that begins.

    Args:
        found: the audit.
        folder: where the part that shows it lies, if it was written.
        console: of results.
    """

    def line(text: str, style: str = "") -> None:
        console.print(Text(printable(text), style=style))

    line(f"{found.runtime}, {found.on_cpu} node(s) on the CPU", "bold")
    shown = sorted(found.outputs, key=lambda output: (output.ok, -_size(output)))
    for output in shown[:_OUTPUTS]:
        line(f"  {output.name}: {_figures(output)}", "green" if output.ok else "red")
    if len(shown) > _OUTPUTS:
        rest = "are within their bounds" if shown[_OUTPUTS].ok else "are more"
        line(f"  and {len(shown) - _OUTPUTS} outputs {rest}")
    line(f"  over {len(found.scenarios)} runs: {'; '.join(found.scenarios)}")
    if found.ok:
        line("the device computes what ONNX Runtime does", "bold green")
        return
    if found.departure is None:
        line("the device departs, and where cannot be said: no value before can be seen", "red")
    else:
        for text in _told(found, found.departure):
            line(text, "red")
    if found.note:
        line(f"  {found.note}", "yellow")
    if folder is not None and found.departure is not None:
        line(f"  written to {folder}: what makes it, with inputs ({', '.join(FILES)})")
    line("the device computes another function", "bold red")


def _told(found: DeviceAudit, departure: Departure) -> list[str]:
    rule, source = departure.rule, departure.source
    built = f", built by the rule {rule} for '{source}'" if rule else ""
    alone = departure.alone
    verdict = (
        "these nodes alone are right on the device: errors before them have added up"
        if alone.ok
        else f"these nodes alone are wrong on the device: {_figures(alone)}"
    )
    asked = f"{found.asked} inner values were looked at"
    return [
        f"  departs at: the value '{departure.value}', {_figures(departure.parity)}; {asked}",
        f"    made by: {departure.op} '{departure.node}'{built}",
        f"    of values that agree: {_names(departure.agreed)}",
        f"    through the nodes: {_names(departure.nodes)}",
        f"    {verdict}",
    ]


def _size(output: OutputParity) -> float:
    return output.error.max_std if output.error is not None else float("inf")


def _figures(output: OutputParity) -> str:
    if output.error is None:
        return output.note
    bound = output.bound
    most = f"{output.tolerance:.1e}" if bound is None else f"{bound.largest:.1e}, {bound.rms:.1e}"
    return f"{output.error.max_std:.1e} of std, rms {output.error.rms_std:.1e} (at most {most})"


def _names(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return (", ".join(names[:_MOST]) or "constants alone") + more
