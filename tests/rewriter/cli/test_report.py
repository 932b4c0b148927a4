"""The report: every key of the contract, numbers that JSON has, lines that a terminal can take."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest
from rich.console import Console

from capabilities import target
from rewriter.cli import main
from rewriter.errors import BadInput, OutOfResources
from rewriter.outcome import Exit, GraphOutcome, Outcome, Parity
from rewriter.parity.compare import Error
from rewriter.parity.model import ModelParity
from rewriter.parity.outputs import Bound, InHalf, OutputParity
from rewriter.parity.sites import SiteParity
from rewriter.passes.fix_dims import Dims
from rewriter.record import Report
from rewriter.report.text import show
from rewriter.report.write import write_report
from rewriter.runtime.versions import installed
from tests.decoders import FIXTURE, Decoder, decoder

FAST = ["--parity", "none", "--no-place"]
DIMS = ["--dim", "batch=1", "--dim", "seq=1", "--dim", "past=8"]
NUMBER, TEXT, FLAG = (int, float), str, bool

# The contract (design, section 8): a dict of keys, [what each element is], or types.
ERRORS = {"max_abs": NUMBER, "max_rel": NUMBER}
OUTPUTS = {"outputs": [{"name": TEXT, **ERRORS}], "ok": FLAG}
SCHEMA: dict[str, Any] = {
    "model": TEXT,
    "target": {"ep": TEXT, "version": TEXT, "extrapolated": (TEXT, type(None)), "options": dict},
    "exit": int,
    "seconds": dict,
    "bytes": {"weights_before": int, "weights_after": int},
    "graphs": [
        {
            "phase": TEXT,
            "file": TEXT,
            "folded": int,
            "ops_before": dict,
            "ops_after": dict,
            "rules": [{"rule": TEXT, "op": TEXT, "sites": int}],
            "stuck": [
                {
                    "node": TEXT,
                    "op": TEXT,
                    "form": TEXT,
                    "why": TEXT,
                    "tried": [{"rule": TEXT, "refused": TEXT}],
                }
            ],
            "unknown": [{"node": TEXT, "op": TEXT}],
            "parity": {
                "sites": [
                    {
                        "rule": TEXT,
                        "signature": TEXT,
                        "count": int,
                        **ERRORS,
                        "tolerance": NUMBER,
                        "ok": FLAG,
                    }
                ],
                "model": OUTPUTS,
                "device": OUTPUTS,
            },
            "placement": {
                "runtime": TEXT,
                "on_ep": int,
                "on_cpu": int,
                "cpu_ops": dict,
                "reasons": dict,
                "partitions": int,
            },
        }
    ],
}


def misfits(data: Any, schema: Any, where: str = "report") -> Iterator[str]:
    """Whatever is not as the contract says."""
    if isinstance(schema, dict):
        for key, part in schema.items():
            if not isinstance(data, dict) or key not in data:
                yield f"{where}.{key} is missing"
            else:
                yield from misfits(data[key], part, f"{where}.{key}")
    elif isinstance(schema, list):
        if not isinstance(data, list) or not data:
            yield f"{where} has no element to look at"
            return
        for i, element in enumerate(data):
            yield from misfits(element, schema[0], f"{where}[{i}]")
    elif not isinstance(data, schema):
        yield f"{where} is {data!r}"


def numbers(data: Any) -> Iterator[float]:
    """Every number of a report."""
    if isinstance(data, dict | list):
        for part in data.values() if isinstance(data, dict) else data:
            yield from numbers(part)
    elif isinstance(data, float):
        yield data


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small decoder; the command works beside it."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "model.onnx"
    ir.save(decoder(Decoder(layers=1)), path)
    return path


def strict(path: Path) -> Any:
    """JSON as the standard has it: no NaN, no Infinity."""

    def refuse(text: str) -> None:
        raise AssertionError(text)

    return json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)


# -- JSON ------------------------------------------------------------------------------------


@pytest.mark.skipif(installed("qnn") != "2.7.0", reason="needs onnxruntime-qnn 2.7.0")
def test_every_key_of_the_contract(model: Path) -> None:
    """One run with something under every key but one: stuck nodes, parity at all levels."""
    words = [str(model), "--ep", "qnn@2.7.0", *DIMS, "--report", "r.json", "--allow-stuck"]
    assert main([*words, "--disable", "add_and_norm", "--parity", "device"]) == 0
    data = strict(Path("r.json"))
    found = set(misfits(data, SCHEMA))
    assert found == {"report.graphs[0].unknown has no element to look at"}
    assert all(map(math.isfinite, numbers(data)))
    assert set(data["seconds"]) == {"read", "lower", "write", "sites", "model", "place", "device"}
    graph = data["graphs"][0]
    assert sum(graph["ops_after"].values()) > sum(graph["ops_before"].values())
    assert graph["placement"]["cpu_ops"] == {"com.microsoft::SkipSimplifiedLayerNormalization": 2}


def test_constant_nodes_are_told_in_every_report(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else the counts of nodes would not add up to those of the file."""
    words = [str(model), "--ep", "qnn", *DIMS, *FAST]
    read = sum(1 for _ in ir.load(model).graph.all_nodes())
    for report in ("r.json", "r.html"):
        assert main([*words, "--report", report, "--overwrite"]) == 0
    graph = strict(Path("r.json"))["graphs"][0]
    assert graph["folded"] == read - sum(graph["ops_before"].values()) > 0
    said = f"{graph['folded']} more were constant"
    assert said in capsys.readouterr().out
    assert said in Path("r.html").read_text(encoding="utf-8")


