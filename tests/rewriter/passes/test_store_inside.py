"""Constants that a reader misreads outside the file stay inside."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.errors import BadInput
from rewriter.lowering import lower, plan
from rewriter.passes import store_inside
from rewriter.passes.store_inside import StoreInside
from tests import ort
from tests.graphs import Builder

F32, F16 = ir.DataType.FLOAT, ir.DataType.FLOAT16
OLD, NEW = target("openvino", "2024.6.0"), target("openvino", "2025.0.0")


def model() -> ir.Model:
    """A float16 weight of 2 KB that two nodes read, a small one, and one of float32."""
    b = Builder()
    x = b.input("x", F16, (4, 32))
    wide = b.const("wide", b.rng.standard_normal((32, 32)).astype(np.float16))
    y = b.op("MatMul", b.op("MatMul", x, wide, name="first"), wide, name="second")
    small = b.const("small", b.rng.standard_normal(32).astype(np.float16))
    z = b.op("Cast", b.op("Add", y, small, name="sum"), name="float", to=F32)
    full = b.const("full", b.rng.standard_normal((4, 32)).astype(np.float32))
    return b.model([(b.op("Add", z, full, name="z"), F32, (4, 32))])


def given() -> ort.Arrays:
    return {"x": np.random.default_rng(1).standard_normal((4, 32)).astype(np.float16)}


def outputs(path: Path) -> np.ndarray:
    """What a written model computes, its external data read by us."""
    found = ir.load(path)
    for value in found.graph.initializers.values():
        assert value.const_value is not None
        value.const_value = ir.tensor(value.const_value.numpy(), name=value.name)
    return ort.run(found, given())["z"]


def test_what_is_big_and_misread_is_kept_in_the_file(tmp_path: Path) -> None:
    changed = model()
    expected = ort.run(changed, given())["z"]
    report = lower(changed, OLD)
    assert report.ops_after["Constant"] == 1
    (note,) = [text for text in report.notes if "model's own file" in text]
    assert note.startswith("0.0 MB of weights are kept in the model's own file: OpenVINO 2024")
    ir.save(changed, tmp_path / "m.onnx", external_data="m.data")
    written = ir.load(tmp_path / "m.onnx")
    assert set(written.graph.initializers) == {"small", "full"}
    assert isinstance(written.graph.initializers["full"].const_value, ir.ExternalTensor)
    assert np.array_equal(outputs(tmp_path / "m.onnx"), expected)


def test_weights_that_lie_outside_are_read_when_it_is_saved(tmp_path: Path) -> None:
    ir.save(model(), tmp_path / "m.onnx", external_data="m.data")
    changed = ir.load(tmp_path / "m.onnx")
    expected = ort.run(model(), given())["z"]
    lower(changed, OLD)
    (tmp_path / "other").mkdir()
    ir.save(changed, tmp_path / "other" / "m.onnx", external_data="m.data")
    (tmp_path / "m.data").unlink()
    assert np.array_equal(outputs(tmp_path / "other" / "m.onnx"), expected)


def test_elsewhere_nothing_changes() -> None:
    report = lower(changed := model(), NEW)
    assert "wide" in changed.graph.initializers
    assert not report.notes
    plan(again := model(), OLD)
    assert "wide" in again.graph.initializers


def test_more_than_a_file_can_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_inside, "_MOST", 1000)
    changed = model()
    with pytest.raises(BadInput, match="that file can hold 2 GB: use a newer openvino"):
        lower(changed, OLD)
    assert "wide" in changed.graph.initializers


def test_without_rows_about_it_nothing_is_looked_at() -> None:
    rows = tuple(row for row in OLD.rows if "outside the file" not in str(row.form))
    assert not StoreInside(replace(OLD, rows=rows))(model()).modified
