"""The provider options that an EP reads: ``provider/<ep>-options.tsv``.

QNN's provider takes any name, and says nothing of one that it does not read; values that it cannot
read it skips. So a slip would pass for a setting.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files

from capabilities.versions import VersionRange, parse_version

_ANY = frozenset({"text", "path", "soc"})


class BadOption(ValueError):
    """An option that the provider does not read, not at this version, or not with this value."""


@dataclass(frozen=True, slots=True)
class Option:
    """One provider option.

    Attributes:
        name: as the provider reads it.
        value: the values it takes, joined by ``|``, or ``number``, ``text``, ``path``, ``soc``.
        versions: of the EP that read it.
        changes: what it changes in a result: ``numbers``, ``placement`` or ``device``; nothing
            but time, memory and files when empty.
        about: one line.
    """

    name: str
    value: str
    versions: VersionRange
    changes: str
    about: str

    def takes(self, value: str) -> bool:
        """Whether the provider can read a value."""
        if self.value == "number":
            return value.isdecimal()
        return value != "" if self.value in _ANY else value in self.value.split("|")


@cache
def options(ep: str) -> tuple[Option, ...]:
    """Every option of an EP; empty for an EP whose runtime checks them itself."""
    table = files("capabilities") / "provider" / f"{ep}-options.tsv"
    if not table.is_file():
        return ()
    lines = [line for line in table.read_text(encoding="utf-8").splitlines() if line[0] != "#"]
    return tuple(
        Option(
            row["option"],
            row["value"],
            VersionRange(row["versions"]),
            row["changes"],
            row["about"],
        )
        for row in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    )


def option(ep: str, name: str, value: str, version: str) -> Option | None:
    """An option, if the provider reads it with this value.

    Args:
        ep: name of the EP.
        name: of the option.
        value: of it.
        version: of the EP.

    Returns:
        The option; nothing for an EP whose runtime checks them itself.

    Raises:
        BadOption: the provider would ignore it.
    """
    known = options(ep)
    if not known:
        return None
    found = next((o for o in known if o.name == name), None)
    if found is None:
        near = get_close_matches(name, [o.name for o in known], n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        names = ", ".join(o.name for o in known if parse_version(version) in o.versions)
        raise BadOption(f"{ep} reads no such option{hint}; it reads {names}")
    if parse_version(version) not in found.versions:
        raise BadOption(f"{ep} {version} does not read it, only {found.versions.text} does")
    if not found.takes(value):
        raise BadOption(f"'{value}' is no value of it: {found.value.replace('|', ', ')}")
    return found
