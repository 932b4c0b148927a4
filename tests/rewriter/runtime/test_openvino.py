"""OpenVINO's reader and CPU plugin, on models whose answer is known."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.cli import main
from rewriter.errors import RuntimeFault
from rewriter.outcome import Exit, GraphOutcome
from rewriter.parity.compare import Array
from rewriter.passes.fix_dims import Dims
from rewriter.placement import Placement, place
from rewriter.record import Report
from rewriter.runtime import child, versions
from rewriter.runtime.child import Job, Refused, Result, run
from tests.decoders import FIXTURE
from tests.graphs import Builder
from tests.rewriter.runtime.models import WIDTH, X, linear, save_linear

F32, F16, I64, BOOL = ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.INT64, ir.DataType.BOOL
SHAPE = X.shape
PAST = np.zeros((1, 0, WIDTH), np.float32)
QMOE = "com.microsoft::QMoE"
HERE = versions.installed("openvino")

needs_openvino = pytest.mark.skipif(HERE is None, reason="needs openvino")


def on_openvino(model: Path, feed: dict[str, Array] | None = None, **options: str) -> Placement:
    feeds = [] if feed is None else [feed]
    return place(model, ep="openvino", options=options, time_limit=60, feeds=feeds)


def save(path: Path, b: Builder, *outputs: ir.Value) -> Path:
    for value in outputs:
        value.shape = value.shape or ir.Shape(SHAPE)
        value.type = value.type or ir.TensorType(F32)
    graph = ir.Graph(
        b.inputs,
        list(outputs),
        nodes=b.nodes,
        initializers=b.initializers,
        opset_imports={"": 24, "com.microsoft": 1},
        name="tiny",
    )
    ir.save(ir.Model(graph, ir_version=11), path)
    return path


def save_unsupported(path: Path) -> Path:
    """Two QMoE and a TensorScatter between ops that every version reads."""
    b = Builder()
    x = b.input("x", F32, SHAPE)
    first = b.op(QMOE, b.op("Abs", x, name="a"), name="first", k=1)
    second = b.op(QMOE, first, name="second", k=1)
    return save(path, b, b.op("TensorScatter", second, x, name="scatter"))


@needs_openvino
@pytest.mark.parametrize("data", [None, "m.data"])
def test_a_model_is_placed_whole_and_right(tmp_path: Path, data: str | None) -> None:
    placed = on_openvino(save_linear(tmp_path / "m.onnx", data=data), {"x": X})
    assert (placed.on_ep, placed.on_cpu, placed.partitions, placed.full) == (2, 0, 1, True)
    assert placed.runtime == f"openvino {HERE} (CPU plugin, f32)"
    assert placed.note == ""
    expected = linear(X)
    error = np.abs(placed.outputs[0]["y"] - expected).max() / np.abs(expected).max()
    assert error < 1e-6


@needs_openvino
def test_every_feed_has_outputs_of_its_own(tmp_path: Path) -> None:
    job = Job(save_linear(tmp_path / "m.onnx"), ep="openvino", feeds=[{"x": X}, {"x": -2 * X}])
    result = run(job, time_limit=60)
    for outputs, expected in zip(result.outputs, (linear(X), linear(-2 * X)), strict=True):
        np.testing.assert_allclose(outputs["y"], expected, atol=1e-5)
    assert set(result.seconds) == {"create", "run"}
    assert result.versions == {"openvino": HERE}


@needs_openvino
def test_outputs_come_under_their_onnx_names(tmp_path: Path) -> None:
    """Two names of one tensor, a name like a path, an output that is an input."""
    b = Builder()
    x = b.input("x", F32, SHAPE)
    y = b.op("Add", x, x, name="a/../b:0")
    same, out = b.op("Identity", y, name="0"), b.op("Identity", x, name="passed")
    model = save(tmp_path / "m.onnx", b, same, out, y)
    outputs = on_openvino(model, {"x": X}).outputs[0]
    assert list(outputs) == ["0", "passed", "a/../b:0"]
    np.testing.assert_array_equal(outputs["0"], 2 * X)
    np.testing.assert_array_equal(outputs["passed"], X)
    np.testing.assert_array_equal(outputs["a/../b:0"], 2 * X)


@needs_openvino
def test_only_the_named_outputs_are_returned(tmp_path: Path) -> None:
    b = Builder()
    x = b.input("x", F32, SHAPE)
    model = save(tmp_path / "m.onnx", b, b.op("Abs", x, name="y"), b.op("Neg", x, name="z"))
    job = Job(model, ep="openvino", feeds=[{"x": X}], outputs=["z"])
    assert list(run(job).outputs[0]) == ["z"]
    with pytest.raises(RuntimeFault, match="no output 'nope'"):
        run(Job(model, ep="openvino", feeds=[{"x": X}], outputs=["nope"]))


@needs_openvino
def test_an_empty_past_and_an_input_that_nothing_uses(tmp_path: Path) -> None:
    b = Builder()
    past, x = b.input("past", F32, PAST.shape), b.input("x", F32, SHAPE)
    b.input("unused", I64, (1, 3))
    model = save(tmp_path / "m.onnx", b, b.op("Concat", past, x, name="y", axis=1))
    feed: dict[str, Array] = {"past": PAST, "x": X, "unused": np.zeros((1, 3), np.int64)}
    np.testing.assert_array_equal(on_openvino(model, feed).outputs[0]["y"], X)


@needs_openvino
def test_half_precision_scalars_and_booleans(tmp_path: Path) -> None:
    b = Builder()
    x, scalar = b.input("x", F16, SHAPE), b.input("scalar", F16, ())
    larger = b.op("Greater", x, scalar, name="larger")
    total = b.op("Add", x, scalar, name="total")
    larger.type, total.type = ir.TensorType(BOOL), ir.TensorType(F16)
    feed: dict[str, Array] = {"x": X.astype(np.float16), "scalar": np.array(0.5, np.float16)}
    outputs = on_openvino(save(tmp_path / "m.onnx", b, larger, total), feed).outputs[0]
    np.testing.assert_array_equal(outputs["larger"], feed["x"] > 0.5)
    np.testing.assert_allclose(outputs["total"], feed["x"] + feed["scalar"], atol=1e-2)


@needs_openvino
def test_an_output_that_numpy_cannot_hold_is_an_error_not_a_number(tmp_path: Path) -> None:
    b = Builder()
    y = b.op("Cast", b.input("x", F32, SHAPE), name="y", to=int(ir.DataType.BFLOAT16))
    y.type = ir.TensorType(ir.DataType.BFLOAT16)
    with pytest.raises(RuntimeFault, match="output 'y' is bf16"):
        on_openvino(save(tmp_path / "m.onnx", b, y), {"x": X})


@needs_openvino
@pytest.mark.parametrize(
    ("feed", "words"),
    [
        ({}, "input 'x' is not fed"),
        ({"x": X[:, :, :8]}, "incompatible"),
        ({"x": X.astype(np.float64)}, "f64"),
    ],
)
def test_a_wrong_feed_is_an_error_not_a_number(
    tmp_path: Path, feed: dict[str, Array], words: str
) -> None:
    with pytest.raises(RuntimeFault, match=words) as caught:
        on_openvino(save_linear(tmp_path / "m.onnx"), feed)
    assert "while running feed 0" in str(caught.value)


@needs_openvino
def test_unsupported_ops_are_named_with_their_reason(tmp_path: Path) -> None:
    placed = on_openvino(save_unsupported(tmp_path / "m.onnx"), {"x": X})
    assert (placed.on_ep, placed.on_cpu, placed.partitions, placed.full) == (1, 3, 0, False)
    assert placed.cpu_ops == {QMOE: 2, "TensorScatter": 1}
    assert placed.cpu_nodes[1] == ("second/QMoE", QMOE)
    assert set(placed.reasons) == {name for name, _ in placed.cpu_nodes}
    assert all("does not know the op" in reason for reason in placed.reasons.values())
    assert placed.runtime == f"openvino {HERE}"
    assert "refuses the whole file" in placed.note
    assert placed.outputs == []


@needs_openvino
def test_a_form_that_is_refused_is_named_with_its_reason(tmp_path: Path) -> None:
    b = Builder()
    x = b.input("x", F32, SHAPE)
    y = b.op("Reshape", x, b.const("size", np.array([3, 5])), name="y")
    z = b.op("Reshape", x, b.const("fits", np.array([-1])), name="z")
    placed = on_openvino(save(tmp_path / "m.onnx", b, y, z))
    assert placed.cpu_nodes == [("y/Reshape", "Reshape")]
    assert placed.reasons["y/Reshape"].endswith("[3,5] is incompatible with input shape")


REFUSALS = {
    "2025": """Check 'false' failed at src/frontend.cpp:164:
