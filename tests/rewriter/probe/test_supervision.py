"""A runtime that kills its process, hangs, or prints garbage: each is recorded, and we go on."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from capabilities import Verdict, target
from rewriter.errors import RuntimeFault
from rewriter.probe.case import Case
from rewriter.probe.findings import CHILDREN, CONFIRMED, CONTRADICTED, Finding, probe
from rewriter.probe.operands import run
from rewriter.probe.runtime import Prober

pytestmark = pytest.mark.skipif(os.name != "posix", reason="shell scripts and signals")

# The model's bytes say which op it is. Add and Neg are right, Abs is wrong, the others end badly.
STUB = """
import os, signal, sys, time
import numpy as np

print("a greeting", "\\x00" * 40, "on stdout" * 999)

class Tensor:
    def __init__(self, data):
        self.data = data
    def get_element_type(self):
        return self
    def get_type_name(self):
        return "f32"

class Port:
    def __init__(self, name):
        self.name = name
    def get_names(self):
        return {self.name}
    def get_node(self):
        return self
    def get_friendly_name(self):
        return self.name

class Model:
    outputs = [Port("y1")]
    def __init__(self, op):
        self.op, self.x = op, {}
        self.inputs = [Port("x1"), Port("x2")][: 2 if op == "Add" else 1]
    def create_infer_request(self):
        return self
    def set_input_tensor(self, index, tensor):
        self.x[index] = tensor.data
    def infer(self):
        if self.op == "Exp":
            os.kill(os.getpid(), signal.SIGFPE)
        if self.op == "Sqrt":
            raise RuntimeError("no root today, see /home/me/root.cpp")
        self.y = {"Add": sum, "Neg": lambda x: -x[0], "Abs": lambda x: 2 + x[0]}[self.op](
            list(self.x.values())
        )
    def get_output_tensor(self, index):
        return Tensor(self.y)

class Core:
    def read_model(self, file):
        content = open(file, "rb").read()
        names = "Abs", "Add", "Cos", "Exp", "Log", "Neg", "Sin", "Sqrt", "Tan", "Tanh"
        op = next(op for op in names if op.encode() + b"1" in content)
        os.write(1, b"garbage \\xff\\x00\\x01" * 5000)
        if op == "Sin":
            os.kill(os.getpid(), signal.SIGSEGV)
        if op == "Cos":
            time.sleep(600)
        held = []
        while op == "Tanh":
            held.append(b"x" * (1 << 26))
        if op == "Log":
            raise RuntimeError("No conversion rule found for operations: Log")
        return Model(op)
    def compile_model(self, model, device, properties):
        if model.op == "Tan":
            raise RuntimeError("cannot compile")
        return model
"""


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    """An interpreter that finds the stub where openvino should be, and greets before it starts."""
    package = tmp_path / "stub" / "openvino"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(STUB, encoding="utf-8")
    metadata = tmp_path / "stub" / "openvino-2026.4.1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Name: openvino\nVersion: 2026.4.1\n", encoding="utf-8")
    python = tmp_path / "python"
    python.write_text(
        "#!/bin/sh\nprintf 'welcome\\000rewr'\n"
        f'PYTHONPATH={tmp_path / "stub"} exec {sys.executable} "$@"\n',
        encoding="utf-8",
    )
    python.chmod(0o755)
    return python


def case(op: str) -> Case:
    return Case(
        op, "alone", "f32", lambda graph: graph.op(op, run(2, 3, draw=lambda r, s: r.random(s)))
    )


EXPECTED = {
    "Abs": "OK-WRONG",
    "Cos": "TIMEOUT",
    "Exp": "CRASH",
    "Log": "READ_ERROR",
    "Neg": "OK",
    "Sin": "CRASH",
    "Sqrt": "RUN_ERROR",
    "Tan": "COMPILE_ERROR",
    "Tanh": "CRASH",
}


def test_every_end_is_recorded_and_the_next_case_runs(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rewriter.probe.runtime.MEMORY", 1 << 29)
    with Prober("openvino", runtime, time_limit=4) as prober:
        found = {op: prober.measure(case(op)) for op in EXPECTED}
        again = prober.measure(case("Neg"))
    assert {op: measured.verdict for op, measured in found.items()} == EXPECTED
    assert again.verdict == "OK"
    assert found["Tanh"].note == "memory"
    assert found["Sqrt"].note == "no root today, see …"


@pytest.mark.parametrize(("saturates", "verdict"), [(True, "OK-NOREF"), (False, "OK-WRONG")])
def test_a_processor_that_saturates_products_says_nothing_of_them(
    saturates: bool, verdict: str, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rewriter.probe.runtime.multiplies_codes", lambda _facts: True)
    monkeypatch.setattr("rewriter.probe.runtime.saturates", lambda: saturates)
    with Prober("openvino", runtime, time_limit=10) as prober:
        assert prober.measure(case("Abs")).verdict == verdict
        assert prober.measure(case("Neg")).verdict == "OK"


def test_findings_survive_too(runtime: Path) -> None:
    cases = [case(op) for op in ("Exp", "Sin", "Neg", "Abs")]
    found = probe(cases, target("openvino", "2026.4.1"), python=runtime, time_limit=10)
    assert [finding.case.op for finding in found] == ["Exp", "Sin", "Neg", "Abs"]
    assert [finding.state for finding in found] == [CONTRADICTED] * 2 + [CONFIRMED, CONTRADICTED]
    assert [finding.measured.meaning for finding in found[:2]] == [Verdict.ILLEGAL] * 2


def test_who_is_interrupted_does_not_run_what_is_left(runtime: Path) -> None:
    met: list[str] = []

    def seen(finding: Finding) -> None:
        met.append(finding.case.op)
        raise KeyboardInterrupt

    on = target("openvino", "2026.4.1")
    with pytest.raises(KeyboardInterrupt):
        probe([case("Neg")] * 50, on, python=runtime, time_limit=10, seen=seen)
    assert 1 <= len(met) <= CHILDREN


def test_a_runtime_that_is_missing_is_no_finding(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    with pytest.raises(RuntimeFault, match="does not even add two tensors here"):
        probe([case("Neg")], target("openvino", "2026.4.1"), python=python, time_limit=10)
