"""The installed runtimes against the table: the day a row stops being true, this fails."""

from __future__ import annotations

import pytest

from capabilities import target
from rewriter.probe.case import Case, chosen
from rewriter.probe.findings import CONFIRMED, judged, probe
from rewriter.probe.host import SATURATES
from rewriter.probe.proposal import Proposal
from rewriter.probe.report import Run, lines
from rewriter.runtime.versions import installed

EPS = ("qnn", "openvino")


def one_for_each_op_and_verdict(ep: str) -> list[Case]:
    """Of the quick cases, the first of each op and of each verdict on it."""
    on, found = target(ep), dict[tuple[str, str], Case]()
    for case in chosen(ep, quick=True):
        found.setdefault((case.op, judged(case.built(), on).verdict), case)
    return list(found.values())


def check(ep: str, cases: list[Case]) -> None:
    version = installed(ep)
    assert version is not None
    on = target(ep, version)
    findings = probe(cases, on)
    unlike = [
        finding
        for finding in findings
        if finding.state != CONFIRMED and finding.measured.note != SATURATES
    ]
    said = Run(on, version, unlike, Proposal("", ()), 0, whole=False)
    assert not unlike, "\n".join(lines(said))


def needs(ep: str) -> None:
    if installed(ep) is None:
        pytest.skip(f"{ep} is not installed")


@pytest.mark.parametrize("ep", EPS)
def test_each_op_and_verdict(ep: str) -> None:
    needs(ep)
    check(ep, one_for_each_op_and_verdict(ep))


@pytest.mark.slow
@pytest.mark.parametrize("ep", EPS)
def test_every_quick_case(ep: str) -> None:
    needs(ep)
    check(ep, chosen(ep, quick=True))
