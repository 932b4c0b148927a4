"""What installed packages add, through entry points: importing their module registers it."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points


class BadPlugin(RuntimeError):
    """An installed package adds something, and cannot be imported; the message names it."""


@cache
def load_plugins(group: str) -> None:
    """Import every module that installed packages name in a group, once and in order of name.

    Args:
        group: ``rewriter.targets`` (modules that call :func:`capabilities.register`) or
            ``rewriter.rules`` (modules with functions under :func:`rewriter.lowers`).

    Raises:
        BadPlugin: one of them raised something.
    """
    for point in sorted(entry_points(group=group), key=lambda point: point.name):
        try:
            point.load()
        except Exception as error:
            raise BadPlugin(
                f"{_package(point)} cannot be used: its entry point '{point.name}' of {group}, "
                f"{point.value}, raised {type(error).__name__}: {error}; repair or uninstall it"
            ) from error


def _package(point: EntryPoint) -> str:
    """Name and version of the package that declares an entry point."""
    return f"{point.dist.name} {point.dist.version}" if point.dist else "a package"
