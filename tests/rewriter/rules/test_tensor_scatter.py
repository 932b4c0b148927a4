"""TensorScatter lowered, against ONNX Runtime's kernel, or the reference for types it lacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from capabilities import target
from rewriter.lowering import Stuck, lower
from rewriter.parity.domains import DOMAINS
from tests import htp, ort
from tests.graphs import Builder

F32, I64 = ir.DataType.FLOAT, ir.DataType.INT64
QNN = target("qnn", "2.7.0")
STANDARD = target("onnx-standard", illegal=("TensorScatter",))


@dataclass(frozen=True)
class Case:
    """One node: the dims of its cache, how many rows are new, and where they go."""

    name: str
    cache: tuple[int, ...] = (2, 2, 8, 4)
    new: int = 1
    starts: tuple[int, ...] = (3, 6)
    axis: int | None = None
    mode: str | None = None
    constant: bool = False
    dtype: ir.DataType = F32

    @property
    def update(self) -> tuple[int, ...]:
        axis = -2 if self.axis is None else self.axis
        dims = list(self.cache)
        dims[axis] = self.new
        return tuple(dims)


def node(case: Case, batch: str = "") -> ir.Model:
    b = Builder()

    def dims(shape: tuple[int, ...]) -> Sequence[int | str]:
        return [batch, *shape[1:]] if batch else shape

    values: list[ir.Value | None] = [
        b.input("past_cache", case.dtype, dims(case.cache)),
        b.input("update", case.dtype, dims(case.update)),
    ]
    if case.starts and case.constant:
        values.append(b.const("write_indices", np.array(case.starts)))
    elif case.starts:
        values.append(b.input("write_indices", I64, dims((len(case.starts),))))
    given = {"axis": case.axis, "mode": case.mode}
    attributes = {name: value for name, value in given.items() if value is not None}
    (y,) = b.node("TensorScatter", values, ["present"], **attributes)
    return b.model([(y, case.dtype, dims(case.cache))], opset=24)


def inputs(case: Case) -> ort.Arrays:
    rng = np.random.default_rng(0)
    kind = case.dtype.numpy()
    return {
        "past_cache": rng.integers(0, 100, case.cache).astype(kind),
        "update": rng.integers(100, 120, case.update).astype(kind),
        "write_indices": np.array(case.starts, np.int64),
    }


def reference(model: ir.Model, feeds: ort.Arrays) -> np.ndarray[Any, Any]:
    """What the standard's own reference implementation gives."""
    evaluator: Any = ReferenceEvaluator(ir.to_proto(model))
    given = {v.name: feeds[v.name] for v in model.graph.inputs if v.name}
    return np.asarray(evaluator.run(None, given)[0])


