"""Parts on disk: beside the whole, over its weights."""

from __future__ import annotations

import hashlib
from pathlib import Path

import onnx_ir as ir
import pytest

from rewriter.cache_layout import CacheLayout, cache_layout
from rewriter.errors import BadInput, RewriteError
from rewriter.split import write_parts
from tests.rewriter.split.toy import Toy, saved


def _files(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir())}


def test_files_are_numbered_as_they_run_and_nothing_else_changes(tmp_path: Path) -> None:
    whole = saved(tmp_path)
    before = _files(tmp_path)
    written = write_parts(whole, 2)
    assert [part.path.name for part in written] == [
        "model-1-embedding.onnx", "model-2-layers.onnx", "model-3-layers.onnx", "model-4-head.onnx"
    ]  # fmt: skip
    after = _files(tmp_path)
    assert after.keys() - before.keys() == {part.path.name for part in written}
    assert {name: after[name] for name in before} == before


def test_weights_stay_where_they_are(tmp_path: Path) -> None:
    whole = saved(tmp_path)
    stored = {
        name: (tensor.offset, tensor.length)
        for name, value in ir.load(whole).graph.initializers.items()
        if isinstance(tensor := value.const_value, ir.ExternalTensor)
    }
    assert len(stored) > 20
    used = []
    for part in write_parts(whole, 2):
        for name, value in ir.load(part.path).graph.initializers.items():
            tensor = value.const_value
            if name in stored:
                assert isinstance(tensor, ir.ExternalTensor)
                assert (tensor.location, tensor.offset, tensor.length) == (
                    "model.onnx.data", *stored[name]
                )  # fmt: skip
                used.append(name)
    assert sorted(set(used)) == sorted(stored)
    assert len(used) == len(stored) + 2, "the tied table and the positions are used twice"


def test_it_is_the_same_every_time(tmp_path: Path) -> None:
    found = []
    for name in "ab":
        (tmp_path / name).mkdir()
        write_parts(saved(tmp_path / name, Toy(layers=5, per_layer=True, sharing=1)), 3)
        found.append(_files(tmp_path / name))
    assert found[0] == found[1]


def test_what_is_noted_of_the_model_goes_along(tmp_path: Path) -> None:
    whole = saved(tmp_path)
    model = ir.load(whole)
    model.metadata_props["mine"] = "kept"
    CacheLayout("left", {"m0a": 4, "m3b": 5}).note(model)
    ir.save(model, whole)
    parts = [ir.load(part.path) for part in write_parts(whole, 2)]
    assert {part.metadata_props["mine"] for part in parts} == {"kept"}
    assert {(part.ir_version, part.producer_name) for part in parts} == {(10, "rewrite tests")}
    layouts = [cache_layout(part, "part") for part in parts]
    assert layouts == [None, CacheLayout("left", {"m0a": 4}), CacheLayout("left", {"m3b": 5}), None]


def test_the_report_has_the_bytes_of_each_part(tmp_path: Path) -> None:
    written = write_parts(saved(tmp_path), 4)
    table, positions, product, norm = 16 * 8 * 4, 64 * 8 * 4, 8 * 8 * 4, 8 * 4
    layer = 4 * product + 2 * norm + 2 * 8 * 16 * 4
    shared = positions + 4 + 4  # rows to look up, and the two numbers of a mask
    assert [part.cut.weights for part in written] == [
        table + 4, *[layer + shared] * 4, table + norm
    ]  # fmt: skip
    nodes = [part.cut.nodes for part in written]
    assert nodes == [2, *[nodes[1]] * 4, 3]


def test_more_parts_than_layers_write_nothing(tmp_path: Path) -> None:
    whole = saved(tmp_path)
    before = _files(tmp_path)
    with pytest.raises(BadInput, match="the model has 4 layers"):
        write_parts(whole, 9)
    assert _files(tmp_path) == before


def test_a_part_that_was_written_wrong_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = ir.load

    def load(path: Path) -> ir.Model:
        model = read(path)
        if "layers" in path.name:
            model.graph.inputs[0].name = "lost"
        return model

    whole = saved(tmp_path)
    monkeypatch.setattr(ir, "load", load)
    with pytest.raises(RewriteError, match=r"split wrong: part 2 .* 'lost'"):
        write_parts(whole, 1)
