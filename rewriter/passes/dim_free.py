"""Dims that stay free, and what to propose for each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from rewriter.errors import BadInput
from rewriter.passes.dim_fit import rotary_rows
from rewriter.passes.dim_names import ROLES

_ENCODER_TOKENS = 128
"""Tokens to propose where there is no cache, so that a call holds a whole text."""


@dataclass(frozen=True, slots=True)
class FreeDim:
    """A dim that nobody gave and nothing determines.

    Attributes:
        name: what to call it in ``--dim``: its role, or its symbol where it has none.
        where: the first place it stands at.
        meaning: what it is, in words.
        proposal: a value that fits the others; ``None`` if it follows from theirs.
    """

    name: str
    where: str
    meaning: str
    proposal: int | None


class FreeDims(BadInput):
    """Dims are free and the target runs fixed shapes only; the message lists each.

    Attributes:
        free: the dims.
        command: a command line that fixes them, if whoever asks has one.
        generating: one that makes graphs which generate text, where the model is such a one.
    """

    def __init__(self, ep: str, free: Iterable[FreeDim]) -> None:
        super().__init__(f"{ep} runs fixed shapes only, and these dims are free:")
        self.free = tuple(free)
        self.command = self.generating = ""

    def lines(self) -> list[str]:
        """The message, which is one line per dim."""
        listed = [f"  {d.name}: {d.where}; {d.meaning}" for d in self.free]
        sizes = {d.name: d.proposal for d in self.free}
        past, seq = sizes.get("past"), sizes.get("seq")
        if self.command and past is not None and seq is not None:
            listed.append(f"(past + seq is {past + seq} in the example)")
        if self.generating:
            listed.append(f"to generate text, give the cache a size: {self.generating}")
        example = [f"for example: {self.command}"] if self.command else []
        return [*map(str, self.args), *listed, *example]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def words(self) -> list[str]:
        """Options that fix all of them, with the values proposed."""
        words: list[str] = []
        for dim in self.free:
            if dim.proposal is not None:
                words += ["--dim", f"{dim.name}={dim.proposal}"]
        return words


def free_dims(
    model: ir.Model,
    known: Mapping[str, int],
    places: Mapping[str, list[tuple[str, int]]],
    roles: Mapping[str, str],
) -> list[FreeDim]:
    """What is left when some symbols have values."""
    free = [symbol for symbol in places if symbol not in known]
    proposals = _proposals(model, known, roles)
    names = {s: _name(s, roles) for s in free}
    return [
        FreeDim(
            names[symbol],
            f"{places[symbol][0][0]}, axis {places[symbol][0][1]}",
            ROLES[roles[symbol]][0] if symbol in roles else "not known to this tool",
            _proposal(symbol, roles, proposals),
        )
        for symbol in free
    ]


def _name(symbol: str, roles: Mapping[str, str]) -> str:
    """The role, unless two symbols share it."""
    role = roles.get(symbol, "")
    return role if list(roles.values()).count(role) == 1 else symbol


def _proposal(
    symbol: str, roles: Mapping[str, str], proposals: Mapping[str, int | None]
) -> int | None:
    if "+" in symbol:
        return None  # its terms are dims of their own
    return proposals.get(roles.get(symbol, ""), 1)


def _proposals(
    model: ir.Model, known: Mapping[str, int], roles: Mapping[str, str]
) -> dict[str, int | None]:
    """A value for each role that fits the dims that are known, and the rotary table."""
    values: dict[str, int | None] = {role: value for role, (_, value) in ROLES.items()}
    given = {roles[symbol]: value for symbol, value in known.items() if symbol in roles}
    rows = rotary_rows(model)
    longest = rows[0] if rows else None
    if "past" in roles.values():
        seq = given.get("seq", 1)
        if longest is not None:
            values["past"] = max(min(ROLES["past"][1], longest - seq), 0)
        values["total"] = None  # past + seq
    else:
        values["seq"] = given.get("total", min(_ENCODER_TOKENS, longest or _ENCODER_TOKENS))
        values["total"] = given.get("seq", values["seq"])
    return values
