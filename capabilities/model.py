"""What the table is made of: rows, verdicts, targets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache

from capabilities.facts import Facts
from capabilities.forms import Form
from capabilities.versions import VersionRange


class Verdict(StrEnum):
    """What an EP does with a unit. Worse verdicts win where several rows hold."""

    LEGAL = "legal"
    UNKNOWN = "unknown"
    ILLEGAL = "illegal"
    WRONG = "wrong"
    """Claimed by the EP, and computed wrong."""


_SEVERITY = {Verdict.LEGAL: 0, Verdict.ILLEGAL: 1, Verdict.WRONG: 2}


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    Attributes:
        op: ``domain::Type``, ``domain::*`` or ``*``.
        form: which units of the op it is about.
        verdict: legal, illegal or wrong.
        versions: EP versions it holds for.
        why: one sentence for the person who meets it; see also :attr:`caveat`.
        evidence: ``measured:ID``, ``reported:SOURCE`` or ``declared:SOURCE`` each.
    """

    op: str
    form: Form
    verdict: Verdict
    versions: VersionRange
    why: str
    evidence: tuple[str, ...]

    @property
    def caveat(self) -> str:
        """What a report has to say of every unit that stays as it is: a why ``report: ...``."""
        prefix = "report: "
        return self.why.removeprefix(prefix) if self.why.startswith(prefix) else ""

    @property
    def kind(self) -> str:
        """The strongest kind of its evidence: ``measured``, ``declared`` or ``reported``."""
        return _strongest(self.evidence)

    def holds(self, facts: Facts) -> bool:
        """Whether this row is about the unit."""
        return self.form.holds(facts)

    def __str__(self) -> str:
        return f"{self.op} [{self.form}] {self.verdict}: {self.why}"


@cache
def _strongest(evidence: tuple[str, ...]) -> str:
    kinds = {source.partition(":")[0] for source in evidence}
    return next((k for k in ("measured", "declared", "reported") if k in kinds), "reported")


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict with the row it rests on (no row: unknown).

    Attributes:
        verdict: what holds.
        row: why.
        doubts: reports of others that say worse; they never overrule a measurement.
    """

    verdict: Verdict
    row: Row | None = None
    doubts: tuple[Row, ...] = ()

    @property
    def form(self) -> str:
        """The form that decided, as printed."""
        return str(self.row.form) if self.row else "any"

    @property
    def why(self) -> str:
        """The reason to show a person."""
        return self.row.why if self.row else "no row of the table speaks of this form"


@dataclass(frozen=True)
class Target:
    """An EP at a version: its rows, and what else decides on rewriting for it.

    Attributes:
        ep: ``qnn``, ``openvino``, ...
        version: as asked for.
        rows: rows that hold at this version, in the table's order.
        overrides: rows of the user; where one holds, the table is not asked.
        static_only: every dim has to be fixed before anything runs.
        opset: highest version of ai.onnx it takes; ``None`` for the model's own.
        options: provider options assumed.
        extrapolated_from: the measured version whose rows stand in, if this one was not measured.
    """

    ep: str
    version: str
    rows: tuple[Row, ...]
    overrides: tuple[Row, ...] = ()
    static_only: bool = False
    opset: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    extrapolated_from: str | None = None
    _index: dict[str, tuple[Row, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __str__(self) -> str:
        return f"{self.ep}@{self.version}" if self.version else self.ep

    def judge(self, facts: Facts) -> Judgement:
        """The verdict on a unit: the worst of the rows that hold, the user's rows first.

        Of two equally bad rows the one about the op itself is named, not a wildcard. Rows that
        stand on reports alone decide only where nothing was measured; else they are doubts.
        """
        for rows in (
            [row for row in self.overrides if _names(row.op, facts.op)],
            self.rows_of(facts.op),
        ):
            held = [row for row in rows if row.form.holds(facts)]
            if len(held) == 1:
                return Judgement(held[0].verdict, held[0])
            if held:
                firm = [row for row in held if row.kind != "reported"]
                worst = max(
                    firm or held, key=lambda row: (_SEVERITY[row.verdict], row.op == facts.op)
                )
                doubts = tuple(
                    row
                    for row in held
                    if row not in firm and _SEVERITY[row.verdict] > _SEVERITY[worst.verdict]
                )
                return Judgement(worst.verdict, worst, doubts)
        return Judgement(Verdict.UNKNOWN)

    def rows_of(self, op: str) -> tuple[Row, ...]:
        """Every row that can speak of the op, wildcards included."""
        if op not in self._index:
            self._index[op] = tuple(row for row in self.rows if _names(row.op, op))
        return self._index[op]

    def supports(self, op: str) -> bool:
        """The plain flag view: true only when every form of the op is legal."""
        verdicts = {r.verdict for r in self.rows_of(op) if r.op == op}
        everywhere = any(
            r.verdict is Verdict.LEGAL and str(r.form) == "any" for r in self.rows_of(op)
        )
        return everywhere and verdicts <= {Verdict.LEGAL}

    def __getattr__(self, name: str) -> bool:
        """``supports_rotary_embedding`` and the like, for code that wants flags.

        The flag speaks of the ai.onnx op where one has the name, as ``Attention`` does elsewhere.
        """
        if not name.startswith("supports_"):
            raise AttributeError(name)
        wanted = name.removeprefix("supports_").replace("_", "")
        ops = {r.op for r in self.rows if r.op.rpartition("::")[2].lower() == wanted}
        standard = {op for op in ops if "::" not in op}
        return bool(ops) and all(self.supports(op) for op in standard or ops)


def _names(pattern: str, op: str) -> bool:
    if pattern in {"*", op}:
        return True
    if not pattern.endswith("::*"):
        return False
    return (op.rpartition("::")[0] or "ai.onnx") == pattern.removesuffix("::*")
