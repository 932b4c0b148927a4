"""Every fault that a file can have is one sentence, found before work begins."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import onnx
import onnx_ir as ir
import pytest

import frontends
from rewriter.errors import BadInput
from tests.decoders import FIXTURE, Decoder, decoder
from tests.onnx_files import fault, toy

Change = Callable[[onnx.ModelProto], None]


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
    assert list(frontends.open_source(tmp_path).companions().files) == ours
    (tmp_path / "genai_config.json").write_text("{}")
    found = frontends.open_source(tmp_path).companions()
    assert list(found.files) == ours
    assert found.genai is not None
    assert found.genai.content == tmp_path / "genai_config.json"
    (tmp_path / "genai_config.json").write_text("{")
    with pytest.raises(BadInput, match="is no JSON"):
        frontends.open_source(tmp_path).companions()


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
