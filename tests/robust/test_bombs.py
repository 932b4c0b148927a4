"""Small files that ask for terabytes, or for work without end: refused, or left as they are."""

from __future__ import annotations

import json
import resource
import struct
import sys
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from rewriter.cli import main
from tests.command_line import Capture, failure
from tests.frontends.gguf.altered import fixture as gguf_fixture
from tests.graphs import Builder

F32, I64 = ir.DataType.FLOAT, ir.DataType.INT64
HUGE = 1 << 40
SECONDS = 20
"""No plan of a model of so few bytes takes a tenth of it."""


@pytest.fixture(autouse=True)
def little() -> Generator[None, None, None]:
    """Room for 2 GB beyond what the process has, so that a bomb fails instead of all else."""
    if sys.platform == "win32":
        yield
        return
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (2 << 30), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def planned(model: ir.Model | onnx.ModelProto, folder: Path, *dims: str) -> int:
    """The exit code of a plan, which comes soon."""
    proto = model if isinstance(model, onnx.ModelProto) else ir.to_proto(model)
    (folder / "model.onnx").write_bytes(proto.SerializeToString())
    start = time.process_time()
    words = [part for dim in dims for part in ("--dim", dim)]
    code = main(["plan", str(folder / "model.onnx"), "--ep", "onnx-standard", *words])
    assert time.process_time() - start < SECONDS
    return code


# -- constants that would be folded ------------------------------------------------------------

_FOLDED: dict[str, Sequence[Any]] = {
    "Range": (0, HUGE, 1),
    "ConstantOfShape": ([HUGE],),
    "Expand": ([7], [HUGE, 8]),
    "Tile": ([1, 2], [HUGE]),
    "Pad": ([1, 2], [0, HUGE]),
    "OneHot": ([1, 2], HUGE, [0, 1]),
}


@pytest.mark.parametrize("op", sorted(_FOLDED))
def test_an_op_that_makes_much_of_little(op: str, tmp_path: Path, capsys: Capture) -> None:
    b = Builder()
    x = b.input("x", F32, (1, 4))
    inputs = [b.const(f"c{i}", np.array(v, np.int64)) for i, v in enumerate(_FOLDED[op])]
    large = b.op(op, *inputs, name="large", **({"axis": 0} if op == "OneHot" else {}))
    most = b.op("ReduceMax", large, name="most", keepdims=0)
    y = b.op("Mul", x, b.op("Cast", most, name="cast", to=F32), name="y")
    assert planned(b.model([(y, F32, (1, 4))]), tmp_path) in {0, 3}
    assert capsys.readouterr().err == ""


def test_operands_that_broadcast_against_each_other(tmp_path: Path) -> None:
    """A thousand numbers along each of four axes are a million million sums."""
    b = Builder()
    x = b.input("x", I64, (1,))
    shapes = np.ones((4, 4), np.int64) + np.eye(4, dtype=np.int64) * 999
    large = b.op("Max", *(b.const(f"c{i}", np.zeros(s, np.int64)) for i, s in enumerate(shapes)),
                 name="large")  # fmt: skip
    y = b.op("Add", x, b.op("ReduceMax", large, name="most", keepdims=0), name="y")
    assert planned(b.model([(y, I64, (1,))]), tmp_path) in {0, 3}


def test_folding_stops_where_the_reference_stops(tmp_path: Path) -> None:
    """What cannot be computed is left to the runtime: here a step of nothing."""
    b = Builder()
    x = b.input("x", I64, (1,))
    numbers = [b.const(f"c{i}", np.array(v, np.int64)) for i, v in enumerate((0, 4, 0))]
    y = b.op("Add", x, b.op("Range", *numbers, name="range"), name="y")
    assert planned(b.model([(y, I64, (None,))]), tmp_path) in {0, 2, 3}


# -- work that doubles with every node --------------------------------------------------------


@pytest.mark.parametrize("op", ["Mul", "Add", "Sub", "Div", "Pow", "Max", "And", "Concat"])
@pytest.mark.parametrize("end", ["run-time", "constants"])
def test_ways_that_double(op: str, end: str, tmp_path: Path) -> None:
    """Of x op x, sixty times: no walk may go all the 2^60 ways."""
    b = Builder()
    dtype = ir.DataType.BOOL if op == "And" else F32
    value = b.input("x", dtype, (1,))
    if end == "constants":
        value = b.const("c", np.array([1], dtype.numpy()))
    for i in range(60 if op != "Concat" else 12):
        given = {"axis": 0} if op == "Concat" else {}
        value = b.op(op, value, value, name=f"y{i}", **given)
    y = b.op("Cast", value, name="y", to=I64)
    shape: Any = (1,) if op != "Concat" else (None,)
    assert planned(b.model([(y, I64, shape)]), tmp_path) in {0, 3}


def test_diamonds(tmp_path: Path) -> None:
    """The same over two nodes that differ."""
    b = Builder()
    value = b.input("x", F32, (1,))
    for i in range(60):
        value = b.op("Mul", b.op("Sqrt", value, name=f"a{i}"), b.op("Ceil", value, name=f"b{i}"),
                     name=f"y{i}")  # fmt: skip
    y = b.op("Cast", value, name="y", to=I64)
    assert planned(b.model([(y, I64, (1,))]), tmp_path) in {0, 3}