def test_what_was_not_done_is_null(model: Path) -> None:
    assert main([str(model), "--ep", "qnn", *DIMS, *FAST, "--report", "r.json"]) == 0
    graph = strict(Path("r.json"))["graphs"][0]
    assert graph["parity"] is None
    assert graph["placement"] is None


def test_the_check_itself_can_fail() -> None:
    assert "report.exit is missing" in set(misfits({"model": "m"}, SCHEMA))
    assert list(misfits({"ok": 1}, {"ok": bool})) == ["report.ok is 1"]


def outcome(error: Error | None, *, ok: bool = False) -> Outcome:
    """A run whose comparison gave some error."""
    qnn = target("qnn", "2.7.0")
    site = SiteParity("rule", "signature", 1, error, 1e-5, ok, note="" if error else "it crashed")
    output = OutputParity("logits", error, 1e-3, ok, note="" if error else "all zero")
    drift = None if error is None else error.max_std
    whole = ModelParity((output,), ok, ("seed 0",), "settings", drift)
    graph = GraphOutcome(
        "model", "model.onnx", Report(qnn), Dims(), parity=Parity([site], whole, (output,))
    )
    return Outcome("m.onnx", qnn, graphs=[graph])


def error(value: float) -> Error:
    """An error all of whose figures are one value."""
    return Error(**{f.name: value for f in dataclasses.fields(Error)})


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_numbers_that_json_does_not_have_are_null(tmp_path: Path, value: float) -> None:
    write_report(outcome(error(value)), tmp_path / "r.json")
    parity = strict(tmp_path / "r.json")["graphs"][0]["parity"]
    assert parity["sites"][0]["max_abs"] is None
    assert parity["model"]["default_drift"] is None


def test_a_report_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r.json"
    path.write_text("old")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OutOfResources, match=r"r\.json"):
        write_report(outcome(error(1.0)), path)
    assert [p.name for p in tmp_path.iterdir()] == ["r.json"]
    assert path.read_text() == "old"


def test_a_report_into_a_folder_that_went_away(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be written"):
        write_report(outcome(error(1.0)), tmp_path / "gone" / "r.json")


# -- text ------------------------------------------------------------------------------------


def shown(found: Outcome, **options: Any) -> str:
    """The report as text."""
    console = Console(width=60, soft_wrap=True, highlight=False, record=True, **options)
    with console.capture() as captured:
        show(found, console)
    return captured.get()


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (outcome(error(1.0)), "the result is not the same function"),
        (outcome(None), "it could not be shown that the result is the same function"),
    ],
)
def test_no_claim_that_was_not_checked(found: Outcome, words: str) -> None:
    assert found.exit() is Exit.PARITY
    last = shown(found).splitlines()[-1]
    assert last == f"{words}; nothing was written (exit 4)"


def test_the_words_for_success() -> None:
    good = outcome(error(0.0), ok=True)
    good.output = "out"
    assert shown(good).splitlines()[-1] == (
        "every node is legal, parity is good; written to out (exit 0)"
    )
    good.graphs[0].parity = None
    assert "parity not checked" in shown(good)


def halves(result: float, *, ok: bool, note: str = "") -> Outcome:
    """A run over a float16 model."""
    found = outcome(error(1e-6), ok=True)
    parity = found.graphs[0].parity
    assert parity is not None
    assert parity.model is not None
    missing = bool(note)
    half = InHalf(
        "float16", None if missing else error(1e-3), None if missing else error(result), 2e-2, ok,
        note,
    )  # fmt: skip
    output = dataclasses.replace(parity.model.outputs[0], half=half, ok=ok)
    parity.model = dataclasses.replace(
        parity.model, outputs=(output,), ok=ok, reference="the original in float32"
    )
    parity.sites = [dataclasses.replace(parity.sites[0], half=half, ok=ok)]
    return found


