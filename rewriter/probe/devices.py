"""Where a device, as others saw it, and the table part: judged on the cases that we measure by."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass

from capabilities import Target, Verdict, target
from capabilities.devices import DEVICES, device_rows
from rewriter.probe.case import chosen

_APART = {(Verdict.LEGAL, Verdict.ILLEGAL), (Verdict.ILLEGAL, Verdict.LEGAL)}


@dataclass(frozen=True, slots=True)
class Parting:
    """Types of an op on which they part.

    Attributes:
        op: the op.
        dtypes: the words of the types, in the order of the cases.
        forms: what the cases are about, in words.
        table: the table's verdict at the newest version, and the form of its row.
        device: the device's verdict, and why.
    """

    op: str
    dtypes: tuple[str, ...]
    forms: tuple[str, ...]
    table: tuple[Verdict, str]
    device: tuple[Verdict, str]


def partings(ep: str, device: str) -> list[Parting]:
    """What a device and the newest version of an EP say otherwise, sorted by op.

    That is what the table calls legal and no model compiled of, and what it calls illegal though
    all did; ``wrong`` is about numbers, which nobody compared on the device. Units between
    DequantizeLinear and QuantizeLinear are left out: nothing says in which types those of the
    device were quantized.
    """
    found: dict[tuple[str, tuple[Verdict, str], tuple[Verdict, str]], list[tuple[str, str]]] = {}
    for op, dtype, what, table, said in _judged(ep, device):
        if (table[0], said[0]) in _APART and not (said[0] is Verdict.LEGAL and said[1]):
            found.setdefault((op, table, said), []).append((dtype, what))
    return [
        Parting(
            op,
            tuple(dict.fromkeys(dtype for dtype, _ in cases)),
            tuple(dict.fromkeys(what for _, what in cases)),
            table,
            said,
        )
        for (op, table, said), cases in sorted(found.items())
    ]


def _judged(
    ep: str, device: str
) -> Iterator[tuple[str, str, str, tuple[Verdict, str], tuple[Verdict, str]]]:
    on = target(ep)
    rows = device_rows(ep, device)
    there = Target(ep, on.version, rows)
    known = {row.op for row in rows}
    for case in chosen(ep, quick=False):
        if case.op not in known or case.options:
            continue
        facts = case.built().facts(on)
        if facts.activations not in {"", "float"}:
            continue
        measured, reported = on.judge(facts), there.judge(facts)
        if Verdict.UNKNOWN not in {measured.verdict, reported.verdict}:
            yield (
                case.op,
                case.dtype,
                case.what,
                (measured.verdict, measured.form),
                (reported.verdict, reported.why),
            )


def known_devices(ep: str) -> Iterator[str]:
    """Devices of an EP that something was seen on."""
    return (device for device in DEVICES.get(ep, ()) if device_rows(ep, device))


def markdown(ep: str, device: str, ops: Container[str]) -> str:
    """The section of the page ``capabilities/README.md`` on a device, about some ops."""
    what = {"qnn": "emulator"}.get(ep, "CPU")
    head = ["op", "types", "forms", f"table ({what})", device]
    lines = [head, ["---"] * len(head)]
    for one in (one for one in partings(ep, device) if one.op in ops):
        table = f"{one.table[0]} [{one.table[1]}]"
        lines.append(
            [
                one.op,
                ", ".join(one.dtypes),
                "; ".join(one.forms),
                table,
                one.device[1] or "compiled",
            ]
        )
    rows = "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)
    return f"### {ep}: where the {device} and the table part\n\n{_SEEN}\n\n{rows}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


_SEEN = (
    "What others saw compile for the device (`devices/`, where the source is named), against the "
    "newest version of the table. `--device` adds it to what a target knows: it decides where "
    "nothing was measured, and is a doubt elsewhere."
)
