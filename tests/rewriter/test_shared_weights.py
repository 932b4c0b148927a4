"""Two graphs of a folder: equal weights are stored once, others beside."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir

from rewriter.shared_weights import save_beside
from rewriter.streamed import StreamedTensor

SAME = np.arange(4096, dtype=np.float32).reshape(64, 64)


def _model(other: np.ndarray, *, streamed: bool) -> ir.Model:
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape((1, 64)))
    same: ir.TensorProtocol = ir.tensor(SAME)
    if streamed:
        same = StreamedTensor(lambda: lambda a, b: SAME[a:b], ir.DataType.FLOAT, (64, 64), 64)
    values = []
    for name, tensor in (("same", same), ("other", ir.tensor(other)), ("tiny", ir.tensor(SAME[0]))):
        tensor.name = name
        values.append(ir.Value(name=name, const_value=tensor))
    nodes = [ir.node("MatMul", [x, values[0]])]
    nodes.append(ir.node("MatMul", [nodes[0].outputs[0], values[1]]))
    nodes.append(ir.node("Add", [nodes[1].outputs[0], values[2]]))
    nodes[2].outputs[0].name = "y"
    graph = ir.Graph([x], nodes[2].outputs, nodes=nodes, initializers=values, name="g")
    graph.opset_imports[""] = 21
    return ir.Model(graph, ir_version=10)


def _weights(path: Path) -> dict[str, np.ndarray]:
    graph = ir.load(path).graph
    return {
        name: value.const_value.numpy()
        for name, value in graph.initializers.items()
        if value.const_value is not None
    }


def test_equal_weights_are_stored_once(tmp_path: Path) -> None:
    first = tmp_path / "a.onnx"
    ir.save(_model(SAME, streamed=False), first, external_data="model.onnx.data")
    size = (tmp_path / "model.onnx.data").stat().st_size
    shared = save_beside(_model(SAME + 1, streamed=True), tmp_path / "b.onnx", ir.load(first))
    assert shared == SAME.nbytes
    assert (tmp_path / "model.onnx.data").stat().st_size == size
    assert (tmp_path / "b.onnx.data").stat().st_size == SAME.nbytes
    found = _weights(tmp_path / "b.onnx")
    assert (found["same"] == SAME).all()
    assert (found["other"] == SAME + 1).all()
    assert (found["tiny"] == SAME[0]).all()


def test_a_name_alone_is_not_enough(tmp_path: Path) -> None:
    """One number differs in the last row, and a shape."""
    first = tmp_path / "a.onnx"
    ir.save(_model(SAME, streamed=False), first, external_data="model.onnx.data")
    changed = SAME.copy()
    changed[-1, -1] += 1
    save_beside(_model(changed, streamed=False), tmp_path / "b.onnx", ir.load(first))
    assert (_weights(tmp_path / "b.onnx")["other"] == changed).all()
    save_beside(_model(SAME[:, :32].copy(), streamed=False), tmp_path / "c.onnx", ir.load(first))
    assert _weights(tmp_path / "c.onnx")["other"].shape == (64, 32)


def test_another_shape_is_the_same_weight(tmp_path: Path) -> None:
    """As experts have it that one graph gathers, and the other multiplies by at once."""
    first = tmp_path / "a.onnx"
    turned = (SAME + 1).reshape(128, 32)
    ir.save(_model(turned, streamed=False), first, external_data="model.onnx.data")
    assert save_beside(_model(SAME + 1, streamed=False), tmp_path / "b.onnx", ir.load(first)) == (
        2 * SAME.nbytes
    )
    assert not (tmp_path / "b.onnx.data").exists()
    assert (_weights(tmp_path / "b.onnx")["other"] == SAME + 1).all()


def test_nothing_of_its_own_is_no_file(tmp_path: Path) -> None:
    first = tmp_path / "a.onnx"
    ir.save(_model(SAME, streamed=False), first, external_data="model.onnx.data")
    assert save_beside(_model(SAME, streamed=False), tmp_path / "b.onnx", ir.load(first))
    assert not (tmp_path / "b.onnx.data").exists()
    assert (_weights(tmp_path / "b.onnx")["other"] == SAME).all()
