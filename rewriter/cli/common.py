"""What the subcommands share: the target and the dims that options ask for."""

from __future__ import annotations

import argparse
import csv
import shlex
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from capabilities import Target, UnknownTarget, target
from rewriter.compiling import choose
from rewriter.errors import BadInput, RuntimeFault
from rewriter.passes.fix_dims import FreeDims
from rewriter.record import Report
from rewriter.rule import registry
from rewriter.runtime.versions import installed

_LARGEST = 2**31 - 1
"""No dim is larger: what counts elements would overflow."""


def frontends() -> Any:
    """The readers; imported by name, because ``rewriter`` stands below ``frontends``."""
    return import_module("frontends")


def target_of(options: argparse.Namespace) -> Target:
    """The target that ``--ep`` and the overrides describe.

    Without a version it is that of the installed runtime, else the newest measured.

    Raises:
        BadInput: no such EP, version or form, or an interpreter that cannot be run.
    """
    name, at, version = options.ep.partition("@")
    if at and not version:
        raise BadInput(f"--ep {options.ep}: the version is missing after '@'")
    runtime = getattr(options, "runtime", None)
    _named("ep", options.ep, lambda: target(name, version or None))
    found = _installed_version(name, runtime)
    chosen = version or found
    _named("ep", f"{name}@{chosen}" if chosen else name, lambda: target(name, chosen))
    settings = _provider_options(options.option)
    if options.soc is not None and name != "qnn":
        raise BadInput(f"--soc {options.soc}: is for qnn; {name} has no option for one")
    if name == "qnn" and (settings or options.soc):
        settings = dict(choose(settings, options.soc, chosen or target(name).version).options)
    if options.device is not None:
        _named("device", options.device, lambda: target(name, chosen, device=options.device))
    for path in options.rows:
        _named("rows", str(path), partial(target, name, chosen, rows=[path]))
    for text in options.legal:
        _named("legal", text, partial(target, name, chosen, legal=[text]))
    for text in options.illegal:
        _named("illegal", text, partial(target, name, chosen, illegal=[text]))
    return target(
        name,
        chosen,
        device=options.device,
        options=settings,
        rows=options.rows,
        legal=options.legal,
        illegal=options.illegal,
    )


def _provider_options(given: list[str]) -> dict[str, str]:
    """``--option KEY=VALUE`` as provider options."""
    pairs = [text.partition("=") for text in given]
    for key, equals, _ in pairs:
        if not key or not equals:
            raise BadInput(f"--option {key}: write KEY=VALUE")
    return {key: value for key, _, value in pairs}


def _named(option: str, text: str, make: Callable[[], Target]) -> None:
    """Try one option by itself, so that an error can name it."""
    try:
        make()
    except (UnknownTarget, ValueError, csv.Error) as error:
        raise BadInput(f"--{option} {text}: {_reason(error)}") from None
    except OSError as error:
        raise BadInput(f"--{option} {text}: cannot be read: {error.strerror}") from None


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "is no text in UTF-8"
    return str(error.args[0]) if error.args else type(error).__name__


def _installed_version(ep: str, python: Path | None) -> str | None:
    """Version of an EP's installed runtime; none for an EP that has no runtime of its own."""
    try:
        return installed(ep, python)
    except RuntimeFault as fault:
        raise BadInput(f"--runtime {fault}; name an interpreter, such as env/bin/python") from None


def dims_of(options: argparse.Namespace) -> dict[str, int]:
    """``--dim NAME=VALUE`` as numbers.

    Raises:
        BadInput: not of that shape, or given twice.
    """
    dims: dict[str, int] = {}
    for text in options.dim:
        name, equals, value = (part.strip() for part in text.rpartition("="))
        if not equals or not name or not value.isdecimal() or int(value) > _LARGEST:
            raise BadInput(
                f"--dim {text}: write NAME=VALUE, VALUE a whole number from 0 to {_LARGEST}"
            )
        if dims.setdefault(name, int(value)) != int(value):
            raise BadInput(f"--dim {name}: given twice, as {dims[name]} and {value}")
    return dims


def rules_of(options: argparse.Namespace) -> tuple[str, ...]:
    """Names of the rules not to use.

    Raises:
        BadInput: there is no such rule.
    """
    known = sorted(rule.name for rule in registry())
    for name in options.disable:
        if name not in known:
            raise BadInput(
                f"--disable {name}: there is no rule '{name}'; known: {', '.join(known)}"
            )
    return tuple(options.disable)


@contextmanager
def ready_command(options: argparse.Namespace) -> Generator[None, None, None]:
    """Where dims are free, say the command that was typed, with values for them."""
    try:
        yield
    except FreeDims as error:
        words = ["rewrite", *options.words]
        error.command = _quoted([*words, *error.words()])
        grows = any(dim.name == "past" for dim in error.free)
        if grows and options.command == "model" and not options.dim:
            sizes = ["--static", "both", "--seq", "16", "--max-seq-len", "1024"]
            error.generating = _quoted([*words, *sizes])
        raise


def _quoted(words: Sequence[str]) -> str:
    return subprocess.list2cmdline(words) if sys.platform == "win32" else shlex.join(words)


def idle_overrides(options: argparse.Namespace, report: Report) -> list[str]:
    """A sentence for each override that speaks of no op the model has or had: likely a slip."""
    ops = {*report.ops_before, *report.ops_after}
    given = [(name, text) for name in ("legal", "illegal") for text in getattr(options, name)]
    return [
        f"--{name} {text} changed nothing: the model has no {text.partition('[')[0]}"
        for name, text in given
        if "*" not in text.partition("[")[0] and text.partition("[")[0].strip() not in ops
    ]
