"""Words, files and places that cannot be used are one line on stderr, before any work begins."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import onnx_ir as ir
import pytest

from rewriter import component
from rewriter.cli import main
from tests.command_line import DIMS, FAST, Capture, failure
from tests.decoders import FIXTURE
from tests.graphs import Builder

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
        (_nothing, ["--report", "r.txt"], "--report r.txt: is written as .json or .html"),
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
    monkeypatch.setattr(component, "lower", None)  # not reached
    assert said in failure(capsys, str(model), "--ep", "qnn", *DIMS, *words)
    away.chmod(0o755)
    assert sorted(away.rglob("*")) == before
    assert not (model.parent.parent / "out").exists()


def test_a_decoder_is_offered_a_folder_that_generates(capsys: Capture, away: Path) -> None:
    assert main([str(FIXTURE), "--ep", "qnn", "-o", "out"]) == 2
    start = "to generate text, give the cache a size: rewrite "
    (line,) = (x for x in capsys.readouterr().err.splitlines() if x.startswith(start))
    sized = shlex.split(line.removeprefix(start).replace("1024", "32"))  # as its rotary table
    assert main([*sized, *FAST]) == 0
    assert {"decode.onnx", "prefill.onnx"} <= {path.name for path in (away / "out").iterdir()}


def test_the_fixture_takes_what_the_tool_proposes(capsys: Capture, away: Path) -> None:
    """With parity: a proposal that fits the shapes but not the rotary table would fail here."""
    assert main([str(FIXTURE), "--ep", "qnn"]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    again = shlex.split(line.removeprefix("for example: rewrite "))
    assert main([*again, "--no-place"]) == 0
    assert (away / "model-qnn" / "config.json").is_file()