CASES = [
    Case("one row"),
    Case("several rows", new=3, starts=(3, 5)),
    Case("all rows", new=8, starts=(0, 0)),
    Case("the first and the last row", starts=(0, 7)),
    Case("no indices", starts=(), new=3),
    Case("no indices, all rows", starts=(), new=8),
    Case("no indices, circular", starts=(), new=3, mode="circular"),
    Case("linear, said", mode="linear"),
    Case("circular", mode="circular"),
    Case("circular, wraps", new=3, starts=(6, 7), mode="circular"),
    Case("circular, beyond the end", new=2, starts=(8, 23), mode="circular"),
    Case("circular, all rows, wraps", new=8, starts=(3, 5), mode="circular"),
    Case("constant indices", new=2, constant=True),
    Case("constant indices, wrap", new=3, starts=(6, 7), mode="circular", constant=True),
    Case("axis 1 of 3", cache=(2, 8, 4), axis=1, new=2),
    Case("axis -1", cache=(2, 4, 8), axis=-1, new=2),
    Case("axis 1 of 4", cache=(2, 8, 3, 4), axis=1, new=2),
    Case("axis 3 of 4, circular", cache=(2, 3, 4, 8), axis=3, new=3, mode="circular"),
    Case("rank 2", cache=(2, 8), axis=1, new=2),
    Case("rank 5", cache=(2, 2, 3, 8, 2), new=2),
    Case("rank 5, axis 1, circular", cache=(2, 8, 3, 2, 2), axis=1, new=3, mode="circular"),
    Case("one sequence", cache=(1, 2, 8, 4), starts=(5,)),
    Case("more sequences than rows, circular", cache=(5, 4, 1), starts=(0, 1, 2, 3, 6), axis=1,
         new=2, mode="circular"),
    *(Case(f"of {d}", dtype=ir.DataType[d]) for d in ("FLOAT16", "INT32", "INT64", "UINT8")),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_equals_the_kernel(case: Case) -> None:
    model, feeds = node(case), inputs(case)
    expected = ort.run(model, feeds)["present"]
    np.testing.assert_array_equal(reference(model, feeds), expected)
    report = lower(model, STANDARD)
    assert not report.stuck
    assert "TensorScatter" not in report.ops_after
    actual = ort.run(model, feeds)["present"]
    assert actual.dtype == expected.dtype
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("dtype", ["BFLOAT16", "DOUBLE", "BOOL", "INT8", "UINT16", "COMPLEX64"])
@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_equals_the_reference_in_types_that_the_kernel_lacks(dtype: str, mode: str) -> None:
    case = Case("typed", dtype=ir.DataType[dtype], new=2, starts=(3, 5), mode=mode)
    model, feeds = node(case), inputs(case)
    feeds["past_cache"] = np.zeros_like(feeds["past_cache"])  # seen in bool too
    expected = reference(model, feeds)
    assert "TensorScatter" not in lower(model, STANDARD).ops_after
    actual = reference(model, feeds)
    assert actual.dtype == expected.dtype == case.dtype.numpy()
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("starts", [(0,) * 5, ()], ids=["slot 0", "no indices"])
def test_d16_modulo_is_of_the_sequence_alone(starts: tuple[int, ...]) -> None:
    """The report's cache (5, 4, 1) of -1, in which sample 5 must not reach sample 1."""
    case = Case("D16", cache=(5, 4, 1), starts=starts, axis=1, mode="circular")
    model = node(case)
    lower(model, STANDARD)
    feeds: ort.Arrays = {
        "past_cache": np.full((5, 4, 1), -1, np.float32),
        "update": np.arange(1, 6, dtype=np.float32).reshape(5, 1, 1),
        "write_indices": np.array(starts, np.int64),
    }
    present = ort.run(model, feeds)["present"]
    assert present[:, 0, 0].tolist() == [1, 2, 3, 4, 5]
    assert (present[:, 1:] == -1).all()


@pytest.mark.parametrize(
    ("case", "mutant"),
    [
        (Case("row", starts=(3, 6)), Case("one row later", starts=(4, 7))),
        (Case("row", starts=(3, 6)), Case("samples swapped", starts=(6, 3))),
        (Case("wrap", new=3, starts=(6, 7), mode="circular"),
         Case("shifted instead of wrapped", new=3, starts=(5, 5))),
    ],
    ids=lambda case: case.name,
)  # fmt: skip
def test_the_comparison_sees_mutants(case: Case, mutant: Case) -> None:
    model, changed, feeds = node(case), node(mutant), inputs(case)
    lower(changed, STANDARD)
    wrong = ort.run(changed, inputs(mutant))["present"]
    assert (ort.run(model, feeds)["present"] != wrong).any()


def ops(case: Case) -> dict[str, int]:
    model = node(case)
    report = lower(model, QNN)
    assert not report.unknown
    return dict(report.ops_after)


def test_it_is_as_few_nodes_as_it_can_be() -> None:
    assert ops(Case("one row")) == {"Expand": 1, "ScatterElements": 1, "Unsqueeze": 1}
    assert ops(Case("first rows", starts=(), new=2)) == {"Concat": 1, "Slice": 1}
    assert ops(Case("all rows", starts=(), new=8)) == {"Identity": 1}


def test_indices_are_integers_that_caches_share() -> None:
    """A key and a value cache of two layers, written at the same rows."""
    case = Case("shared", new=2, starts=(1, 5))
    model, feeds = node(case), inputs(case)
    (first,) = list(model.graph)
    for i in range(3):
        again = ir.Node("", "TensorScatter", first.inputs, num_outputs=1, name=f"again{i}")
        again.outputs[0].name = f"present{i}"
        again.outputs[0].type, again.outputs[0].shape = ir.TensorType(F32), ir.Shape(case.cache)
        model.graph.append(again)
        model.graph.outputs.append(again.outputs[0])
    expected = ort.run(model, feeds)
    after = lower(model, QNN).ops_after
    assert dict(after) == {"Add": 1, "Expand": 1, "ScatterElements": 4, "Unsqueeze": 1}
    for name, array in ort.run(model, feeds).items():
        np.testing.assert_array_equal(array, expected[name])
    for n in model.graph:
        if n.op_type == "ScatterElements":
            assert n.inputs[1] is not None
            assert n.inputs[1].dtype == I64


def test_caches_that_differ_share_no_rows() -> None:
    """A sliding layer's cache wraps where a global layer's goes on."""
    b = Builder()
    starts = b.input("write_indices", I64, (2,))
    outputs = []
    for name, rows, mode in (("global", 16, "linear"), ("wide", 12, "circular"),
                             ("sliding", 8, "circular")):  # fmt: skip
        cache = b.input(f"{name}_cache", F32, (2, 2, rows, 4))
        new = b.input(f"{name}_new", F32, (2, 2, 3, 4))
        y = b.op("TensorScatter", cache, new, starts, name=name, mode=mode)
        outputs.append((y, F32, (2, 2, rows, 4)))
    model = b.model(outputs, opset=24)
    rng = np.random.default_rng(0)
    feeds: ort.Arrays = {"write_indices": np.array([11, 6])}
    for value in model.graph.inputs[1:]:
        assert value.name
        assert value.shape
        feeds[value.name] = rng.standard_normal(value.shape.numpy()).astype(np.float32)
    expected = ort.run(model, feeds)
    lower(model, QNN)
    for name, array in ort.run(model, feeds).items():
        np.testing.assert_array_equal(array, expected[name])


@pytest.mark.parametrize(
    "case",
    [c for c in CASES if c.name in {"several rows", "circular, wraps", "no indices", "rank 5"}],
    ids=lambda case: case.name,
)  # fmt: skip
def test_the_batch_may_be_known_at_run_time_alone(case: Case) -> None:
    feeds = inputs(case)
    model = node(case, batch="batch")
    lower(model, STANDARD)
    expected = ort.run(node(case), feeds)["present"]
    np.testing.assert_array_equal(ort.run(model, feeds)["present"], expected)


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (Case("axis", axis=0, new=2), "axis=0 is no sequence axis"),
        (Case("axis", axis=-4, new=2), "axis=-4 is no sequence axis"),
        (Case("mode", mode="ring"), "mode=ring is not defined"),
        (Case("rows", new=9), "9 rows do not fit a cache of 8"),
        (Case("type", dtype=ir.DataType.FLOAT8E4M3FN), "no scatter of FLOAT8E4M3FN"),
        (Case("type", dtype=ir.DataType.INT4), "no scatter of INT4"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_refuses_by_name(case: Case, reason: str) -> None:
    with pytest.raises(Stuck, match=reason):
        lower(node(case), QNN)


@pytest.mark.parametrize("name", ["past_cache", "update"])
def test_refuses_dims_that_are_not_fixed(name: str) -> None:
    model = node(Case("dims"))
    value = next(v for v in model.graph.inputs if v.name == name)
    value.shape = ir.Shape((2, 2, "rows", 4))
    with pytest.raises(Stuck, match=f"{name} has a dim that is not fixed"):
        lower(model, STANDARD)


PLACED = [
    case for case in CASES
    if case.name in {"one row", "several rows", "no indices", "circular, beyond the end",
                     "circular, all rows, wraps", "axis -1", "of FLOAT16", "rank 5",
                     "rank 5, axis 1, circular"}
]  # fmt: skip


@htp.needs_qnn
@pytest.mark.parametrize("case", PLACED, ids=lambda case: case.name)
def test_htp_runs_it_whole(case: Case, tmp_path: Path) -> None:
    """Rows that are moved are exact in fp16 too: the numbers are whole ones below 2,048."""
    model, feeds = node(case), inputs(case)
    expected = ort.run(model, feeds)
    lower(model, QNN)
    htp.check(model, feeds, expected, tmp_path, least=0)


def test_parity_draws_rows_that_the_cache_has() -> None:
    case = Case("draw", new=3)
    shapes = {"past_cache": case.cache, "update": case.update, "write_indices": (2,)}
    drawn = [DOMAINS["TensorScatter"].draw(shapes, {}, seed)["write_indices"] for seed in range(9)]
    assert {int(rows[0]) for rows in drawn} >= {0, 5}
    assert 0 <= np.min(drawn) <= np.max(drawn) <= 5
    assert DOMAINS["TensorScatter"].draw({"past_cache": case.cache}, {}, 0) == {}
