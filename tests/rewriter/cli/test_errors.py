"""Whatever goes wrong is one line on stderr, the right exit code, and nothing left behind."""

from __future__ import annotations

import errno
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import onnx_ir as ir
import pytest

from rewriter import pipeline, proof
from rewriter.cli import main
from rewriter.cli.signals import tidy_on_signals
from rewriter.errors import RuntimeFault
from rewriter.parity import model as model_parity
from tests.decoders import FIXTURE, Decoder, decoder
from tests.graphs import Builder

FAST = ["--parity", "none", "--no-place"]
DIMS = ["--dim", "batch=1", "--dim", "seq=1", "--dim", "past=8"]
REWRITE = [sys.executable, "-c", "import sys; from rewriter.cli import main; sys.exit(main())"]
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A small decoder, alone in a folder."""
    path = tmp_path / "in" / "model.onnx"
    path.parent.mkdir()
    ir.save(decoder(Decoder(layers=1)), path)
    return path


@pytest.fixture
def away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the command works in, empty so that what it leaves is seen."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def failure(capsys: Capture, *words: str, code: int = 2) -> str:
    """The one line that a command line fails with."""
    try:
        found = main(words)
    except SystemExit as error:  # how argparse leaves
        found = int(str(error.code))
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if not line.endswith(" ...")]
    assert (found, out, len(lines)) == (code, "", 1), err
    assert lines[0].startswith("rewrite")
    return lines[0]


# -- usage -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--ep", "qn"], "--ep qn: there is no EP 'qn' (did you mean qnn?); known: "),
        (["--ep", "qnn@9.0"], "--ep qnn@9.0: there is no qnn 9.0; qnn was measured at 2.3.0"),
        (["--ep", "qnn@new"], "--ep qnn@new: 'new' is not a version"),
        (["--ep", "qnn@"], "the version is missing"),
        (["--ep", "onnx-standard@1"], "is an opset from 13 to"),
        (["--ep", "qnn", "--disable", "nope"], "there is no rule 'nope'; known: "),
        (["--ep", "qnn", "--dim", "nope=1"], "--dim nope: the model has no such dim"),
        (["--ep", "qnn", "--dim", "batch"], "--dim batch: write NAME=VALUE"),
        (["--ep", "qnn", "--dim", "batch=-1"], "--dim batch=-1: write NAME=VALUE"),
        (["--ep", "qnn", "--dim", "batch=two"], "--dim batch=two: write NAME=VALUE"),
        (["--ep", "qnn", "--dim", "batch=99999999999"], "from 0 to 2147483647"),
        (["--ep", "qnn", "--dim", "batch=1", "--dim", "batch=2"], "given twice, as 1 and 2"),
        (["--ep", "qnn", "--dim", "batch=1", "--dim", "batch_size=2"], "batch_size is 1 by"),
        (["--ep", "qnn", *DIMS, "--dim", "total=99"], "total_sequence_length is given as 99"),
        (["--ep", "qnn", "--legal", "Mat Mul"], "--legal Mat Mul: "),
        (["--ep", "qnn", "--illegal", "MatMul[no such form]"], "--illegal MatMul[no such form]: "),
        (["--ep", "qnn", "--rows", "gone.tsv"], "--rows gone.tsv: cannot be read: No such file"),
        (["--ep", "qnn", "--budget", "0"], "--budget: '0' is no time above 0"),
        (["--ep", "qnn", "--budget", "nan"], "--budget: 'nan'"),
        (["--ep", "qnn", "--seed", "-1"], "--seed: '-1' is no whole number"),
        (["--ep", "qnn", "--parity", "all"], "invalid choice: 'all'"),
        (["--ep", "qnn", "--parity", "device", "--no-place"], "drop one"),
        (["--ep", "qnn", "--frob"], "unrecognized arguments: --frob"),
        (["--ep", "qnn", "--over"], "unrecognized arguments: --over"),
        (["--ep", "qnn", "--runtime", "nowhere"], "--runtime nowhere is not a Python"),
        (["--ep", "qnn@2.4.0", "--runtime", "nowhere"], "--runtime nowhere is not a Python"),
        (["--ep", "onnx-standard", *DIMS, "--parity", "device"], "onnx-standard is no runtime"),
        ([], "required: --ep"),
    ],
)
def test_bad_usage(capsys: Capture, model: Path, away: Path, words: list[str], said: str) -> None:
    assert said in failure(capsys, str(model), *words)
    assert not list(away.iterdir())


def test_no_arguments_at_all(capsys: Capture) -> None:
    assert "required: model, --ep" in failure(capsys)
    assert "rewrite plan --help" in failure(capsys, "plan")


@pytest.mark.parametrize(
    "text", ["no\ttable\n", "op\tform\tverdict\tversions\twhy\tevidence\nA\tB\n"]
)
def test_rows_that_are_no_table(capsys: Capture, model: Path, away: Path, text: str) -> None:
    (away / "rows.tsv").write_text(text)
    assert "--rows rows.tsv: rows.tsv:" in failure(
        capsys, str(model), "--ep", "qnn", "--rows", "rows.tsv"
    )
    (away / "rows.tsv").write_bytes(b"\xff\xfe\x00")
    assert "no text in UTF-8" in failure(capsys, str(model), "--ep", "qnn", "--rows", "rows.tsv")


# -- the model -------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [[], ["plan"]])
@pytest.mark.parametrize("data", [b"", b"GGUF\0\0\0\0", b"\x08\x0a\x12\xff", None])
def test_a_file_that_is_none(
    capsys: Capture, tmp_path: Path, away: Path, command: list[str], data: bytes | None
) -> None:
    path = tmp_path / "broken.onnx"
    if data is not None:
        path.write_bytes(data)
    more = [] if command else FAST
    assert f"{path}: " in failure(capsys, *command, str(path), "--ep", "qnn", *DIMS, *more)
    assert not list(away.iterdir())


def test_shapes_that_contradict_each_other(capsys: Capture, tmp_path: Path, away: Path) -> None:
    b = Builder()
    y = b.op("Relu", b.input("x", ir.DataType.FLOAT, (1, 4)), name="y")
    ir.save(b.model([(y, ir.DataType.FLOAT, (1, 5))]), tmp_path / "m.onnx")
    said = failure(capsys, str(tmp_path / "m.onnx"), "--ep", "ort-cpu", *FAST)
    assert "y at dim 1: existing 5 vs inferred 4" in said
    assert not list(away.iterdir())


def test_names_from_a_file_reach_no_terminal_raw(capsys: Capture, tmp_path: Path) -> None:
    b = Builder()
    y = b.op("Relu", ir.val("no\x1b[31m\nway"), name="y")
    ir.save(b.model([(y, ir.DataType.FLOAT, (1,))]), tmp_path / "m.onnx")
    said = failure(capsys, str(tmp_path / "m.onnx"), "--ep", "ort-cpu", *FAST)
    assert r"reads 'no\x1b[31m\nway', which nothing defines" in said


# -- free dims -------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [[], ["plan"]])
def test_free_dims_come_with_a_command_that_works(
    capsys: Capture, tmp_path: Path, model: Path, away: Path, command: list[str]
) -> None:
    odd = tmp_path / "it's a folder"
    model.parent.rename(odd)
    words = [*command, str(odd / "model.onnx"), "--ep", "qnn", "--dim", "seq=2"]
    words += [] if command else [*FAST, "-o", "an out"]
    assert main(words) == 2
    lines = capsys.readouterr().err.splitlines()
    lines = lines[next(i for i, line in enumerate(lines) if line.startswith("rewrite:")) :]
    assert lines[0].startswith("rewrite: qnn runs fixed shapes only")
    assert [line.split(":")[0].strip() for line in lines[1:-1]] == ["batch", "total", "past"]
    start = "for example: rewrite "
    assert lines[-1].startswith(start)
    again = shlex.split(lines[-1].removeprefix(start))
    assert again[: len(words)] == words
    assert not list(away.iterdir())
    assert main(again) == 0
    assert (away / "an out").exists() is not bool(command)


def test_free_dims_where_they_may_stay(capsys: Capture, model: Path, away: Path) -> None:
    assert main([str(model), "--ep", "onnx-standard", *FAST]) == 3
    out = capsys.readouterr().out
    assert "attention_primitives refused: query has a dim that is not fixed" in out
    assert "nothing was written (exit 3)" in out
    assert not list(away.iterdir())


def test_free_dims_that_every_rule_can_cope_with(tmp_path: Path, away: Path) -> None:
    b = Builder()
    y = b.op("Relu", b.input("x", ir.DataType.FLOAT, ("n", None)), name="y")
    ir.save(b.model([(y, ir.DataType.FLOAT, ("n", None))]), tmp_path / "m.onnx")
    assert main([str(tmp_path / "m.onnx"), "--ep", "onnx-standard", *FAST]) == 0
    written = ir.load(away / "m-onnx-standard" / "model.onnx")
    assert str(written.graph.inputs[0].shape).startswith("[n,")


# -- places that cannot be written -----------------------------------------------------------


def _nothing(_folder: Path) -> None: ...


def _in_a_file(folder: Path) -> None:
    (folder / "out").write_text("x")


def _held(folder: Path) -> None:
    (folder / "out").mkdir()
    (folder / "out" / "old").write_text("x")


def _locked(folder: Path) -> None:
    folder.chmod(0o555)


@pytest.mark.parametrize(
    ("make", "words", "said"),
    [
        (_in_a_file, ["-o", "out"], "is a file"),
        (_in_a_file, ["-o", "out/deeper"], "is a file"),
        (_held, ["-o", "out"], "is not empty; give another folder, or --overwrite"),
        (_held, ["-o", "."], "is not empty"),
        (_held, ["-o", ".", "--overwrite"], "holds the folder 'out'"),
        (_locked, ["-o", "out"], "is read-only"),
        (_locked, ["-o", "a/b/out"], "is read-only"),
        (_locked, ["-o", "../out", "--report", "r.json"], "--report r.json: is read-only"),
        (_nothing, ["-o", "../in"], "is not empty"),
        (_nothing, ["--report", "r.txt"], "--report r.txt: this version writes .json"),
        (_nothing, ["--report", "no/r.json"], "--report no/r.json: there is no folder"),
        (_nothing, ["-o", "out", "--report", "out/r.json"], "lies in the output folder"),
        (_nothing, ["-o", "out.json", "--report", "out.json"], "lies in the output folder"),
        (_nothing, ["--report", "../in/config.json"], "belongs to the model"),
    ],
)
def test_places_are_looked_at_before_the_work(
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
    model: Path,
    away: Path,
    make: Callable[[Path], None],
    words: list[str],
    said: str,
) -> None:
    (model.parent / "config.json").write_text("{}")
    make(away)
    before = sorted(away.rglob("*"))
    monkeypatch.setattr(pipeline, "lower", None)  # not reached
    assert said in failure(capsys, str(model), "--ep", "qnn", *DIMS, *words)
    away.chmod(0o755)
    assert sorted(away.rglob("*")) == before
    assert not (model.parent.parent / "out").exists()


# -- what gives way in the middle ------------------------------------------------------------


def raising(error: BaseException) -> Callable[..., None]:
    """A stand-in that fails."""

    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (MemoryError(), 6, "out of memory"),
        (RuntimeError("can't start new thread"), 6, "out of memory"),
        (OSError(errno.ENOSPC, "full"), 6, "no space is left in the temporary folder"),
        (OSError(errno.EACCES, "denied", "/x/y"), 2, "/x/y: denied"),
        (RuntimeFault("memory", "it ran out"), 6, "it ran out"),
        (RuntimeFault("missing", "onnxruntime is not installed"), 2, "is not installed"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (ValueError("what?"), 1, "internal error: ValueError: what? (--debug shows where)"),
    ],
)
@pytest.mark.parametrize("stage", ["lower", "check_sites", "estimate"])
def test_an_error_in_any_stage(
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
    model: Path,
    away: Path,
    stage: str,
    error: BaseException,
    code: int,
    said: str,
) -> None:
    monkeypatch.setattr(pipeline if stage == "lower" else proof, stage, raising(error))
    words = [str(model), "--ep", "qnn", *DIMS, "--parity", "sites"]
    assert said in failure(capsys, *words, code=code)
    assert not list(away.iterdir())


@pytest.mark.parametrize(
    ("kind", "code", "said"),
    [
        ("memory", 6, "placing model.onnx: it stopped"),
        ("timeout", 0, "note: placement did not finish: it stopped; raise --budget"),
        ("missing", 0, "note: placement did not run: it stopped"),
        ("crash", 5, "the runtime failed: it stopped"),
    ],
)
def test_a_placement_that_cannot_finish(
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
    model: Path,
    away: Path,
    kind: str,
    code: int,
    said: str,
) -> None:
    monkeypatch.setattr(proof.Proof, "_unplaceable", lambda _: "")
    monkeypatch.setattr(proof, "place", raising(RuntimeFault(kind, "it stopped")))
    assert main([str(model), "--ep", "qnn", *DIMS, "--parity", "none"]) == code
    captured = capsys.readouterr()
    assert said in captured.out + captured.err
    assert bool(list(away.iterdir())) == (code != 6)


def test_debug_shows_where(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    monkeypatch.setattr(pipeline, "lower", raising(ValueError("what?")))
    with pytest.raises(ValueError, match="what"):
        main([str(model), "--ep", "qnn", *DIMS, "--debug"])


@pytest.mark.parametrize(("kind", "code"), [("timeout", 4), ("crash", 4), ("memory", 6)])
def test_a_comparison_that_cannot_finish(
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
    model: Path,
    away: Path,
    kind: str,
    code: int,
) -> None:
    fault = RuntimeFault(kind, "it stopped")
    monkeypatch.setattr(proof, "check_sites", lambda *_, **__: [])
    monkeypatch.setattr(model_parity, "_drift", raising(fault))
    assert main([str(model), "--ep", "qnn", *DIMS, "--no-place"]) == code
    captured = capsys.readouterr()
    assert "it stopped" in captured.out + captured.err
    if code == 4:
        assert "it could not be shown that the result is the same function" in captured.out
        assert "nothing was written" in captured.out
    assert not list(away.iterdir())


# -- processes -------------------------------------------------------------------------------


def _start(model: Path, away: Path, *words: str, **options: object) -> subprocess.Popen[str]:
    scratch = away.parent / "tmp"
    scratch.mkdir(exist_ok=True)
    command = [*REWRITE, str(model), "--ep", "qnn", *DIMS, *words]
    return subprocess.Popen(  # type: ignore[call-overload,no-any-return]
        command,
        cwd=away,
        env={**os.environ, "TMPDIR": str(scratch)},
        text=True,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
    )


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_in_the_middle_of_parity(
    model: Path, away: Path, number: signal.Signals, code: int
) -> None:
    process = _start(model, away, "-o", "a/b/out")
    assert process.stderr is not None
    assert any("comparing the whole model" in line for line in process.stderr)
    process.send_signal(number)
    process.send_signal(number)  # people press twice
    out, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert out == ""
    assert "Traceback" not in err
    assert ("interrupted" in err) == (number == signal.SIGINT)
    assert not list(away.iterdir())
    left = {p.name for p in (away.parent / "tmp").iterdir()}
    assert left <= {".ses"}  # which importing ONNX Runtime writes


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_second_signal_does_not_cut_the_cleaning_short() -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        tidy_on_signals()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        for number in numbers:
            signal.raise_signal(number)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        tidy_on_signals()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # nohup
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_reader_that_leaves_early(model: Path, away: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    process = _start(model, away, *FAST, "-o", "out", "--report", "r.json", stdout=writing)
    os.close(writing)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, "Error" in err) == (0, False), err
    assert (away / "out" / "model.onnx").is_file()
    assert (away / "r.json").is_file()


def test_nobody_listens_to_progress(model: Path, away: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    process = _start(model, away, *FAST, "-o", "out", stderr=writing)
    os.close(writing)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "written to out" in out


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_results_that_cannot_be_written_are_no_success(model: Path, away: Path) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        process = _start(model, away, *FAST, stdout=full)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 6
    assert "no space is left" in err.splitlines()[-1]


def test_the_fixture_takes_what_the_tool_proposes(capsys: Capture, away: Path) -> None:
    """With parity: a proposal that fits the shapes but not the rotary table would fail here."""
    assert main([str(FIXTURE), "--ep", "qnn"]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    again = shlex.split(line.removeprefix("for example: rewrite "))
    assert main([*again, "--no-place"]) == 0
    assert (away / "model-qnn" / "config.json").is_file()
