"""Every documented option does what it says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest

from rewriter import __version__, placing
from rewriter.cli import main
from rewriter.runtime.versions import installed
from tests.command_line import DIMS, FAST, Capture
from tests.decoders import FIXTURE, Decoder, decoder

QNN = ["--ep", "qnn@2.7.0", *DIMS]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small decoder; the command works beside it."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "model.onnx"
    ir.save(decoder(Decoder(layers=1)), path)
    return path


def report_of(model: Path, *words: str, code: int = 0) -> dict[str, Any]:
    """The report of a run."""
    assert main([str(model), "-o", "out", "--overwrite", "--report", "r.json", *words]) == code
    data: dict[str, Any] = json.loads(Path("r.json").read_text(encoding="utf-8"))
    assert data["exit"] == code
    return data


def tree(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    return {p.name: p.read_bytes() for p in folder.iterdir()}


# -- help ------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [["--help"], ["plan", "--help"], ["--version"]])
def test_help_comes_without_the_heavy_packages(words: list[str]) -> None:
    code = (
        "import sys; from rewriter.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "finally: print({'onnx', 'numpy', 'onnxruntime', 'onnx_ir', 'rich'} & set(sys.modules),"
        " file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=True
    )
    assert done.stderr.strip() == "set()"
    assert __version__ in done.stdout or "usage: rewrite" in done.stdout


def test_help_names_every_subcommand_and_exit_code(capsys: Capture) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--help"])
    assert left.value.code == 0
    text = capsys.readouterr().out
    for word in ("rewrite plan", "--allow-stuck", "Exit codes", "6 memory or disk", "    rewrite "):
        assert word in text


# -- plan ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec",
    [
        Decoder(weights=weights, packed=packed, rotary=rotary, layers=1)
        for weights in ("fp32", "int4", "int4_qdq")
        for packed, rotary in ((True, True), (False, True), (False, False))
    ],
    ids=str,
)
def test_plan_of_every_decoder(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: Decoder
) -> None:
    monkeypatch.chdir(tmp_path)
    ir.save(decoder(spec), "model.onnx")
    before = tree(tmp_path)
    assert main(["plan", "model.onnx", *QNN]) == 0
    captured = capsys.readouterr()
    assert "every node would be legal (exit 0)" in captured.out
    assert captured.err == ""
    assert tree(tmp_path) == before


def test_plan_of_the_fixture_says_what_stays(capsys: Capture) -> None:
    assert main(["plan", str(FIXTURE), *QNN, "--disable", "add_and_norm"]) == 3
    out = capsys.readouterr().out
    assert out.count("add_and_norm refused: disabled by you") == 1  # four nodes, one reason
    assert "SkipSimplifiedLayerNormalization' and 3 more [" in out
    assert "nodes would be left: 4 stuck, 0 unknown (exit 3)" in out


# -- output ----------------------------------------------------------------------------------


def test_results_go_to_stdout_and_progress_to_stderr(capsys: Capture, model: Path) -> None:
    assert main([str(model), *QNN, *FAST]) == 0
    captured = capsys.readouterr()
    assert captured.err.splitlines() == [
        f"reading {model} ...",
        "rewriting for qnn@2.7.0 ...",
        "writing ...",
    ]
    assert captured.out.splitlines()[0] == "qnn@2.7.0"
    assert "written to model-qnn (exit 0)" in captured.out.splitlines()[-1]
    assert set(tree(Path("model-qnn"))) == {"model.onnx", "model.onnx.data"}


def test_the_same_again_gives_the_same_bytes(model: Path) -> None:
    assert main([str(model), *QNN, *FAST, "-o", "one"]) == 0
    assert main([str(model), *QNN, *FAST, "-o", "two"]) == 0
    assert main(["one", *QNN, *FAST, "-o", "three"]) == 0
    assert tree(Path("one")) == tree(Path("two")) == tree(Path("three"))


def test_the_second_run_changes_nothing(capsys: Capture, model: Path) -> None:
    assert main([str(model), *QNN, *FAST, "-o", "one"]) == 0
    capsys.readouterr()
    assert main(["one", *QNN, *FAST, "-o", "two"]) == 0
    assert "nothing to change" in capsys.readouterr().out


def test_overwrite(model: Path) -> None:
    Path("out").mkdir()
    Path("out", "old.txt").write_text("x")
    assert main([str(model), *QNN, *FAST, "-o", "out"]) == 2
    assert set(tree(Path("out"))) == {"old.txt"}
    assert main([str(model), *QNN, *FAST, "-o", "out", "--overwrite"]) == 0
    assert set(tree(Path("out"))) == {"model.onnx", "model.onnx.data"}


def test_overwrite_keeps_the_old_where_nothing_new_comes(model: Path) -> None:
    Path("out").mkdir()
    Path("out", "old.txt").write_text("x")
    report_of(model, *QNN, *FAST, "--disable", "add_and_norm", code=3)
    assert set(tree(Path("out"))) == {"old.txt"}


def test_in_place(capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m").mkdir()
    monkeypatch.chdir(tmp_path / "m")
    ir.save(decoder(Decoder(layers=1)), "model.onnx", external_data="weights.bin")
    Path("config.json").write_text("{}")
    assert main(["model.onnx", *QNN, *FAST, "-o", "."]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert set(tree(Path())) == {"config.json", "model.onnx", "weights.bin"}
    assert main(["model.onnx", *QNN, *FAST, "-o", ".", "--overwrite"]) == 0
    assert set(tree(Path())) == {"config.json", "model.onnx", "model.onnx.data"}
    assert main(["plan", ".", *QNN]) == 0


# -- proof -----------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["none", "sites", "model"])
def test_parity_levels(model: Path, level: str) -> None:
    found = report_of(model, *QNN, "--no-place", "--parity", level)["graphs"][0]["parity"]
    assert (found is None) == (level == "none")
    if found is not None:
        assert {site["rule"] for site in found["sites"]} == {"add_and_norm", "attention_primitives"}
        assert (found["model"] is None) == (level == "sites")
        assert found["device"] is None


@pytest.mark.skipif(installed("qnn") != "2.7.0", reason="needs onnxruntime-qnn 2.7.0")
def test_parity_on_the_device(model: Path) -> None:
    graph = report_of(model, *QNN, "--parity", "device")["graphs"][0]
    assert graph["parity"]["device"]["ok"]
    assert 0 < graph["parity"]["device"]["outputs"][0]["rms_std"] < 0.005
    assert graph["placement"]["full"]


def test_a_device_that_gave_nothing_is_no_success(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placing.Placing, "unplaceable", lambda _: "")
    monkeypatch.setattr(placing.Placing, "_place", lambda *_: None)
    graph = report_of(model, *QNN, "--parity", "device", code=4)["graphs"][0]
    assert any("the device was not compared" in note for note in graph["notes"])


def test_a_runtime_without_the_target(capsys: Capture, model: Path) -> None:
    words = ["--ep", "qnn@2.4.0", *DIMS, "--parity", "none", "--runtime", sys.executable]
    graph = report_of(model, *words)["graphs"][0]
    assert graph["placement"] is None
    assert any("placement did not run" in note for note in graph["notes"])
    assert "note: placement did not run" in capsys.readouterr().out


def test_no_place(model: Path) -> None:
    graph = report_of(model, *QNN, *FAST)["graphs"][0]
    assert graph["placement"] is None
    assert graph["notes"] == []


def test_too_small_a_budget_is_said_and_is_no_success(capsys: Capture, model: Path) -> None:
    report = report_of(model, *QNN, "--no-place", "--budget", "0.0001", code=4)
    assert all(not site["ok"] for site in report["graphs"][0]["parity"]["sites"])
    out = capsys.readouterr().out
    assert "was stopped after" in out
    assert "it could not be shown" in out


def test_the_seed_changes_what_is_fed(model: Path) -> None:
    words = [*QNN, "--no-place"]
    runs = [report_of(model, *words, "--seed", seed) for seed in ("1", "1", "2")]
    scenarios = [run["graphs"][0]["parity"]["model"]["scenarios"] for run in runs]
    assert scenarios[0] == scenarios[1] != scenarios[2]


# -- rules and rows --------------------------------------------------------------------------


def test_a_disabled_rule_is_named_by_the_report(capsys: Capture, model: Path) -> None:
    report = report_of(model, *QNN, *FAST, "--disable", "add_and_norm", code=3)
    stuck = report["graphs"][0]["stuck"]
    assert {node["op"] for node in stuck} == {"com.microsoft::SkipSimplifiedLayerNormalization"}
    assert stuck[0]["tried"] == [{"rule": "add_and_norm", "refused": "disabled by you"}]
    assert report["output"] is None
    out = capsys.readouterr().out
    assert "add_and_norm refused: disabled by you" in out
    assert "nothing was written (exit 3)" in out
    assert not Path("out").exists()


def test_allow_stuck_keeps_the_list(capsys: Capture, model: Path) -> None:
    words = [*QNN, *FAST, "--disable", "add_and_norm", "--allow-stuck"]
    assert len(report_of(model, *words)["graphs"][0]["stuck"]) == 2
    assert "2 node(s) left as they were" in capsys.readouterr().out
    assert Path("out", "model.onnx").is_file()


def test_allow_stuck_accepts_unknown_nodes_too(model: Path) -> None:
    ir.save(_with_an_op_of_nobody(), model)
    assert len(report_of(model, "--ep", "qnn", *FAST, code=3)["graphs"][0]["unknown"]) == 1
    assert len(report_of(model, "--ep", "qnn", *FAST, "--allow-stuck")["graphs"][0]["unknown"]) == 1


def _with_an_op_of_nobody() -> ir.Model:
    x = ir.val("x", ir.DataType.FLOAT, (1, 4))
    node = ir.Node("my.domain", "Mystery", [x], num_outputs=1, name="mystery")
    y = node.outputs[0]
    y.name, y.type, y.shape = "y", x.type, x.shape
    graph = ir.Graph([x], [y], nodes=[node], opset_imports={"": 22, "my.domain": 1}, name="main")
    return ir.Model(graph, ir_version=10)


def test_legal_and_illegal_win_over_the_table(model: Path) -> None:
    op = "com.microsoft::SkipSimplifiedLayerNormalization"
    after = report_of(model, *QNN, *FAST, "--legal", op)["graphs"][0]["ops_after"]
    assert after[op] == 2
    stuck = report_of(model, *QNN, *FAST, "--illegal", "Gather", code=3)["graphs"][0]["stuck"]
    assert {(node["op"], node["why"]) for node in stuck} == {("Gather", "you said so")}


def test_rows_of_ones_own(model: Path) -> None:
    header = "op\tform\tverdict\tversions\twhy\tevidence\n"
    Path("rows.tsv").write_text(header + "Gather\tany\tillegal\t*\tI saw it\treported:me\n")
    stuck = report_of(model, *QNN, *FAST, "--rows", "rows.tsv", code=3)["graphs"][0]["stuck"]
    assert {node["why"] for node in stuck} == {"I saw it"}


def test_an_override_of_an_op_that_is_not_there_is_said(capsys: Capture, model: Path) -> None:
    words = ["--legal", "MatMulNBit", "--illegal", "Gelu[any]"]
    notes = report_of(model, *QNN, *FAST, *words)["graphs"][0]["notes"]
    assert notes == [
        "--legal MatMulNBit changed nothing: the model has no MatMulNBit",
        "--illegal Gelu[any] changed nothing: the model has no Gelu",
    ]
    assert "note: --legal MatMulNBit changed nothing" in capsys.readouterr().out
    assert main(["plan", str(model), *QNN, *words]) == 0
    assert "note: --legal MatMulNBit changed nothing" in capsys.readouterr().out
