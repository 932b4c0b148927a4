"""Graphs compiled on QNN's emulator, loaded again and compared."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

import capabilities.socs
from capabilities.socs import Soc
from capabilities.versions import VersionRange
from rewriter import placement
from rewriter.cache_layout import CacheLayout, cache_layout
from rewriter.compiling import Compiled, Differs, NotCompiled, check_context, compile_graph
from rewriter.compiling import compiler as compiler_module
from rewriter.errors import BadInput, OutOfResources, RuntimeFault
from rewriter.runtime import child
from rewriter.runtime.versions import installed
from tests import grouped_query
from tests.graphs import Builder
from tests.rewriter.compiling.contexts import flip, zeros
from tests.rewriter.runtime.models import X, save_linear, save_with_cpu_op

pytestmark = [
    pytest.mark.skipif(installed("qnn") is None, reason="needs onnxruntime-qnn"),
    pytest.mark.skipif(not placement.emulated(), reason="a device has its own SoC"),
]

Change = Callable[[child.Job, child.Result], child.Result]


def compiled(file: Path, soc: str | None = None, **options: str) -> Compiled:
    return compile_graph(file, options=options, soc=soc, feeds=[{"x": X}], time_limit=120)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def source(folder: Path) -> Path:
    return save_linear(folder / "m.onnx", data="model.onnx.data")


@pytest.fixture
def changing(monkeypatch: pytest.MonkeyPatch) -> Callable[[Change], None]:
    """Let a function change what child processes give."""

    def use(change: Change) -> None:
        real = child.run

        def run(
            job: child.Job, *, python: Path | None = None, time_limit: float = 600
        ) -> child.Result:
            return change(job, real(job, python=python, time_limit=time_limit))

        monkeypatch.setattr(child, "run", run)

    return use


def test_a_compiled_graph_lies_beside_it_and_is_equal(tmp_path: Path) -> None:
    file = source(tmp_path)
    model = ir.load(file)
    CacheLayout("left").note(model)
    ir.save(model, file, external_data="model.onnx.data", size_threshold_bytes=0)
    found = compiled(file)
    assert names(tmp_path) == ["m.onnx", "m_ctx.onnx", "m_ctx_qnn.bin", "model.onnx.data"]
    assert (found.context, found.binary) == (tmp_path / "m_ctx.onnx", tmp_path / "m_ctx_qnn.bin")
    assert found.bytes == found.binary.stat().st_size
    assert (found.equal, found.soc, found.note) == (True, "SC8380XP (60, v73)", "")
    assert found.nodes > 0
    context = ir.load(found.context)
    assert {node.op_type for node in context.graph} == {"EPContext"}
    assert cache_layout(context, "m_ctx.onnx") == CacheLayout("left")
    checked = check_context(found.context, version=installed("qnn"), soc="60")
    assert checked.notes == ()
    assert checked.stamp is not None
    assert sorted(checked.stamp.files) == ["m.onnx", "model.onnx.data"]
    for path in (found.context, found.binary):
        assert str(tmp_path).encode() not in path.read_bytes()


def test_the_result_is_the_same_in_any_folder(tmp_path: Path) -> None:
    made = []
    for name in ("a", "b/c"):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        found = compile_graph(source(folder), options={})
        made.append((found.context.read_bytes(), found.binary.read_bytes()))
        assert found.equal is None
        assert "not compared" in found.note
    assert made[0] == made[1]


def test_a_changed_weight_is_noticed_and_compiling_again_replaces(tmp_path: Path) -> None:
    file = source(tmp_path)
    first = compiled(file).binary.read_bytes()
    flip(tmp_path / "model.onnx.data", at=2)
    with pytest.raises(BadInput, match=r"model\.onnx\.data: changed since m_ctx\.onnx"):
        check_context(tmp_path / "m_ctx.onnx")
    again = compiled(file)
    assert again.binary.read_bytes() != first
    assert check_context(again.context).notes == ()


def test_a_moved_pair_still_loads(tmp_path: Path) -> None:
    found = compiled(source(tmp_path))
    there = tmp_path / "device"
    there.mkdir()
    for path in (found.context, found.binary):
        shutil.move(path, there)
    job = child.Job(there / "m_ctx.onnx", ep="qnn", feeds=[{"x": X}])
    assert child.run(job).outputs[0]["y"].shape == X.shape


def test_an_unknown_soc_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="--soc 999: qnn knows no SoC '999'; known: ") as caught:
        compiled(source(tmp_path), soc="999")
    assert caught.value.exit_code == 2
    assert names(tmp_path) == ["m.onnx", "model.onnx.data"]


def test_a_soc_that_only_the_table_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    invented = Soc(999, "SM0000", 73, 8, True, VersionRange("*"))
    monkeypatch.setattr(capabilities.socs, "socs", lambda _: (invented,))
    with pytest.raises(NotCompiled, match=r"QNN took no node at all.*soc_model=999") as caught:
        compiled(source(tmp_path), soc="999")
    assert caught.value.exit_code == 5
    assert names(tmp_path) == ["m.onnx", "model.onnx.data"]


def test_another_soc_is_what_the_context_is_for(tmp_path: Path) -> None:
    found = compiled(source(tmp_path), soc="SM8650")
    assert found.soc == "SM8650 (57, v75)"
    stored = ir.load(found.context).metadata_props["ep_compatibility_info.QNNExecutionProvider"]
    assert ":75:57:" in stored
    with pytest.raises(BadInput, match="soc_model 57, not 60"):
        check_context(found.context, soc="60")


def test_a_soc_without_float16_is_no_evidence(tmp_path: Path) -> None:
    found = compiled(source(tmp_path), soc="30")
    assert "SM8350 (30, v68) has no float16" in found.note


def test_nodes_left_to_the_cpu_are_named(tmp_path: Path) -> None:
    with pytest.raises(NotCompiled, match=r"1 nodes? would stay on the CPU.*'block/skip norm'"):
        compiled(save_with_cpu_op(tmp_path / "m.onnx"))
    assert names(tmp_path) == ["m.onnx"]


def test_floats_on_a_soc_without_float16(tmp_path: Path) -> None:
    with pytest.raises(NotCompiled, match=r"SM8635 \(68, v73\) has no float16, so no float ops"):
        compiled(source(tmp_path), soc="SM8635")


def test_a_difference_is_an_error_with_its_output(
    tmp_path: Path, changing: Callable[[Change], None]
) -> None:
    def change(job: child.Job, result: child.Result) -> child.Result:
        if job.model.name != "m_ctx.onnx":
            return result
        other = result.outputs[0]["y"].copy()
        other[0, 0, 0] += 0.25
        return replace(result, outputs=[{"y": other}])

    changing(change)
    said = r"'y' differs from the uncompiled session: 1 of 128 elements, at most by 0\.25"
    with pytest.raises(Differs, match=said) as caught:
        compiled(source(tmp_path))
    assert caught.value.exit_code == 4
    assert names(tmp_path) == ["m.onnx", "model.onnx.data"]


def test_outputs_that_are_all_zero_prove_nothing(tmp_path: Path) -> None:
    with pytest.raises(Differs, match="every output is 0"):
        compiled(zeros(tmp_path / "m.onnx"))


@pytest.mark.parametrize("at", [1, 2])
def test_interrupted_it_leaves_nothing(
    tmp_path: Path, changing: Callable[[Change], None], at: int
) -> None:
    ran: list[child.Job] = []

    def interrupt(job: child.Job, result: child.Result) -> child.Result:
        ran.append(job)
        if len(ran) > at:
            raise KeyboardInterrupt
        return result

    file = source(tmp_path)
    changing(interrupt)
    with pytest.raises(KeyboardInterrupt):
        compiled(file)
    assert names(tmp_path) == ["m.onnx", "model.onnx.data"]


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    file = source(tmp_path)
    monkeypatch.setattr(compiler_module, "_publish", full)
    with pytest.raises(OutOfResources, match="the disk is full"):
        compiled(file)
    assert names(tmp_path) == ["m.onnx", "model.onnx.data"]


def test_no_time_is_said(tmp_path: Path) -> None:
    with pytest.raises(RuntimeFault, match="was stopped after") as caught:
        compile_graph(source(tmp_path), options={}, time_limit=0.01)
    assert caught.value.kind == "timeout"
    assert names(tmp_path) == ["m.onnx", "model.onnx.data"]


def test_no_runtime_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler_module, "installed", lambda *_: None)
    with pytest.raises(BadInput, match=r"--compile needs onnxruntime-qnn: pip install"):
        compiled(source(tmp_path))


def test_grouped_query_attention_by_op_affinity(tmp_path: Path) -> None:
    """The option names a file here, so the context remembers what that says, and no path."""
    affinity = tmp_path / "affinity.json"
    affinity.write_text(json.dumps({"op_type": {"GroupQueryAttention": "htp"}}))
    case = grouped_query.Case("decode", capacity=16, total=16, valid=(10,))
    model = grouped_query.node(case)
    ir.save(model, tmp_path / "m.onnx")
    feeds = [grouped_query.feeds(model, case)]
    with pytest.raises(NotCompiled, match="op_affinity"):
        compile_graph(tmp_path / "m.onnx", options={}, feeds=feeds)
    found = compile_graph(tmp_path / "m.onnx", options={"op_affinity": str(affinity)}, feeds=feeds)
    assert found.equal
    assert f"compiled with op_affinity={affinity}, which changes what runs" in found.note
    stamp = check_context(found.context).stamp
    assert stamp is not None
    assert stamp.options == {"op_affinity": '{"op_type": {"GroupQueryAttention": "htp"}}'}


def test_the_boundary_of_a_quantized_graph_is_compiled_too(tmp_path: Path) -> None:
    """By default QNN leaves it to the CPU, but not in a session that has none."""
    b = Builder()
    x = b.input("x", ir.DataType.FLOAT, (1, 8, 16))
    scale, zero = b.const("s", np.float32(4e-4)), b.const("z", np.uint16(32768))
    step, middle = b.const("ws", np.float32(0.02)), b.const("wz", np.int8(0))
    weight = b.const("w", b.rng.integers(-127, 128, (16, 16)).astype(np.int8))

    def rounded(value: ir.Value, name: str) -> ir.Value:
        codes = b.op("QuantizeLinear", value, scale, zero, name=f"{name}.codes")
        return b.op("DequantizeLinear", codes, scale, zero, name=name)

    matrix = b.op("DequantizeLinear", weight, step, middle, name="wd")
    y = rounded(b.op("MatMul", rounded(x, "xd"), matrix, name="product"), "y")
    ir.save(b.model([(y, ir.DataType.FLOAT, (1, 8, 16))]), tmp_path / "m.onnx")
    found = compiled(tmp_path / "m.onnx")
    assert (found.equal, found.nodes) == (True, 6)
    with pytest.raises(BadInput, match="offload_graph_io_quantization=1: gives the Q and DQ"):
        compiled(tmp_path / "m.onnx", offload_graph_io_quantization="1")
