"""Wrong interfaces, planted: each is found and named."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

from rewriter.errors import RewriteError
from rewriter.split import Part, check, split
from tests.rewriter.split.toy import Toy, toy

Parts = list[Part]


def _renamed(parts: Parts) -> None:
    parts[1].model.graph.inputs[0].name = "hidden"


def _other_type(parts: Parts) -> None:
    parts[1].model.graph.inputs[0].type = ir.TensorType(ir.DataType.FLOAT16)


def _other_shape(parts: Parts) -> None:
    parts[2].model.graph.inputs[0].shape = ir.Shape([1, 2, 9])


def _other_mask(parts: Parts) -> None:
    mask = next(v for v in parts[1].model.graph.inputs if v.name == "seen")
    mask.type = ir.TensorType(ir.DataType.INT32)


def _no_logits(parts: Parts) -> None:
    parts[-1].model.graph.outputs.pop()


def _other_logits(parts: Parts) -> None:
    parts[-1].model.graph.outputs[0].shape = ir.Shape([1, 2, 17])


def _twice(parts: Parts) -> None:
    present = parts[1].model.graph.outputs[-1]
    parts[2].model.graph.outputs[-1].name = present.name


def _swapped(parts: Parts) -> None:
    parts[1], parts[2] = parts[2], parts[1]


def _lost(parts: Parts) -> None:
    del parts[1]


def _unread(parts: Parts) -> None:
    float_ = ir.TensorType(ir.DataType.INT64)
    parts[-1].model.graph.inputs.append(
        ir.Value(name="places", type=float_, shape=ir.Shape([1, 2]))
    )


def _for_nobody(parts: Parts) -> None:
    graph = parts[1].model.graph
    graph.outputs.append(graph.node(0).outputs[0])


def _version(parts: Parts) -> None:
    parts[1].model.graph.opset_imports[""] = 23


def _undefined(parts: Parts) -> None:
    graph = parts[1].model.graph
    del graph.initializers[next(iter(graph.initializers))]


FAULTS: dict[Callable[[Parts], None], str] = {
    _renamed: r"part 2 \(layers\) reads 'hidden', which is no input of the model nor of a part",
    _other_type: r"part 2 \(layers\) reads 'hidden_states.1' as float16 .*; it is float \[1,2,8\]",
    _other_shape: r"part 3 \(layers\) reads 'hidden_states.2' as float \[1,2,9\]; it is",
    _other_mask: r"part 2 \(layers\) reads 'seen' as int32 .*; it is int64",
    _no_logits: "no part computes the output 'v",
    _other_logits: r"part 4 \(head\) computes 'v.*' as float \[1,2,17\]; in the model it is",
    _twice: r"part 3 \(layers\) computes 'v.*', which is there already",
    _swapped: r"part 2 \(layers\) reads 'hidden_states.2', which is no input of the model nor",
    _lost: r"part 2 \(layers\) reads 'hidden_states.2', which is no input of the model nor",
    _unread: r"part 4 \(head\): no node reads the input 'places'",
    _for_nobody: "no part reads 'v.*', which is no output of the model",
    _version: r"part 2 \(layers\): its versions .*23.* are not those of the model",
    _undefined: r"part 2 \(layers\): node .* reads 'zero', which nothing defines",
}


@pytest.mark.parametrize("plant", FAULTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_found(plant: Callable[[Parts], None]) -> None:
    model = toy(Toy(layers=2))
    parts = split(model, 2)
    check(parts, model)
    plant(parts)
    with pytest.raises(RewriteError, match=f"the model was split wrong: {FAULTS[plant]}"):
        check(parts, model)


def test_an_input_that_nothing_reads_belongs_to_no_part() -> None:
    model = toy()
    unread = ir.TensorType(ir.DataType.INT64)
    model.graph.inputs.append(ir.Value(name="unread", type=unread, shape=ir.Shape([1])))
    parts = split(model, 2)
    assert not [p for p in parts if "unread" in {v.name for v in p.model.graph.inputs}]
    check(parts, model)


def test_an_initializer_that_is_an_input_stays_both() -> None:
    """A caller may give it, so it is no constant."""
    model = toy()
    scale = model.graph.initializers["scale"]
    model.graph.inputs.append(scale)
    parts = split(model, 1)
    check(parts, model)
    graph = parts[0].model.graph
    assert "scale" in [v.name for v in graph.inputs]
    kept = graph.initializers["scale"].const_value
    assert kept is not None
    assert kept.numpy() == np.float32(2)
