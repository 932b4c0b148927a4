"""``rewrite probe``: what an installed runtime does, against what the table says of it."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from capabilities import Target, UnknownTarget, eps, target
from rewriter.cli.common import target_of
from rewriter.cli.console import progress, results
from rewriter.errors import BadInput
from rewriter.probe.case import Case, chosen
from rewriter.probe.environments import environments
from rewriter.probe.evidence import Tables, write
from rewriter.probe.findings import CONTRADICTED, Finding, judged, probe
from rewriter.probe.proposal import propose
from rewriter.probe.report import Run, data, lines, read
from rewriter.probe.verdict import Measured
from rewriter.report.data import as_text
from rewriter.runtime.versions import distribution, installed

_DISAGREE = 5
_EVERY = 50
"""Cases between two lines of progress."""


def run(options: argparse.Namespace) -> int:
    """Probe one runtime, or each in its environment; 5 where the table is contradicted."""
    if options.replace and not options.write:
        raise BadInput("--replace: is for --write; without it nothing is written")
    runs = list[Run]()
    tables = Tables(Path(str(files("capabilities"))), options.ep)
    for found in _runs(options, tables):
        runs.append(found)
        if options.write:
            write(found.findings, found.version, tables, replace=options.replace)
        if not options.json:
            _print("\n".join(lines(found)))
    if options.json:
        _print(as_text("probe", data(runs)))
    return _DISAGREE if any(found.of(CONTRADICTED) for found in runs) else 0


def _runs(options: argparse.Namespace, tables: Tables) -> Iterator[Run]:
    """One run for each runtime, or for each result that a file holds."""
    if options.result is not None:
        for ep, version, measured in read(options.result):
            if ep == options.ep:
                yield _again(options, tables, version, measured)
        return
    pythons: Iterator[Path | None] = iter([options.runtime])
    if options.environments is not None:
        pythons = iter(environments(options.ep, options.environments, progress()))
    for python in pythons:
        here = installed(options.ep, python)
        if here is None:
            where = python or "this environment"
            raise BadInput(f"{distribution(options.ep)} is not installed in {where}")
        yield _measured(options, tables, here, python)


def _measured(
    options: argparse.Namespace, tables: Tables, version: str, python: Path | None
) -> Run:
    cases, on, say = _cases(options), _target(options, version), progress()
    begun, count = time.monotonic(), 0

    def seen(_finding: Finding) -> None:
        nonlocal count
        count += 1
        if count % _EVERY == 0:
            say(f"{on.ep} {version}: {count} of {len(cases)} cases")

    findings = probe(cases, on, python=python, time_limit=options.time_limit, seen=seen)
    proposal = propose(findings, on, version, tables.rows)
    seconds = time.monotonic() - begun
    return Run(on, version, findings, proposal, seconds, whole=not options.op)


def _again(
    options: argparse.Namespace,
    tables: Tables,
    version: str,
    measured: Mapping[tuple[str, str], Measured],
) -> Run:
    """What was measured before, against the table of today; cases that changed are left out."""
    on, findings = _target(options, version), list[Finding]()
    for case in _cases(options):
        built = case.built()
        if found := measured.get((case.name, built.digest())):
            findings.append(Finding(case, judged(built, on), found))
    proposal = propose(findings, on, version, tables.rows)
    return Run(on, version, findings, proposal, 0, whole=not options.op)


def _cases(options: argparse.Namespace) -> list[Case]:
    cases = chosen(options.ep, quick=not options.full, op=options.op)
    if not cases:
        raise BadInput(f"--op {options.op}: no {'' if options.full else 'quick '}case is about it")
    return cases


def _target(options: argparse.Namespace, version: str) -> Target:
    """The table to compare with.

    A version that nobody has measured is compared with the newest that somebody has.
    """
    given = argparse.Namespace(
        **vars(options), option=[], soc=None, device=None, legal=[], illegal=[]
    )
    try:
        target(options.ep, version)
    except UnknownTarget:
        newest = next(ep.measured[-1] for ep in eps() if ep.name == options.ep)
        given.ep = f"{options.ep}@{newest}"
        return replace(target_of(given), version=version, extrapolated_from=newest)
    given.ep = f"{options.ep}@{version}"
    return target_of(given)


def _print(text: str) -> None:
    """A diff has tabs, which the console itself would widen."""
    with results() as console:
        console.file.write(f"{text}\n")
