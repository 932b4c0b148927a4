"""What a rule is, the registry that indexes rules by op, and how a rule refuses.

A lowering rule is one typed function: it gets a :class:`~rewriter.tape.Tape` to build on and the
:class:`~rewriter.site.Site` it is asked about, and returns the values that stand for the node's
outputs, in the schema's order, or raises :class:`Refusal`::

    @lowers("com.acme::Square", emits=("Mul",))
    def square(op: Tape, site: Site) -> ir.Value:
        \"\"\"y = x * x.\"\"\"
        x = site.input("x")
        return op.Mul(x, x)

A fusion is the same with a pattern of several nodes in onnxscript's notation, and runs in an
earlier phase. Third parties register theirs through the entry point group ``rewriter.rules``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import onnx_ir as ir

from capabilities import Facts, Form
from capabilities.plugins import load_plugins
from rewriter.site import Refusal, Site
from rewriter.tape import Tape

__all__ = ["Build", "Emit", "Refusal", "Registry", "Rule", "fuses", "lowers", "registry"]

Build = Callable[[Tape, Site], "ir.Value | Sequence[ir.Value | None]"]


@dataclass(frozen=True, slots=True)
class Emit:
    """An op that a rule may build, in which form."""

    op: str
    form: Form

    @classmethod
    def parse(cls, text: str) -> Emit:
        """From ``Op`` or ``Op[form]``."""
        op, _, form = text.partition("[")
        return cls(op, Form(form.removesuffix("]") or "any"))

    def __str__(self) -> str:
        return self.op if str(self.form) == "any" else f"{self.op}[{self.form}]"

    def covers(self, facts: Facts) -> bool:
        """Whether a node that was built is within this declaration."""
        return facts.op == self.op and self.form.holds(facts)


@dataclass(frozen=True, slots=True)
class Rule:
    """One way to replace one op (or one pattern) by others.

    Attributes:
        name: what it becomes, unique; shown in reports and taken by ``--disable``.
        op: the op it replaces; for a fusion, the op of the pattern's last node.
        form: which units of the op it takes.
        emits: everything it may build.
        build: the function.
        tolerance: largest error of a site against the original, relative to the largest
            reference value, in the model's own precision on ORT CPU.
        order: lower is tried first among the rules of one op.
        opset: lowest ai.onnx opset at which what it builds exists.
        free: it is exact and costs nothing, so it also takes forms that are only in doubt.
        needed: for a fusion: it stays away where the target takes the pattern as it is.
        pattern: for a fusion, the pattern as a function over onnxscript's pattern builder.
        source: module and line where it is defined.
        direct: it is one of several ways, taken only where all that it builds is legal at once.
    """

    name: str
    op: str
    form: Form
    emits: tuple[Emit, ...]
    build: Build
    tolerance: float
    order: int
    opset: int
    free: bool
    needed: bool
    pattern: Callable[..., Any] | None
    source: str
    direct: bool = False

    @property
    def about(self) -> str:
        """First line of the function's docstring."""
        return (self.build.__doc__ or "").strip().partition("\n")[0]

    def has_in_pattern(self, op: str) -> bool:
        """Whether a fusion's pattern has an op, by its type."""
        return self.pattern is not None and op.rpartition("::")[2] in self.pattern.__code__.co_names


class Registry:
    """Rules indexed by op, in the order they are tried."""

    def __init__(self) -> None:
        self._lowering: dict[str, list[Rule]] = {}
        self._fusing: dict[str, list[Rule]] = {}
        self._names: dict[str, Rule] = {}

    def add(self, rule: Rule) -> None:
        """Register a rule.

        Raises:
            ValueError: the name is taken, or another rule takes the same (op, form) and neither
                declares that it comes first.
        """
        if rule.name in self._names:
            raise ValueError(
                f"two rules are named '{rule.name}': {rule.source}, {self._names[rule.name].source}"
            )
        index = self._fusing if rule.pattern else self._lowering
        rules = index.setdefault(rule.op, [])
        for other in rules:
            if other.order == rule.order and _overlap(other.form, rule.form):
                raise ValueError(
                    f"rules '{other.name}' and '{rule.name}' both take {rule.op} [{rule.form}]; "
                    "give one of them an order"
                )
        self._names[rule.name] = rule
        rules.append(rule)
        rules.sort(key=lambda r: (r.order, r.name))

    def lowering(self, op: str) -> Sequence[Rule]:
        """Rules that lower an op."""
        return self._lowering.get(op, ())

    def fusing(self, op: str) -> Sequence[Rule]:
        """Fusions whose pattern ends in an op."""
        return self._fusing.get(op, ())

    def raising(self, op: str) -> list[Rule]:
        """Fusions that have an op in their pattern."""
        return [
            rule for rules in self._fusing.values() for rule in rules if rule.has_in_pattern(op)
        ]

    def __iter__(self) -> Iterator[Rule]:
        return iter(sorted(self._names.values(), key=lambda r: (r.op, r.order, r.name)))

    def __contains__(self, name: object) -> bool:
        return name in self._names


def _overlap(one: Form, other: Form) -> bool:
    texts = {str(one), str(other)}
    return "any" in texts or len(texts) == 1


_BUILTIN = Registry()


def _decorator(
    registry: Registry | None, op: str, pattern: Callable[..., Any] | None, **given: Any
) -> Callable[[Build], Build]:
    def register(build: Build) -> Build:
        rule = Rule(
            name=given["name"] or build.__name__,
            op=op,
            form=Form(given["form"]),
            emits=tuple(Emit.parse(text) for text in given["emits"]),
            build=build,
            tolerance=given["tolerance"],
            order=given["order"],
            opset=given["opset"],
            free=given.get("free", False),
            direct=given.get("direct", False),
            needed=given.get("needed", False),
            pattern=pattern,
            source=f"{build.__module__}:{build.__code__.co_firstlineno}",
        )
        (registry or _BUILTIN).add(rule)
        return build

    return register


def lowers(
    op: str,
    *,
    emits: Sequence[str],
    form: str = "any",
    tolerance: float = 1e-5,
    order: int = 0,
    opset: int = 1,
    free: bool = False,
    direct: bool = False,
    name: str = "",
    into: Registry | None = None,
) -> Callable[[Build], Build]:
    """Register a function as the rule that lowers ``op`` in a form; see :class:`Rule`."""
    return _decorator(
        into,
        op,
        None,
        emits=emits,
        form=form,
        tolerance=tolerance,
        order=order,
        opset=opset,
        free=free,
        direct=direct,
        name=name,
    )


def fuses(
    op: str,
    *,
    pattern: Callable[..., Any],
    emits: Sequence[str],
    tolerance: float = 1e-5,
    order: int = 0,
    opset: int = 1,
    needed: bool = False,
    name: str = "",
    into: Registry | None = None,
) -> Callable[[Build], Build]:
    """Register a function as a fusion of ``pattern``, which ends in a node of ``op``."""
    return _decorator(
        into,
        op,
        pattern,
        emits=emits,
        form="any",
        tolerance=tolerance,
        order=order,
        opset=opset,
        needed=needed,
        name=name,
    )


@cache
def registry() -> Registry:
    """Every rule there is: ours and those of installed packages.

    Raises:
        BadPlugin: such a package cannot be imported.
    """
    import_module("rewriter.rules")  # by name: rules stand on this file
    load_plugins("rewriter.rules")
    return _BUILTIN
