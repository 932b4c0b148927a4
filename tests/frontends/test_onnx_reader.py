"""Every fault that a file can have is one sentence, found before work begins."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import frontends
from rewriter.errors import BadInput
from tests.decoders import FIXTURE, Decoder, decoder
from tests.graphs import Builder

F32 = ir.DataType.FLOAT
Change = Callable[[onnx.ModelProto], None]
WEIGHT_BYTES = 8 * 80 * 4


def toy() -> onnx.ModelProto:
    """Relu of x (1, 8) times w (8, 80)."""
    b = Builder()
    x, w = b.input("x", F32, (1, 8)), b.const("w", np.ones((8, 80), np.float32))
    z = b.op("Relu", b.op("MatMul", x, w, name="y"), name="z")
    return ir.to_proto(b.model([(z, F32, (1, 80))]))


def fault(path: Path, proto: onnx.ModelProto | bytes) -> str:
    """The one sentence that reading a file gives."""
    data = proto if isinstance(proto, bytes) else proto.SerializeToString()
    path.write_bytes(data)
    with pytest.raises(BadInput) as caught:
        frontends.read(path)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(str(path))
    return message.removeprefix(f"{path}: ")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a model goes."""
    return tmp_path / "m.onnx"


# -- no ONNX at all --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"GGUF\x03\0\0\0", "GGUF file"),
        (b"PK\x03\x04....", "zip"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "git lfs pull"),
        (b"<!DOCTYPE html><html>", "web page"),
        (b"hello, I am a text", "cannot be parsed"),
    ],
)
def test_other_files_called_onnx_are_named(path: Path, data: bytes, words: str) -> None:
    assert words in fault(path, data)


def test_damage_anywhere_is_a_sentence(path: Path) -> None:
    ir.save(decoder(Decoder(layers=1)), path)
    data, rng = path.read_bytes(), random.Random(7)
    cuts = [*range(4), *(rng.randrange(len(data)) for _ in range(46))]
    for cut in cuts:
        fault(path, data[:cut])
    for number in range(50):
        damaged = bytearray(data)
        at = rng.randrange(len(data)) if number % 2 else -1 - rng.randrange(3000)
        damaged[at] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        found = ""
        try:
            frontends.read(path)
        except BadInput as error:  # anything else is a fault of ours
            found = str(error)
        assert "\n" not in found


def test_a_name_that_is_no_text(path: Path) -> None:
    data = toy().SerializeToString().replace(b"y/MatMul", b"y/Mat\xfful")
    assert "is no text" in fault(path, data)


# -- files and folders -----------------------------------------------------------------------


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no such file"):
        frontends.read(tmp_path / "nothing.onnx")


def test_unknown_suffix_lists_the_known(tmp_path: Path) -> None:
    other = tmp_path / "model.tflite"
    other.write_bytes(b"TFL3")
    with pytest.raises(BadInput, match=r"'\.tflite'.*\.onnx"):
        frontends.read(other)


def test_folders(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="holds no model"):
        frontends.read(tmp_path)
    for name in ("a.onnx", "b.onnx"):
        onnx.save(toy(), tmp_path / name)
    with pytest.raises(BadInput, match=r"2 models, name one: a\.onnx, b\.onnx"):
        frontends.read(tmp_path)
    (tmp_path / "b.onnx").rename(tmp_path / "B.ONNX")
    (tmp_path / "a.onnx").unlink()
    assert frontends.read(tmp_path).graph.name == "main"


def test_companions_are_what_belongs_to_a_model(tmp_path: Path) -> None:
    onnx.save(toy(), tmp_path / "m.onnx")
    ours = ["config.json", "merges.txt", "special_tokens_map.json", "tokenizer.model", "vocab.txt"]
    for name in [*ours, "notes.txt", "report.json", "photo.png"]:
        (tmp_path / name).write_text("x")
    assert list(frontends.open_source(tmp_path).companions(None).files) == ours


def test_the_fixture_reads() -> None:
    assert frontends.read(FIXTURE).graph.inputs[0].name == "input_ids"


# -- the graph -------------------------------------------------------------------------------


def _drop_outputs(p: onnx.ModelProto) -> None:
    del p.graph.output[:]


def _dangle(p: onnx.ModelProto) -> None:
    p.graph.node[0].input[0] = "nope"


def _cycle(p: onnx.ModelProto) -> None:
    p.graph.node[0].input[0] = "z"


def _define_twice(p: onnx.ModelProto) -> None:
    p.graph.node[1].output[0] = p.graph.output[0].name = "y"


def _two_inputs(p: onnx.ModelProto) -> None:
    p.graph.input.append(p.graph.input[0])


