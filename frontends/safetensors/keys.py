"""``config.json`` asked by key: what is missing is named, and so is what nobody asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from frontends.decoder.keys import Keys, short
from frontends.safetensors.idle import IDLE, NEUTRAL
from rewriter.errors import BadInput


class Config(Keys):
    """Keys of one model, or of a part of it; a key that is ``null`` is not there.

    Args:
        path: of the file, for messages.
        values: the keys.
        where: what names of keys start with in messages.
        defaults: of keys that a class of transformers does not always write.
    """

    def __init__(
        self,
        path: Path,
        values: Mapping[str, Any],
        where: str = "",
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        self.path = path
        self._values = {**(defaults or {}), **{k: v for k, v in values.items() if v is not None}}
        self._where = where
        self._asked: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def get(self, name: str, default: Any = None) -> Any:
        """A value, or what stands for it."""
        self._asked.add(name)
        return self._values.get(name, default)

    def full(self, name: str) -> str:
        """A key with those above it."""
        return f"{self._where}{name}"

    def flag(self, name: str, default: bool) -> bool:
        """A key that says yes or no.

        Raises:
            BadInput: it says something else.
        """
        value = self.get(name, default)
        if not isinstance(value, bool):
            raise self.wrong(name, "neither true nor false")
        return value

    def listed(self, name: str, count: int | None, kind: type | tuple[type, ...]) -> list[Any]:
        """A list of values of a kind.

        Raises:
            BadInput: it is none, or not of that length.
        """
        value = self.needed(name)
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise self.wrong(name, "no list")
        if not all(isinstance(one, kind) and not isinstance(one, bool) for one in value):
            raise self.wrong(name, "a list of other things than it should hold")
        if count is not None and len(value) != count:
            raise self.wrong(name, f"a list of {len(value)} where there should be {count}")
        return list(value)

    def part(self, name: str, defaults: Mapping[str, Any] | None = None) -> Config:
        """Keys below a key, none if it is not there.

        Raises:
            BadInput: it holds no keys.
        """
        value = self.get(name, {})
        if not isinstance(value, Mapping):
            raise self.wrong(name, "no object with keys")
        return Config(self.path, value, f"{self._where}{name}.", defaults)

    def only(self, name: str, *values: Any) -> None:
        """Stop at a key that has another value than those that are built.

        Raises:
            BadInput: it has.
        """
        if name in self and self.get(name) not in values:
            known = ", ".join(map(repr, values))
            raise self.wrong(name, f"which cannot be built; known: {known}", again=False)

    def same(self, name: str, other: str, value: Any) -> None:
        """Stop at a second name of a key that says something else than the first.

        Raises:
            BadInput: it does.
        """
        if name in self and self.get(name) != value:
            raise self.wrong(name, f"and '{self._where}{other}' is {value!r}")

    def require_understood(self, model: str) -> None:
        """Stop at a key that may change the function and that nothing here reads.

        Raises:
            BadInput: there is one.
        """
        for name, value in self._values.items():
            if name in self._asked or name in IDLE or name.startswith("_"):
                continue
            if not any(value == one and type(value) is type(one) for one in NEUTRAL.get(name, ())):
                raise BadInput(
                    f"{self.path}: the key '{self._where}{name}' is {short(value)}, which "
                    f"'{model}' models are not known to use; without it this would be another model"
                )
