"""Products over more columns than HTP takes: ONNX Runtime on the original is the oracle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.lowering import Stuck, lower
from rewriter.nodes import op_of
from rewriter.parity.sites import check_sites
from rewriter.streamed import StreamedTensor
from tests import htp, ort, toys
from tests.graphs import Builder
from tests.nbits import NBITS, nbits

F32, F16 = ir.DataType.FLOAT, ir.DataType.FLOAT16
WIDE, WIDER = 32768 + 96, 65536 + 96


def packed(**form: Any) -> ir.Model:
    """A MatMulNBits of 3 columns, for 2 rows of activations."""
    return nbits(**{"k": WIDE, "n": 3, "rows": 2, **form})


def given(model: ir.Model) -> ort.Arrays:
    (a,) = model.graph.inputs
    assert a.shape is not None
    assert a.dtype is not None
    numbers = np.random.default_rng(1).standard_normal(a.shape.numpy())
    return {"a": (numbers / 128).astype(a.dtype.numpy())}


def narrow(op: str) -> Any:
    """A target that takes everything but what is wide."""
    return toys.target(
        f"{op} | A dim -1 > 32767 | illegal",
        *(f"{kind} | any | legal" for kind in (op, "Add", "Slice", "Gather")),
    )


FORMS: list[dict[str, Any]] = [
    {},
    {"k": WIDE + 16},
    {"bits": 8, "block": 128, "zero_points": "packed"},
    {"bits": 2, "block": 16, "zero_points": "packed"},
    {"zero_points": "packed", "bias": True},
    {"zero_points": "float", "rank": 4},
    {"flat": True, "rank": 2, "bias": True},
    {"rank": 1},
    {"groups": "own"},
    {"groups": "reversed"},
    {"block": 256, "k": 3 * 16384},
    {"accuracy_level": 4},
]


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_packed_parts_add_up(form: dict[str, Any]) -> None:
    model = packed(**form)
    feeds = given(model)
    expected = ort.run(model, feeds)["y"]
    report = lower(model, narrow(NBITS))
    assert report.sites() == {("sum_of_matmul_nbits", NBITS): 1}
    assert ort.worst(expected, ort.run(model, feeds)["y"]) < 1e-5
    products = [node for node in model.graph if op_of(node) == NBITS]
    assert [node.attributes["K"].as_int() for node in products[:2]] == [16384, 16384]
    assert len(products) == 3
    for node in products:
        level = node.attributes.get("accuracy_level")
        assert (level.as_int() if level else 0) == form.get("accuracy_level", 0)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((1, 2, WIDE), (WIDE, 3)),
        ((2, WIDE), (WIDE, 3)),
        ((WIDE,), (WIDE, 3)),
        ((2, 1, WIDE), (2, WIDE, 3)),
        ((1, 2, 1, WIDE), (1, 2, WIDE, 3)),
        ((2, WIDE), (WIDE,)),
    ],
    ids=str,
)
@pytest.mark.parametrize("stored", [True, False])
def test_float_parts_add_up(
    a: tuple[int, ...], b: tuple[int, ...], stored: bool, tmp_path: Path
) -> None:
    build = Builder()
    array = np.random.default_rng(2).standard_normal(b).astype(np.float32)
    weight = build.const("b", array) if stored else build.input("b", F32, b)
    y = build.op("MatMul", build.input("a", F32, a), weight, name="y")
    shape = np.matmul(np.zeros(a, np.float32), array).shape
    model = build.model([(y, F32, shape)])
    numbers = np.random.default_rng(1).standard_normal(a).astype(np.float32)
    feeds: ort.Arrays = {"a": numbers / 128, "b": array}
    expected = ort.run(model, feeds)["y"]
    report = lower(model, narrow("MatMul"))
    assert report.sites() == {("sum_of_matmuls", "MatMul"): 1}
    assert ort.worst(expected, ort.run(model, feeds)["y"]) < 1e-5
    assert all(site.ok for site in check_sites(report.fired, tmp_path, 0))


def test_refuses_what_other_rules_of_it_refuse() -> None:
    model = packed(zero_points="packed", groups="reversed")
    with pytest.raises(Stuck, match="zero points beside g_idx"):
        lower(model, narrow(NBITS))


def test_a_streamed_weight_is_read_a_run_of_rows_at_a_time() -> None:
    """Codes of a checkpoint are made of rows of its own; no part may ask for the whole."""
    model = packed()
    codes = model.graph.initializers["codes"]
    assert codes.const_value is not None
    array = codes.const_value.numpy()
    halves = array.reshape(6, -1)

    class Rows(StreamedTensor):
        def numpy(self) -> np.ndarray:
            raise AssertionError("read whole")

    streamed = Rows(lambda: lambda i, j: halves[i:j], ir.DataType.UINT8, array.shape, 6, "codes")
    codes.const_value = streamed
    feeds = given(model)
    lower(model, narrow(NBITS), keep_sites=False)
    found = ort.run(model, feeds)["y"]
    assert ort.worst(ort.run(packed(), feeds)["y"], found) < 1e-5


@htp.needs_qnn
@pytest.mark.parametrize(
    "form",
    [{"zero_points": "packed"}, {"bits": 8, "dtype": F16}, {"bits": 2, "bias": True}],
    ids=str,
)
def test_placed_whole_on_htp(form: dict[str, Any], tmp_path: Path) -> None:
    model = packed(k=WIDER, **form)
    feeds = given(model)
    expected = ort.run(model, feeds)
    lower(model, target("qnn", "2.7.0"))
    assert sum(op_of(node) == NBITS for node in model.graph) == 5
    htp.check(model, feeds, expected, tmp_path)