def _two_outputs(p: onnx.ModelProto) -> None:
    p.graph.output.append(p.graph.output[0])


def _two_nodes(p: onnx.ModelProto) -> None:
    p.graph.node[1].name = p.graph.node[0].name


def _two_initializers(p: onnx.ModelProto) -> None:
    p.graph.initializer.append(p.graph.initializer[0])


def _no_opset(p: onnx.ModelProto) -> None:
    del p.opset_import[:]


def _future(p: onnx.ModelProto) -> None:
    p.opset_import[0].version = 999


def _untyped_input(p: onnx.ModelProto) -> None:
    p.graph.input[0].ClearField("type")


def _negative_input(p: onnx.ModelProto) -> None:
    p.graph.input[0].type.tensor_type.shape.dim[1].dim_value = -3


def _compiled(p: onnx.ModelProto) -> None:
    node = p.graph.node.add(op_type="EPContext", domain="com.microsoft", name="ctx", input=["x"])
    node.output.append("q")
    node.attribute.add(name="source", type=onnx.AttributeProto.STRING, s=b"Qnn")


def _odd_attribute(p: onnx.ModelProto) -> None:
    p.graph.node[0].attribute.add(name="odd")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_drop_outputs, "no graph with outputs"),
        (_dangle, "node 'y/MatMul' (MatMul) reads 'nope', which nothing defines"),
        (_cycle, "cycle"),
        (_define_twice, "'y'"),
        (_two_inputs, "two inputs of graph 'main' are named 'x'"),
        (_two_outputs, "two outputs of graph 'main' are named 'z'"),
        (_two_nodes, "two nodes of graph 'main' are named 'y/MatMul'"),
        (_two_initializers, "2 initializers are named 'w'"),
        (_no_opset, "opsets"),
        (_future, "opset 999"),
        (_untyped_input, "'x' declares no type"),
        (_negative_input, "'x' has the shape [1,-3]"),
        (_compiled, "node 'ctx' is an EPContext, compiled for Qnn"),
        (_odd_attribute, "attribute odd"),
    ],
)
def test_a_graph_that_does_not_hang_together(path: Path, change: Change, words: str) -> None:
    proto = toy()
    change(proto)
    assert words in fault(path, proto)


def test_disorder_is_put_in_order_as_runtimes_do(path: Path) -> None:
    proto = toy()
    proto.graph.node.reverse()
    onnx.save(proto, path)
    assert [node.op_type for node in frontends.read(path).graph] == ["MatMul", "Relu"]


# -- tensors in the file ---------------------------------------------------------------------


def _short(p: onnx.ModelProto) -> None:
    p.graph.initializer[0].raw_data = p.graph.initializer[0].raw_data[:-4]


def _short_values(p: onnx.ModelProto) -> None:
    _no_data(p)
    p.graph.initializer[0].float_data.extend([1.0] * 639)


def _no_data(p: onnx.ModelProto) -> None:
    p.graph.initializer[0].ClearField("raw_data")


def _other_shape(p: onnx.ModelProto) -> None:
    p.graph.initializer[0].dims[0] = 4


def _negative(p: onnx.ModelProto) -> None:
    p.graph.initializer[0].dims[0] = -8


def _no_such_type(p: onnx.ModelProto) -> None:
    p.graph.initializer[0].data_type = 99


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_short, "holds 2556 bytes where its shape [8, 80] and type float need 2560"),
        (_short_values, "holds 639 values where its shape [8, 80] and type float need 640"),
        (_no_data, "holds 0 values"),
        (_other_shape, "holds 2560 bytes where its shape [4, 80] and type float need 1280"),
        (_negative, "has the shape [-8, 80]"),
        (_no_such_type, "has the element type 99"),
    ],
)
def test_a_tensor_with_other_bytes_than_it_needs(path: Path, change: Change, words: str) -> None:
    proto = toy()
    change(proto)
    assert f"initializer 'w' {words}" in fault(path, proto)


@pytest.mark.parametrize("dtype", [ir.DataType.INT4, ir.DataType.FLOAT16, ir.DataType.BOOL])
def test_packed_values_are_counted_as_they_are_stored(path: Path, dtype: ir.DataType) -> None:
    proto = toy()
    stored = proto.graph.initializer.add(name="q", data_type=dtype.value, dims=[3])
    stored.int32_data.extend([0] * (2 if dtype == ir.DataType.INT4 else 3))
    onnx.save(proto, path)
    frontends.read(path)
    stored.int32_data.append(0)
    assert "initializer 'q' holds" in fault(path, proto)


# -- external data ---------------------------------------------------------------------------


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