OpenVINO does not support the following ONNX operations: com.microsoft.QMoE, Abs
Errors during ONNX translation:
While validating ONNX node '<Node(TensorScatter): scatter/TensorScatter>': Check 'a == b' failed \
at src/x.hpp:370:
While validating node 'opset1::X X_3 (opset1::Parameter x[0]:f32[1])' with friendly_name 'X_3':
no good
""",
    "2024": """Errors during ONNX translation:
Check '(x.type() == u8)' failed at src/matmulnbits.cpp:81:
While validating ONNX node '<Node(QMoE): second/QMoE>':
no good: dynamic

""",
    "2026": """Model wasn't fully converted. Failed operations detailed log:
-- QMoE-1 with a message:
While validating ONNX node '<Node(QMoE): first>': Check 'a' failed at src/x.hpp:3:
no good

Summary:
-- No conversion rule found for operations: TensorScatter-24, Abs-13
-- Conversion is failed for: com.microsoft.QMoE
""",
}
UNKNOWN, FAILED = "OpenVINO's reader does not know the op", "no good"


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (
            "2025",
            {
                "a/Abs": UNKNOWN,
                "first/QMoE": UNKNOWN,
                "second/QMoE": UNKNOWN,
                "scatter/TensorScatter": FAILED,
            },
        ),
        ("2024", {"second/QMoE": f"{FAILED}: dynamic"}),
        (
            "2026",
            {"a/Abs": UNKNOWN, "first/QMoE": FAILED, "scatter/TensorScatter": UNKNOWN},
        ),
    ],
)
def test_the_words_of_every_version_are_understood(
    tmp_path: Path, version: str, expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "run", refusing(REFUSALS[version]))
    reasons = on_openvino(save_unsupported(tmp_path / "m.onnx")).reasons
    assert list(reasons.items()) == list(expected.items())


def test_a_refusal_that_names_no_node_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "run", refusing("onnx: Could not open the file"))
    with pytest.raises(Refused):
        on_openvino(save_unsupported(tmp_path / "m.onnx"))


def refusing(said: str) -> Callable[..., Result]:
    def refuse(*_: object, **__: object) -> Result:
        raise Refused("OpenVINO failed", said)

    return refuse


def graph_outcome(placed: Placement, unknown: list[tuple[str, str]]) -> GraphOutcome:
    report = Report(target=target("openvino"), unknown=unknown)
    return GraphOutcome("model", "model.onnx", report, Dims(), placement=placed)


@needs_openvino
def test_a_refusal_contradicts_the_table_unless_the_table_said_nothing(tmp_path: Path) -> None:
    placed = on_openvino(save_unsupported(tmp_path / "m.onnx"))
    assert graph_outcome(placed, []).exit() is Exit.DISAGREE
    assert graph_outcome(placed, list(placed.cpu_nodes[:1])).exit() is Exit.STUCK


@needs_openvino
def test_properties_win_and_wrong_ones_are_refused(tmp_path: Path) -> None:
    model = save_linear(tmp_path / "m.onnx")
    placed = on_openvino(model, {"x": X}, INFERENCE_PRECISION_HINT="bf16", PERF_COUNT="NO")
    assert placed.runtime.endswith("(CPU plugin, bf16)")
    assert placed.note == "INFERENCE_PRECISION_HINT=bf16, PERF_COUNT=NO"
    with pytest.raises(RuntimeFault, match=r"compiling the model: .*property NOPE") as caught:
        on_openvino(model, NOPE="1")
    assert caught.value.kind == "error"
    assert ".cpp" not in str(caught.value)


@needs_openvino
@pytest.mark.parametrize("content", [None, b"not a protobuf" * 20])
def test_a_file_that_is_no_model_is_one_sentence(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "m.onnx"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(RuntimeFault, match="OpenVINO failed while reading the model") as caught:
        run(Job(path, ep="openvino"))
    assert caught.value.kind == "error"
    assert "\n" not in str(caught.value)


@needs_openvino
def test_data_in_another_folder_is_refused(tmp_path: Path) -> None:
    job = Job(save_linear(tmp_path / "m.onnx"), ep="openvino", external_data_dir=tmp_path)
    with pytest.raises(RuntimeFault, match="own folder only"):
        run(job)


@pytest.mark.skipif(HERE != "2026.4.1", reason="what kills one version may be mended in the next")
@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_model_that_kills_openvino_is_a_crash_with_its_signal(tmp_path: Path) -> None:
    b = Builder()
    x = b.input("x", F32, SHAPE)
    weight = b.const("weight", np.full((WIDTH, 1, WIDTH // 2), 0x53, np.uint8))
    scales = b.const("scales", np.ones(WIDTH, np.float32))
    groups = b.const("groups", np.zeros(WIDTH, np.int32))
    words = {"K": WIDTH, "N": WIDTH, "bits": 4, "block_size": WIDTH}
    y = b.op("com.microsoft::MatMulNBits", x, weight, scales, None, groups, name="y", **words)
    with pytest.raises(RuntimeFault, match="OpenVINO crashed with SIGFPE") as caught:
        on_openvino(save(tmp_path / "m.onnx", b, y), {"x": X})
    assert caught.value.kind == "crash"


@pytest.mark.skipif(os.name != "posix", reason="shell scripts")
def test_a_missing_openvino_is_one_line_that_says_how_to_get_it(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -E "$@"\n', encoding="utf-8")
    bare.chmod(0o755)
    with pytest.raises(RuntimeFault, match="openvino is not installed") as caught:
        run(Job(tmp_path / "m.onnx", ep="openvino"), python=bare)
    assert str(caught.value).endswith(f"{bare} -m pip install openvino")
    assert caught.value.kind == "missing"


@needs_openvino
def test_the_installed_version_is_that_of_the_distribution() -> None:
    assert HERE is not None
    assert all(part.isdecimal() for part in HERE.split("."))
    assert versions.installed("openvino", Path(sys.executable)) == HERE


@needs_openvino
@pytest.mark.parametrize("dims", [(1, 8), (8, 0)], ids=["decode", "prefill"])
def test_the_whole_command(tmp_path: Path, dims: tuple[int, int]) -> None:
    report = tmp_path / "report.json"
    words = ["--dim", "batch=1", "--dim", f"seq={dims[0]}", "--dim", f"past={dims[1]}"]
    words += ["-o", str(tmp_path / "out"), "--report", str(report), "--parity", "device"]
    assert main([str(FIXTURE / "model.onnx"), "--ep", "openvino", *words]) == 0
    graph = json.loads(report.read_text(encoding="utf-8"))["graphs"][0]
    assert (graph["placement"]["on_cpu"], graph["placement"]["partitions"]) == (0, 1)
    assert graph["parity"]["device"]["ok"]
    outputs = graph["parity"]["device"]["outputs"]
    assert max(output["max_std"] for output in outputs) < 1e-5
    assert {output["tolerance"] for output in outputs} == {1e-4}


def _refused(placed: Placement) -> Callable[..., Placement]:
    return lambda *_, **__: placed


@needs_openvino
def test_a_table_that_openvino_contradicts_is_exit_5(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the device was to be compared: then there is nothing to compare it with."""
    placed = on_openvino(save_unsupported(tmp_path / "m.onnx"))
    monkeypatch.setattr("rewriter.placing.place", _refused(placed))
    words = ["--dim", "batch=1", "--dim", "seq=1", "--dim", "past=8", "--parity", "device"]
    words += ["-o", str(tmp_path / "out"), "--ep", "openvino"]
    assert main([str(FIXTURE / "model.onnx"), *words]) == 5


def test_without_openvino_the_command_names_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = versions.installed

    def absent(ep: str, python: Path | None = None) -> str | None:
        return None if ep == "openvino" else real(ep, python)

    monkeypatch.setattr("rewriter.placing.installed", absent)
    words = ["--dim", "batch=1", "--dim", "seq=1", "--dim", "past=8", "--parity", "device"]
    words += ["-o", str(tmp_path / "out"), "--ep", "openvino@2026.4.1"]
    assert main([str(FIXTURE / "model.onnx"), *words]) == 2
    assert "pip install 'ep-rewriter[openvino]'" in " ".join(capsys.readouterr().err.split())
