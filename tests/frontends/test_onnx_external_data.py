"""External data of an ONNX file: wherever it is used, described right, and left on disk."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import frontends
from tests.onnx_files import fault, toy

WEIGHT_BYTES = 8 * 80 * 4


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a model goes."""
    return tmp_path / "m.onnx"


def external(tensor: onnx.TensorProto, **entries: str | int) -> bytes:
    """Make a tensor external; returns its bytes."""
    data = tensor.raw_data
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": "w.data", **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    return data


def _initializer(**entries: str | int) -> tuple[onnx.ModelProto, bytes]:
    proto = toy()
    return proto, external(proto.graph.initializer[0], **entries)


def _attribute() -> tuple[onnx.ModelProto, bytes]:
    """The weight as a Constant node's value."""
    proto, data = _initializer()
    constant = onnx.NodeProto(op_type="Constant", name="c", output=["w"])
    attribute = constant.attribute.add(name="value", type=onnx.AttributeProto.TENSOR)
    attribute.t.CopyFrom(proto.graph.initializer[0])
    del proto.graph.initializer[:]
    proto.graph.node.insert(0, constant)
    return proto, data


def _subgraph() -> tuple[onnx.ModelProto, bytes]:
    """The weight inside the branches of an If."""
    proto, data = _initializer()
    outer = toy()
    del outer.graph.node[:], outer.graph.initializer[:]
    flag = outer.graph.input.add(name="flag")
    flag.type.tensor_type.elem_type = onnx.TensorProto.BOOL
    flag.type.tensor_type.shape.SetInParent()
    node = outer.graph.node.add(op_type="If", name="if", input=["flag"], output=["z"])
    for branch in ("then_branch", "else_branch"):
        attribute = node.attribute.add(name=branch, type=onnx.AttributeProto.GRAPH)
        text = proto.graph.SerializeToString()
        attribute.g.ParseFromString(text)
        del attribute.g.input[:]
        attribute.g.node[0].output[0] = attribute.g.node[1].input[0] = f"{branch}/y"
        attribute.g.node[1].output[0] = attribute.g.output[0].name = f"{branch}/z"
    return outer, data


PLACES = {"initializer": _initializer, "attribute": _attribute, "subgraph": _subgraph}


@pytest.mark.parametrize("place", PLACES)
def test_external_data_wherever_it_is_used(path: Path, place: str) -> None:
    proto, data = PLACES[place]()
    found = fault(path, proto)
    assert "missing" in found
    assert "w.data" in found
    (path.parent / "w.data").write_bytes(data[:100])
    found = fault(path, proto)
    assert "up to 2560 of w.data, which has 100 (2460 missing)" in found
    (path.parent / "w.data").write_bytes(data)
    model = frontends.read(path)
    goal = path.parent / "copy" / "m.onnx"
    goal.parent.mkdir()
    ir.save(model, goal, external_data="m.data")
    (path.parent / "w.data").unlink()
    stored = frontends.read(goal)  # self-contained: what it refers to is there
    tensors = [v.const_value for g in stored.graphs() for v in g.initializers.values()]
    tensors += [
        a.as_tensor() for n in stored.graph for a in n.attributes.values() if a.name == "value"
    ]
    assert {t.nbytes for t in tensors if t is not None} == {WEIGHT_BYTES}
    assert all(np.all(t.numpy() == 1) for t in tensors if t is not None)


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"location": "../w.data"}, "'../w.data', which is no file in the model's folder"),
        ({"location": "/etc/passwd"}, "'/etc/passwd', which is no file"),
        ({"location": ""}, "''"),
        ({"offset": -5}, "offset '-5'"),
        ({"offset": "abc"}, "offset 'abc'"),
        ({"length": 10}, "10 bytes of external data"),
        ({"length": 5000}, "5000 bytes of external data"),
        ({"offset": 1}, "1 missing"),
    ],
)
def test_external_data_that_is_described_wrong(
    path: Path, entries: dict[str, str | int], words: str
) -> None:
    proto, data = _initializer(**entries)
    (path.parent / "w.data").write_bytes(data)
    (path.parent.parent / "w.data").write_bytes(data)
    assert words in fault(path, proto)
    (path.parent.parent / "w.data").unlink()


def test_links_are_followed_inside_the_folder_only(path: Path, tmp_path: Path) -> None:
    proto, data = _initializer()
    link = tmp_path / "w.data"
    inside, outside = tmp_path / "real.data", tmp_path.parent / "outside.data"
    for real in (inside, outside):
        real.write_bytes(data)
    link.symlink_to(outside)
    assert "is a link out of the model's folder" in fault(path, proto)
    link.unlink()
    link.symlink_to(inside)
    assert frontends.read(path).graph.initializers["w"].const_value is not None
    link.unlink()
    os.link(inside, link)
    assert "is a hard link" in fault(path, proto)
    link.unlink()
    link.symlink_to(tmp_path / "gone")
    assert "missing" in fault(path, proto)
    outside.unlink()


def test_a_model_without_external_data_keeps_weights_lazy(path: Path) -> None:
    """External weights stay on disk: reading must not load them."""
    proto, data = _initializer()
    onnx.save(proto, path)
    (path.parent / "w.data").write_bytes(data)
    tensor = frontends.read(path).graph.initializers["w"].const_value
    assert isinstance(tensor, ir.ExternalTensor)
    assert tensor.raw is None