def test_a_chain_of_thousands(tmp_path: Path) -> None:
    """No walk takes a frame of Python's stack for a node."""
    b = Builder()
    value = b.input("x", F32, (1,))
    for i in range(3000):
        value = b.op(("Sqrt", "Ceil")[i % 2], value, name=f"y{i}")
    y = b.op("Cast", value, name="y", to=I64)
    assert planned(b.model([(y, I64, (1,))]), tmp_path) in {0, 3}


@pytest.mark.parametrize("depth", [5, 20, 24, 60, 400])
def test_graphs_in_graphs(depth: int, tmp_path: Path) -> None:
    """As deep as a parser of protobufs goes, and deeper."""
    b = Builder()
    x, c = b.input("x", F32, (1,)), b.input("c", ir.DataType.BOOL, ())
    y = b.op("Where", c, x, x, name="y")
    proto = ir.to_proto(b.model([(y, F32, (1,))]))
    ends = _field(12, _field(1, b"y"))
    data = _field(1, _field(1, b"x") + _field(2, b"y") + _field(4, b"Relu")) + ends
    for level in range(depth):  # by hand: the library builds none that it cannot parse
        name = b"level%d" % level
        names = ("then_branch", "else_branch") if level < 4 else ("then_branch",)
        branches = b"".join(
            _field(5, _field(1, branch.encode()) + _field(6, data) + _GRAPH) for branch in names
        )
        node = _field(1, b"c") + _field(2, b"y") + _field(3, name) + _field(4, b"If") + branches
        data = _field(1, node) + _field(2, name) + ends
    outputs = proto.graph.SerializeToString()
    proto.ClearField("graph")
    node = data.replace(b"\x12\x01y", b"\x12\x01z")  # the outermost result has a name of its own
    (tmp_path / "model.onnx").write_bytes(
        proto.SerializeToString() + _field(7, outputs) + _field(7, node[: -len(ends)])
    )
    assert main(["plan", str(tmp_path / "model.onnx"), "--ep", "onnx-standard"]) in {0, 2, 3}


_GRAPH = b"\xa0\x01\x05"
"""The type of an attribute that is a graph (field 20)."""


def _field(number: int, data: bytes) -> bytes:
    """A field of a protobuf that holds bytes."""
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(number: int) -> bytes:
    made = bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    return bytes([*made, number])


# -- sizes that are declared ------------------------------------------------------------------


def _tensor_of_terabytes(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].dims[:] = [HUGE, HUGE]


def _external_terabytes(model: onnx.ModelProto) -> None:
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.dims[:] = [HUGE]
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", "model.onnx"), ("offset", "0"), ("length", str(4 * HUGE))):
        tensor.external_data.add(key=key, value=value)


def _dims_of_terabytes(model: onnx.ModelProto) -> None:
    for dim in model.graph.input[0].type.tensor_type.shape.dim:
        dim.dim_value = HUGE


def _many_attributes(model: onnx.ModelProto) -> None:
    model.graph.node[0].attribute.add(
        name="ints", type=onnx.AttributeProto.INTS, ints=range(1 << 20)
    )


@pytest.mark.parametrize(
    "change",
    [_tensor_of_terabytes, _external_terabytes, _dims_of_terabytes, _many_attributes],
)
def test_what_an_onnx_file_declares(change: Any, tmp_path: Path) -> None:
    b = Builder()
    x = b.input("x", F32, (4, 4))
    y = b.op("CumSum", b.op("MatMul", x, b.const("w", np.ones((4, 4), np.float32)), name="xw"),
             b.const("axis", np.array(0, np.int64)), name="y")  # fmt: skip
    proto = ir.to_proto(b.model([(y, F32, (4, 4))]))
    change(proto)
    assert planned(proto, tmp_path) in {0, 2, 3}


_SIZES = (
    *("num_hidden_layers", "vocab_size", "max_position_embeddings", "hidden_size"),
    *("intermediate_size", "num_attention_heads"),
)


def test_what_a_gguf_head_declares(tmp_path: Path, capsys: Capture) -> None:
    """Counts, lengths of texts and lists, and dims, each as the largest number."""
    data = gguf_fixture("mistral").read_bytes()
    largest = struct.pack("<Q", (1 << 64) - 1)
    key = struct.pack("<Q", 20) + b"general.architecture"
    at = data.index(key)
    for place in (8, 16, at, at + len(key) + 4):
        (tmp_path / "m.gguf").write_bytes(data[:place] + largest + data[place + 8 :])
        failure(capsys, "plan", str(tmp_path / "m.gguf"), "--ep", "onnx-standard")
    listed = key + struct.pack("<IIQ", 9, 4, 1 << 62)
    (tmp_path / "m.gguf").write_bytes(data.replace(key, listed))
    failure(capsys, "plan", str(tmp_path / "m.gguf"), "--ep", "onnx-standard")


@pytest.mark.parametrize("key", _SIZES)
def test_what_a_configuration_declares(key: str, tmp_path: Path, capsys: Capture) -> None:
    from tests.frontends.safetensors.altered import fixture

    for path in fixture("gemma").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    (tmp_path / "config.json").write_text(json.dumps({**config, key: HUGE}), encoding="utf-8")
    words = ("plan", str(tmp_path), "--ep", "onnx-standard")
    assert main([*words]) in {0, 2, 3}
    assert len(capsys.readouterr().err.splitlines()) <= 1
