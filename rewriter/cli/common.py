"""What the subcommands share: the target and the dims that options ask for."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Any

from capabilities import Target, UnknownTarget, target
from rewriter.errors import BadInput
from rewriter.runtime.versions import installed


def frontends() -> Any:
    """The readers; imported by name, because ``rewriter`` stands below ``frontends``."""
    return import_module("frontends")


def target_of(options: argparse.Namespace) -> Target:
    """The target that ``--ep`` and the overrides describe.

    Without a version it is that of the installed runtime, else the newest measured.

    Raises:
        BadInput: no such EP, version or form.
    """
    name, at, version = options.ep.partition("@")
    overrides = {"rows": options.rows, "legal": options.legal, "illegal": options.illegal}
    try:
        if not at and (found := installed_version(name, getattr(options, "runtime", None))):
            return target(name, found, **overrides)
        return target(name, version or None, **overrides)
    except (UnknownTarget, ValueError) as error:
        raise BadInput(f"--ep {options.ep}: {error.args[0]}") from None
    except OSError as error:
        raise BadInput(f"--rows {error.filename}: {error.strerror}") from None


def installed_version(ep: str, python: Any) -> str | None:
    """Version of an EP's installed runtime; none for an EP that has no runtime of its own."""
    return installed(ep, python) if ep in {"qnn", "openvino", "openvino-ep", "ort-cpu"} else None


def dims_of(options: argparse.Namespace) -> dict[str, int]:
    """``--dim NAME=VALUE`` as numbers.

    Raises:
        BadInput: not of that shape, or given twice.
    """
    dims: dict[str, int] = {}
    for text in options.dim:
        name, equals, value = text.rpartition("=")
        if not equals or not name or not value.strip().isdecimal():
            raise BadInput(f"--dim {text}: write NAME=VALUE, VALUE a whole number from 0")
        if dims.setdefault(name.strip(), int(value)) != int(value):
            raise BadInput(f"--dim {name}: given twice, as {dims[name.strip()]} and {value}")
    return dims
