"""What a person is told of a context that cannot be loaded, or no longer stands for its graph."""

from __future__ import annotations

import shutil
from pathlib import Path

import onnx_ir as ir
import pytest

from rewriter.compiling import check_context
from rewriter.errors import BadInput
from tests.rewriter.compiling.contexts import context, flip, folder
from tests.rewriter.runtime.models import save_linear


def test_a_sound_context(tmp_path: Path) -> None:
    found = check_context(folder(tmp_path), version="2.6.0", soc="60")
    assert found.binaries == (tmp_path / "m_ctx_qnn.bin",)
    assert found.stamp is not None
    assert (found.stamp.source, found.stamp.soc) == ("m.onnx", "60")
    assert found.options == {"soc_model": "60", "vtcm_mb": "8"}
    assert found.notes == ()


def test_a_missing_binary(tmp_path: Path) -> None:
    file = folder(tmp_path)
    (tmp_path / "m_ctx_qnn.bin").unlink()
    with pytest.raises(BadInput, match=r"m_ctx\.onnx: its binary 'm_ctx_qnn\.bin' is missing"):
        check_context(file)


def test_a_truncated_binary(tmp_path: Path) -> None:
    file = folder(tmp_path)
    binary = tmp_path / "m_ctx_qnn.bin"
    binary.write_bytes(binary.read_bytes()[:-1])
    with pytest.raises(BadInput, match=r"m_ctx_qnn\.bin: has 25 bytes, 26 were compiled"):
        check_context(file, weights=False)


def test_a_changed_binary(tmp_path: Path) -> None:
    file = folder(tmp_path)
    flip(tmp_path / "m_ctx_qnn.bin")
    with pytest.raises(BadInput, match=r"m_ctx_qnn\.bin: is not what was compiled"):
        check_context(file)


@pytest.mark.parametrize("name", ["m.onnx", "model.onnx.data"])
def test_a_source_that_changed(tmp_path: Path, name: str) -> None:
    file = folder(tmp_path)
    flip(tmp_path / name)
    with pytest.raises(BadInput, match=rf"{name}: changed since m_ctx\.onnx was compiled"):
        check_context(file)
    assert check_context(file, weights=False).notes == ()


def test_a_context_shipped_alone(tmp_path: Path) -> None:
    file = folder(tmp_path)
    there = tmp_path / "device"
    there.mkdir()
    for name in ("m_ctx.onnx", "m_ctx_qnn.bin"):
        shutil.copy(tmp_path / name, there)
    (note,) = check_context(there / file.name).notes
    assert note == "not beside m_ctx.onnx, so not compared with it: m.onnx, model.onnx.data"


def test_an_older_runtime(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"compiled by onnxruntime-qnn 2\.6\.0, and 2\.5\.0 is inst"):
        check_context(folder(tmp_path), version="2.5.0")


def test_a_newer_runtime_is_noted(tmp_path: Path) -> None:
    (note,) = check_context(folder(tmp_path), version="2.10.0").notes
    assert note == "m_ctx.onnx was compiled by onnxruntime-qnn 2.6.0, which 2.10.0 loads"


def test_another_soc(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"compiled for soc_model 60, not 69; .* --soc 69"):
        check_context(folder(tmp_path), soc="69")


def test_one_for_the_machine_itself_has_no_soc(tmp_path: Path) -> None:
    assert check_context(folder(tmp_path, soc=""), soc="69").notes == ()


def test_a_graph_is_no_context(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is not compiled: it has no EPContext node"):
        check_context(save_linear(tmp_path / "m.onnx"))


def test_what_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "m_ctx.onnx").write_bytes(b"no model")
    with pytest.raises(BadInput, match=r"m_ctx\.onnx: cannot be read"):
        check_context(tmp_path / "m_ctx.onnx")


def test_another_tool_s_context(tmp_path: Path) -> None:
    ir.save(context(), tmp_path / "m_ctx.onnx")
    (tmp_path / "m_ctx_qnn.bin").write_bytes(b"its")
    found = check_context(tmp_path / "m_ctx.onnx", version="2.3.0", soc="1")
    assert found.stamp is None
    assert "was not compiled by rewrite" in found.notes[0]


def test_one_that_holds_its_binary_needs_no_file(tmp_path: Path) -> None:
    ir.save(context("its bytes", embed=1), tmp_path / "m_ctx.onnx")
    assert check_context(tmp_path / "m_ctx.onnx").binaries == ()


@pytest.mark.parametrize("name", ["../m_ctx_qnn.bin", "/elsewhere/m_ctx_qnn.bin", "a/b.bin"])
def test_a_binary_elsewhere(tmp_path: Path, name: str) -> None:
    ir.save(context(name), tmp_path / "m_ctx.onnx")
    with pytest.raises(BadInput, match=rf"loads '{name}', which is not beside it"):
        check_context(tmp_path / "m_ctx.onnx")


@pytest.mark.parametrize("stored", ["no json", "[]", "{}", '{"soc": 1}'])
def test_a_damaged_note(tmp_path: Path, stored: str) -> None:
    file = folder(tmp_path)
    model = ir.load(file)
    model.metadata_props["rewriter.compiled"] = stored
    ir.save(model, file)
    with pytest.raises(BadInput, match=r"'rewriter\.compiled' is damaged"):
        check_context(file)


def test_a_binary_that_the_note_does_not_know(tmp_path: Path) -> None:
    file = folder(tmp_path)
    model = ir.load(file)
    attribute = ir.AttrString("ep_cache_context", "model.onnx.data")
    model.graph.node(0).attributes["ep_cache_context"] = attribute
    ir.save(model, file)
    with pytest.raises(BadInput, match=r"loads 'model\.onnx\.data', which it was not compiled to"):
        check_context(file)
