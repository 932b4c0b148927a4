"""What others saw compile for a device, ``devices/<ep>-<device>.tsv``, and the rows it makes.

It is the only evidence from silicon, and it says nothing of numbers. So its rows are of the kind
``reported``: they decide where nothing was measured, and are doubts where they say worse.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from capabilities.forms import Form
from capabilities.model import Row, Verdict
from capabilities.versions import VersionRange

DEVICES = {"qnn": ("NPU",), "openvino": ("CPU", "GPU", "NPU")}
"""Devices of an EP. OpenVINO's CPU is what its table was measured on, and adds nothing."""
_SOURCE = "reported:winml-cli 0.4.0"
_EVERY = VersionRange("*")


@dataclass(frozen=True, slots=True)
class Seen:
    """Single-op models of one type on a device, all of static shapes.

    Attributes:
        op: ``domain::Type``; ops of ai.onnx by type alone.
        opset: of the op's domain.
        form: ``float``, or ``qdq`` for an op between DequantizeLinear and QuantizeLinear.
        operand: the input that has the type, by the schema's name.
        dtype: ONNX element type in lower case; empty where it was not told.
        ranks: by the highest rank among the inputs, how many models compiled of how many.
    """

    op: str
    opset: int
    form: str
    operand: str
    dtype: str
    ranks: Mapping[int, tuple[int, int]]

    @property
    def highest(self) -> int | None:
        """The highest rank at which one compiled; ``None`` where none did."""
        return max((rank for rank, (compiled, _) in self.ranks.items() if compiled), default=None)


@cache
def seen(ep: str, device: str) -> tuple[Seen, ...]:
    """What was seen on a device; empty for one that nothing is known of."""
    table = files("capabilities") / "devices" / f"{ep}-{device.lower()}.tsv"
    if not table.is_file():
        return ()
    lines = [line for line in table.read_text(encoding="utf-8").splitlines() if line[0] != "#"]
    return tuple(_seen(*line.split("\t")) for line in lines[1:])


def _seen(op: str, opset: str, form: str, operand: str, dtype: str, ranks: str) -> Seen:
    counted = {}
    for part in ranks.split():
        rank, _, counts = part.partition(":")
        compiled, _, tried = counts.partition("/")
        counted[int(rank)] = int(compiled), int(tried)
    return Seen(op, int(opset), form, operand, dtype, counted)


@cache
def device_rows(ep: str, device: str) -> tuple[Row, ...]:
    """The rows that it makes, for types that flow as they are; sorted by op.

    A type compiles up to the highest rank at which a model of it did. Which of the other models
    failed, and at what, the counts do not tell.
    """
    by_op: dict[str, list[Seen]] = {}
    for one in seen(ep, device):
        if one.form == "float" and one.operand and one.dtype:
            by_op.setdefault(one.op, []).append(one)
    return tuple(row for op in sorted(by_op) for row in _rows(op, by_op[op], device))


def _rows(op: str, found: list[Seen], device: str) -> Iterator[Row]:
    alike: dict[int | None, list[Seen]] = {}
    for one in found:
        alike.setdefault(one.highest, []).append(one)
    for highest, ones in alike.items():
        types = "/".join(one.dtype for one in ones)
        typed = f"{ones[0].operand} dtype {types}"
        evidence = (f"{_SOURCE}, {device}",)
        if highest is None:
            tried = sum(count for one in ones for _, count in one.ranks.values())
            why = f"{device}: compiled in none of {tried} models"
            yield Row(op, Form(typed), Verdict.ILLEGAL, _EVERY, why, evidence)
            continue
        compiled, tried = (
            sum(one.ranks[rank][i] for one in ones for rank in one.ranks if rank <= highest)
            for i in (0, 1)
        )
        why = f"report: {device}: {compiled} of {tried} models compiled" if compiled < tried else ""
        yield Row(op, Form(f"{typed} & not dynamic"), Verdict.LEGAL, _EVERY, why, evidence)
        if highest < max(rank for one in ones for rank in one.ranks):
            form = Form(f"{typed} & {ones[0].operand} rank > {highest}")
            why = f"{device}: compiled at no rank above {highest}"
            yield Row(op, form, Verdict.ILLEGAL, _EVERY, why, evidence)
