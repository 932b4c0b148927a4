"""JSON with a value, a key or a branch that is not what it should be."""

from __future__ import annotations

import copy
from typing import Any

from tests.robust.values import FLOATS, INTEGERS, TEXTS, Rng, integer, pick, text

Place = tuple[Any, Any]
"""A container and the key or index in it."""


def mutated(rng: Rng, tree: Any) -> Any:
    """A copy with one to four changes."""
    made = {"": copy.deepcopy(tree)}
    for _ in range(int(rng.integers(1, 5))):
        places = list(_places(made))
        held, key = pick(rng, places)
        other, other_key = pick(rng, places)
        match int(rng.integers(6)):
            case 0 | 1:
                held[key] = _other(rng, held[key])
            case 2:
                held[key] = pick(rng, _STRANGE)()
            case 3 if key:
                del held[key]
            case 4:
                held[key] = copy.deepcopy(other[other_key])
            case _:
                if isinstance(held, dict) and key:
                    held[text(rng, str(key))] = held.pop(key)
                elif isinstance(held, list):
                    held.insert(key, copy.deepcopy(held[key]))
    return made.get("")


def _places(held: Any) -> list[Place]:
    found: list[Place] = []
    waiting = [held]
    while waiting:
        one = waiting.pop()
        keys: Any = list(one) if isinstance(one, dict) else range(len(one))
        for key in keys:
            found.append((one, key))
            if isinstance(one[key], dict | list) and len(found) < 20_000:
                waiting.append(one[key])
    return found


def _other(rng: Rng, value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return integer(rng, value)
    if isinstance(value, float):
        return pick(rng, FLOATS)
    if isinstance(value, str):
        return text(rng, value)
    if isinstance(value, list) and value:
        return value * int(pick(rng, (0, 2, 3, 50)))
    return pick(rng, _STRANGE)()


def _deep() -> Any:
    tree: Any = []
    for _ in range(600):
        tree = [tree]
    return tree


_STRANGE: tuple[Any, ...] = (
    lambda: None, lambda: True, list, dict, lambda: "", lambda: 1 << 70, lambda: -1.5,
    lambda: [[]], lambda: [None], lambda: {"": None}, _deep, lambda: list(INTEGERS),
    lambda: list(TEXTS[:9]), lambda: list(FLOATS), lambda: [1, "a"], lambda: float("nan"),
)  # fmt: skip
