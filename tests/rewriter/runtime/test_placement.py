from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rewriter import placement
from rewriter.errors import RuntimeFault
from rewriter.placement import Placement, place
from rewriter.runtime import child, versions
from tests.rewriter.runtime.models import (
    X,
    linear,
    save_empty_sum,
    save_linear,
    save_with_cpu_op,
)

SKIP_NORM = "com.microsoft::SkipSimplifiedLayerNormalization"

needs_qnn = pytest.mark.skipif(versions.installed("qnn") is None, reason="needs onnxruntime-qnn")
emulated = pytest.mark.skipif(not placement.emulated(), reason="a device has its own SoC")


def on_qnn(model: Path, *, run: bool = True, **options: str) -> Placement:
    feeds = [{"x": X}] if run else []
    return place(model, ep="qnn", options=options, time_limit=60, feeds=feeds)


def relative_error(placed: Placement) -> float:
    expected = linear(X)
    return float(np.abs(placed.outputs[0]["y"] - expected).max() / np.abs(expected).max())


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[child.Job]:
    """Every job that reaches a child process."""
    seen: list[child.Job] = []
    real = child.run

    def record(
        job: child.Job, *, python: Path | None = None, time_limit: float = 600
    ) -> child.Result:
        seen.append(job)
        return real(job, python=python, time_limit=time_limit)

    monkeypatch.setattr(child, "run", record)
    return seen


@needs_qnn
def test_a_placed_model_is_proven_by_one_session(tmp_path: Path, jobs: list[child.Job]) -> None:
    placed = on_qnn(save_linear(tmp_path / "m.onnx"), run=False)
    assert placed.full
    assert (placed.on_ep > 0, placed.on_cpu, placed.partitions) == (True, 0, 1)
    assert (placed.cpu_ops, placed.cpu_nodes, placed.reasons, placed.outputs) == ({}, [], {}, [])
    assert [job.config for job in jobs] == [{"session.disable_cpu_ep_fallback": "1"}]


@needs_qnn
@emulated
def test_the_emulator_computes_with_the_arithmetic_of_the_device(tmp_path: Path) -> None:
    placed = on_qnn(save_linear(tmp_path / "m.onnx"))
    assert 1e-5 < relative_error(placed) < 1e-2
    assert placed.runtime.endswith("(emulated, soc 60)")
    assert f"onnxruntime-qnn {versions.installed('qnn')}" in placed.runtime
    assert placed.note == ""


@needs_qnn
@emulated
def test_a_soc_that_emulates_fp32_is_noted(tmp_path: Path) -> None:
    placed = on_qnn(save_linear(tmp_path / "m.onnx"), soc_model="30")
    assert relative_error(placed) < 1e-5
    assert "soc_model=30" in placed.note
    assert "(emulated, soc 30)" in placed.runtime


@needs_qnn
def test_a_node_left_to_the_cpu_comes_with_its_reason(
    tmp_path: Path, jobs: list[child.Job]
) -> None:
    placed = on_qnn(save_with_cpu_op(tmp_path / "m.onnx"))
    assert not placed.full
    assert (placed.on_cpu, placed.partitions) == (1, 2)
    assert placed.cpu_ops == {SKIP_NORM: 1}
    assert placed.cpu_nodes == [("block/skip norm", SKIP_NORM)]
    assert placed.reasons == {
        "block/skip norm": "Operators of type `SkipSimplifiedLayerNormalization` are not "
        "supported by QNN EP."
    }
    assert placed.note == ""
    assert placed.outputs[0]["y"].shape == X.shape
    assert len(jobs) == 2


@needs_qnn
@emulated
def test_a_graph_that_goes_to_the_cpu_silently_is_noted(tmp_path: Path) -> None:
    placed = on_qnn(save_linear(tmp_path / "m.onnx"), soc_model="999")
    assert not placed.full
    assert (placed.on_ep, placed.partitions, placed.reasons) == (0, 0, {})
    assert placed.on_cpu > 0
    assert "QNN took no node at all" in placed.note
    assert "soc_model=999" in placed.note
    assert "QNN_DEVICE_ERROR_INVALID_CONFIG" in placed.note


@needs_qnn
def test_no_proof_is_never_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = child.run

    def refuse(
        job: child.Job, *, python: Path | None = None, time_limit: float = 600
    ) -> child.Result:
        if job.config:
            raise RuntimeFault("error", "fallback to CPU EP has been explicitly disabled")
        return real(job, python=python, time_limit=time_limit)

    monkeypatch.setattr(child, "run", refuse)
    placed = on_qnn(save_linear(tmp_path / "m.onnx"), run=False)
    assert placed.on_cpu == 0
    assert not placed.full


@needs_qnn
@emulated
def test_a_model_that_kills_the_runtime_is_a_crash_with_its_signal(tmp_path: Path) -> None:
    with pytest.raises(RuntimeFault, match="SIGFPE while creating the session") as caught:
        on_qnn(save_empty_sum(tmp_path / "m.onnx"), run=False)
    assert caught.value.kind == "crash"


@needs_qnn
@emulated
@pytest.mark.parametrize("config", [{}, {"session.disable_cpu_ep_fallback": "1"}])
def test_a_refused_option_is_an_error_not_a_session_on_the_cpu(
    tmp_path: Path, config: dict[str, str]
) -> None:
    options = {"soc_model": "60", "htp_bf16_enable": "1"}
    model = save_linear(tmp_path / "m.onnx")
    job = child.Job(model, ep="qnn", provider_options=options, config=config)
    with pytest.raises(RuntimeFault, match="BF16") as caught:
        child.run(job)
    assert caught.value.kind == "error"


@needs_qnn
def test_a_verbose_session_prints_nothing_of_ours(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    job = child.Job(save_linear(tmp_path / "m.onnx"), ep="qnn", verbose=True)
    child.run(job)
    assert capfd.readouterr() == ("", "")


def test_on_the_cpu_target_every_node_is_at_home(tmp_path: Path) -> None:
    model = save_with_cpu_op(tmp_path / "m.onnx")
    placed = place(model, ep="ort-cpu", options={}, feeds=[{"x": X}], time_limit=60)
    assert placed.full
    assert (placed.on_ep > 0, placed.on_cpu) == (True, 0)
    assert placed.runtime == f"onnxruntime {versions.installed('ort-cpu')}"
    assert placed.outputs[0]["y"].shape == X.shape


@pytest.mark.parametrize("ep", ["openvino-ep", "onnx-standard"])
def test_other_targets_say_that_placement_is_not_built(tmp_path: Path, ep: str) -> None:
    with pytest.raises(RuntimeFault, match=f"placement for {ep} is not built yet") as caught:
        place(save_linear(tmp_path / "m.onnx"), ep=ep, options={})
    assert caught.value.kind == "missing"