def test_both_errors_of_a_float16_model(tmp_path: Path) -> None:
    text = shown(halves(2e-3, ok=True))
    assert "worst: logits 1.0e-06 of std" in text
    assert "compared with the original in float32" in text
    line = "in float16: original 1.0e-03 of std, result 2.0e-03 of std (at most 2.0e-02)"
    assert line in text
    write_report(halves(2e-3, ok=True), tmp_path / "r.json")
    parity = strict(tmp_path / "r.json")["graphs"][0]["parity"]
    assert parity["model"]["reference"] == "the original in float32"
    for found in (parity["model"]["outputs"][0]["half"], parity["sites"][0]["half"]):
        assert found["type"] == "float16"
        assert found["original"]["max_std"] == pytest.approx(1e-3)
        assert found["result"]["max_std"] == pytest.approx(2e-3)
        assert (found["tolerance"], found["ok"]) == (2e-2, True)


def test_what_is_wrong_only_in_float16() -> None:
    text = shown(halves(0.5, ok=False))
    assert "logits: 5.0e-01 of std > 2.0e-02 in float16" in text
    assert "rule: 5.0e-01 of max > 2.0e-02 in float16: signature" in text


def test_a_type_that_does_not_run() -> None:
    assert "does not run in bfloat16: no kernel" in shown(
        halves(0.0, ok=True, note="does not run in bfloat16: no kernel")
    )


@pytest.mark.parametrize(
    ("bound", "words"),
    [
        (Bound(0.03, 0.005), "held to 3.0e-02, rms 5.0e-03: the fixed bound"),
        (
            Bound(0.06, 0.03, error(0.01)),
            "what its arithmetic is estimated to cost here: 1.0e-02, rms 1.0e-02",
        ),
    ],
)
def test_the_bound_of_a_device_is_named(bound: Bound, words: str, tmp_path: Path) -> None:
    found = outcome(error(0.02), ok=True)
    parity = found.graphs[0].parity
    assert parity is not None
    assert parity.device is not None
    parity.device = (dataclasses.replace(parity.device[0], bound=bound),)
    assert words in shown(found)
    write_report(found, tmp_path / "r.json")
    stored = strict(tmp_path / "r.json")["graphs"][0]["parity"]["device"]["outputs"][0]["bound"]
    assert (stored["max_std"], stored["rms_std"]) == (bound.largest, bound.rms)
    assert (stored["estimate"] is None) == (bound.estimate is None)


def test_names_reach_no_terminal_raw() -> None:
    found = outcome(error(0.0), ok=True)
    found.graphs[0].notes = ["node 'a\x1b[31m\nb' [red]bold[/red]"]
    text = shown(found)
    assert r"note: node 'a\x1b[31m\nb' [red]bold[/red]" in text
    assert "\x1b" not in text


@pytest.mark.parametrize("more", [{}, {"NO_COLOR": "1"}, {"COLUMNS": "60"}, {"TERM": "dumb"}])
def test_files_get_plain_and_whole_lines(model: Path, more: dict[str, str]) -> None:
    words = [str(model), "--ep", "qnn@2.7.0", *DIMS, *FAST]
    code = "import sys; from rewriter.cli import main; sys.exit(main())"
    environment = {k: v for k, v in os.environ.items() if "COLOR" not in k} | more
    with Path("out.txt").open("w") as out, Path("err.txt").open("w") as err:
        subprocess.run(
            [sys.executable, "-c", code, *words],
            stdout=out,
            stderr=err,
            env=environment,
            check=True,
        )
    for name in ("out.txt", "err.txt"):
        assert "\x1b" not in Path(name).read_text(encoding="utf-8")
    text = Path("out.txt").read_text(encoding="utf-8")
    row = next(line for line in text.splitlines() if line.startswith("  add_and_norm"))
    assert row.split() == ["add_and_norm", "com.microsoft::SkipSimplifiedLayerNormalization", "2"]


def test_a_stream_without_the_arrow(model: Path) -> None:
    words = [str(model), "--ep", "qnn@2.7.0", *DIMS, *FAST]
    code = "import sys; from rewriter.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        check=True,
    )
    assert b"Softmax 0->1" in done.stdout


def test_the_weights_are_counted(capsys: pytest.CaptureFixture[str], model: Path) -> None:
    assert main([str(FIXTURE), "--ep", "qnn", *DIMS, *FAST, "-o", "out", "--report", "r.json"]) == 0
    found = strict(Path("r.json"))["bytes"]
    assert found["weights_before"] == 131344
    line = f"weights     {found['weights_before']:,} bytes before, {found['weights_after']:,} after"
    assert line in capsys.readouterr().out
