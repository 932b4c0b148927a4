"""Rows of the report on a checkpoint's weights."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from rewriter.source import WeightKind


class Kept(NamedTuple):
    """What became of one tensor; the fields are those of :class:`~rewriter.source.WeightKind`."""

    type: str
    form: str
    bytes_in: int
    bytes_out: int
    error: float


def kinds_of(tensors: Iterable[Kept]) -> list[WeightKind]:
    """A row for each type and form."""
    rows: dict[tuple[str, str], list[Kept]] = {}
    for one in tensors:
        rows.setdefault((one.type, one.form), []).append(one)
    return [
        WeightKind(
            kind,
            form,
            len(kept),
            sum(one.bytes_in for one in kept),
            sum(one.bytes_out for one in kept),
            max(one.error for one in kept),
        )
        for (kind, form), kept in sorted(rows.items())
    ]
