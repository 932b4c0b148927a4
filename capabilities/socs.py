"""The SoCs whose NPU a compiler knows: ``provider/<ep>-socs.tsv``.

QNN's emulator does not refuse a number it does not know: it puts the whole graph on the CPU and
says nothing. So a SoC is looked up here before anything is compiled for it.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files

from capabilities.versions import VersionRange, parse_version


class UnknownSoc(LookupError):
    """A SoC that no compiler knows, or not the one of this version; the message lists them."""


@dataclass(frozen=True, slots=True)
class Soc:
    """One SoC.

    Attributes:
        id: what the provider option ``soc_model`` takes.
        chip: its name, as the compiler calls it.
        htp_arch: version of its Hexagon tensor processor.
        vtcm_mb: memory of that processor, in MB.
        float16: it computes in float16; without, floats are only emulated.
        versions: of the EP whose compiler knows it.
    """

    id: int
    chip: str
    htp_arch: int
    vtcm_mb: int
    float16: bool
    versions: VersionRange

    def __str__(self) -> str:
        return f"{self.chip} ({self.id}, v{self.htp_arch})"


@cache
def socs(ep: str) -> tuple[Soc, ...]:
    """Every SoC of an EP, by id; empty for an EP that is not compiled for one."""
    table = files("capabilities") / "provider" / f"{ep}-socs.tsv"
    if not table.is_file():
        return ()
    lines = [line for line in table.read_text(encoding="utf-8").splitlines() if line[0] != "#"]
    return tuple(
        Soc(
            int(row["id"]),
            row["chip"],
            int(row["htp_arch"]),
            int(row["vtcm_mb"]),
            row["float16"] == "yes",
            VersionRange(row["versions"]),
        )
        for row in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    )


def soc(ep: str, name: str, version: str | None = None) -> Soc:
    """A SoC by its id or by the name of its chip.

    Args:
        ep: the EP it is looked up for.
        name: such as ``60``, ``SC8380XP`` or ``sc8380xp``.
        version: of the EP, whose compiler has to know it; any when None.

    Raises:
        UnknownSoc: there is none.
    """
    known = [s for s in socs(ep) if version is None or parse_version(version) in s.versions]
    wanted = name.strip().lower()
    for one in known:
        if wanted in {str(one.id), one.chip.lower()}:
            return one
    if not socs(ep):
        raise UnknownSoc(f"{ep} is not compiled for a SoC")
    later = [s for s in socs(ep) if wanted in {str(s.id), s.chip.lower()}]
    if later:
        raise UnknownSoc(f"{later[0]} is known to {ep} {later[0].versions.text}, not to {version}")
    near = get_close_matches(wanted.upper(), [s.chip for s in known], n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    raise UnknownSoc(
        f"{ep} knows no SoC '{name}'{hint}; known: {', '.join(f'{s.id} {s.chip}' for s in known)}"
    )
