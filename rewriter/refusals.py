"""What a rule refuses, read from its own source: the reasons it can give."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from functools import cache
from types import ModuleType

from rewriter.rule import Rule

_GIVES_REASON = {"refuse": 0, "require": 1}
"""Methods of a site, and which argument is the reason."""


def refusals_of(rule: Rule) -> list[str]:
    """Reasons in the rule's function and the functions of its module that it calls, in order.

    A value that is filled in shows as its expression in braces.
    """
    module = inspect.getmodule(rule.build)
    if module is None:
        return []
    functions = _functions(module)
    waiting, seen = [rule.build.__name__], set[str]()
    reasons: dict[str, None] = {}
    while waiting:
        name = waiting.pop(0)
        if name in seen or name not in functions:
            continue
        seen.add(name)
        for call in (n for n in ast.walk(functions[name]) if isinstance(n, ast.Call)):
            reasons.update(dict.fromkeys(_reason(call)))
            if isinstance(call.func, ast.Name):
                waiting.append(call.func.id)
    return list(reasons)


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
