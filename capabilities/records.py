"""The measured records that rows point to: ``evidence/<ep>.tsv``.

A line is a record at one version, or at several joined by ``,`` that said the same.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from capabilities.model import Row


@dataclass(frozen=True, slots=True)
class Record:
    """One measurement: a small model on one version of a runtime.

    Attributes:
        name: what was run: case, form and dtype joined by ``|``.
        version: of the runtime.
        verdict: ``HTP``, ``OK`` (placed and right), ``CPU``, ``MIX``, ``SPLIT`` (placed, but torn
            from its neighbours into a partition of its own), ``*_ERROR``, ``*-WRONG`` ...
        max_rel: largest error over the largest reference value, as text; empty if it did not run.
        note: which ops ran where, the runtime's own reason, the error.
    """

    name: str
    version: str
    verdict: str
    max_rel: str
    note: str


@cache
def records(ep: str) -> Mapping[str, Mapping[str, Record]]:
    """Records of an EP by name and version; empty for an EP that nothing was measured of."""
    table = files("capabilities") / "evidence" / f"{ep}.tsv"
    if not table.is_file():
        return {}
    lines = [line for line in table.read_text(encoding="utf-8").splitlines() if line[0] != "#"]
    found: dict[str, dict[str, Record]] = {}
    for row in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE):
        of_name = found.setdefault(row["record"], {})
        for version in row["version"].split(","):
            of_name[version] = Record(
                row["record"], version, row["verdict"], row["max_rel"], row["note"]
            )
    return found


def evidence_of(row: Row, ep: str, version: str) -> list[Record]:
    """The records a row rests on at a version, the largest error first."""
    known = records(ep)
    names = (e.removeprefix("measured:") for e in row.evidence if e.startswith("measured:"))
    found = [known[n][version] for n in names if version in known.get(n, {})]
    return sorted(found, key=lambda record: -float(record.max_rel or 0))
