"""A form that HTP computes wrong, planted in one layer of four, is found on the emulated device."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest

from rewriter.audit.seen import entry, maker, part, seen_name, visible
from rewriter.cli import main
from rewriter.passes.fold_shapes import settle_shapes
from tests.htp import needs_qnn
from tests.wrong_on_htp import WRONG, blocked_uint4, chain


def test_what_a_device_can_be_asked_for_keeps_its_units_whole() -> None:
    model = chain(blocked_uint4)
    settle_shapes(model)
    values = visible(model)
    names = [value.name for value in values if (value.name or "").startswith("layers.0")]
    assert names == [
        "layers.0/in/integers",
        "layers.0/sum/integers",  # not the product in floats, which is one unit with it
        "layers.0/tanh",
        "layers.0/out",
    ]
    value = values[1]
    assert seen_name(value) == "layers.0/sum/integers as float"
    assert entry(value).name == "layers.0/product"
    assert maker(value).name == "layers.0/product/MatMul"
    made = part(model, [value], {entry(values[0])})
    assert [one.name for one in made.graph.outputs] == [seen_name(value)]
    assert [one.name for one in made.graph.inputs] == ["x"]


@needs_qnn
def test_the_node_is_named_and_the_dump_shows_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, folder = tmp_path / "m.onnx", tmp_path / "dump"
    ir.save(chain(blocked_uint4), path)
    words = ["audit", str(path), "--ep", "qnn", "--json", "--dump", str(folder)]
    assert main(words) == 4
    told = json.loads(capsys.readouterr().out)
    found = told["departure"]
    assert (found["node"], found["op"]) == (f"layers.{WRONG}/product/MatMul", "MatMul")
    assert not found["alone"]["ok"]
    exact = ort.SessionOptions()
    exact.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(folder / "model.onnx", exact, ["CPUExecutionProvider"])
    with np.load(folder / "inputs.npz") as feeds, np.load(folder / "expected.npz") as expected:
        (name,) = expected.files
        (result,) = session.run([name], dict(feeds))
        np.testing.assert_allclose(np.asarray(result), expected[name], atol=1e-5)
        with np.load(folder / "device.npz") as device:
            apart = np.abs(device[name] - expected[name])
    assert apart.max() > 0.3 * np.asarray(result).std()
