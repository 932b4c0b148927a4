"""The report's file: JSON for programs, HTML for people."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from pathlib import Path

from rewriter.errors import BadInput
from rewriter.outcome import Outcome
from rewriter.output import disk, writable
from rewriter.report.data import as_json
from rewriter.report.html import html_page

_WRITERS = {".json": as_json, ".html": html_page}


def check_report(path: Path, output: Path, sources: Iterable[Path]) -> None:
    """Find out before the work that the report cannot be written.

    Args:
        path: where it is to go.
        output: the folder that the run writes.
        sources: files that belong to the input.

    Raises:
        BadInput: no such folder, no permission, or something else is there.
    """
    if path.suffix not in _WRITERS:
        raise BadInput(f"--report {path}: is written as .json or .html; name such a file")
    place, folder = path.resolve(), output.resolve()
    if place == folder or folder in place.parents:
        raise BadInput(
            f"--report {path}: lies in the output folder, which appears only if all goes well; "
            "name a file outside of it"
        )
    if path.is_dir() or place in {source.resolve() for source in sources}:
        what = "is a folder" if path.is_dir() else "belongs to the model"
        raise BadInput(f"--report {path}: {what}; name another file")
    parent = path.absolute().parent
    if not parent.is_dir():
        raise BadInput(f"--report {path}: there is no folder {parent}; make it first")
    if not writable(parent) or (path.exists() and not writable(path)):
        raise BadInput(f"--report {path}: is read-only; name a file that can be written")


def write_report(outcome: Outcome, path: Path) -> None:
    """Write the report file, whole or not at all.

    Raises:
        BadInput: it cannot be written.
        OutOfResources: the disk is full.
    """
    text = _WRITERS[path.suffix](outcome)
    part = path.with_name(f".rewrite-report-{secrets.token_hex(4)}")
    try:
        with disk(path):
            part.write_text(text, encoding="utf-8")
            part.replace(path)
    finally:
        part.unlink(missing_ok=True)
