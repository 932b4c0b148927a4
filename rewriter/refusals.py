"""What a rule refuses, read from its own source: the reasons it can give."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from functools import cache
from types import ModuleType

from rewriter.rule import Rule
from rewriter.rules import parts

_GIVES_REASON = {"refuse": 0, "require": 1}
"""Methods of a site, and which argument is the reason."""


def refusals_of(rule: Rule) -> list[str]:
    """Reasons in the rule's function and in the functions that it calls, in order.

    Followed are those of its own module and of the modules that rules share.

    A value that is filled in shows as its expression in braces.
    """
    module = inspect.getmodule(rule.build)
    if module is None:
        return []
    waiting, seen = [(module, rule.build.__name__)], set[tuple[ModuleType, str]]()
    reasons: dict[str, None] = {}
    while waiting:
        module, name = place = waiting.pop(0)
        if place in seen or name not in _functions(module):
            continue
        seen.add(place)
        for call in (n for n in ast.walk(_functions(module)[name]) if isinstance(n, ast.Call)):
            reasons.update(dict.fromkeys(_reason(call)))
            waiting += _called(module, call)
    return list(reasons)


def _called(module: ModuleType, call: ast.Call) -> Iterator[tuple[ModuleType, str]]:
    """Where a function is defined that is called by its name, or as one of a shared module."""
    if isinstance(call.func, ast.Name):
        function = getattr(module, call.func.id, None)
        home = inspect.getmodule(function) if inspect.isfunction(function) else None
        shared = home is not None and home.__name__.startswith(parts.__name__)
        yield home if home is not None and shared else module, call.func.id
    elif isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
        other = getattr(module, call.func.value.id, None)
        if isinstance(other, ModuleType) and other.__name__.startswith(parts.__name__):
            yield other, call.func.attr


@cache
def _functions(module: ModuleType) -> dict[str, ast.FunctionDef]:
    tree = ast.parse(inspect.getsource(module))
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def _reason(call: ast.Call) -> Iterator[str]:
    if not isinstance(call.func, ast.Attribute):
        return
    index = _GIVES_REASON.get(call.func.attr)
    if index is None or len(call.args) <= index:
        return
    text = call.args[index]
    if isinstance(text, ast.Constant):
        yield str(text.value)
    elif isinstance(text, ast.JoinedStr):
        yield "".join(
            str(part.value)
            if isinstance(part, ast.Constant)
            else "{" + ast.unparse(getattr(part, "value", part)) + "}"
            for part in text.values
        )
