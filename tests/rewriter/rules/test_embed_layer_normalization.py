"""EmbedLayerNormalization lowered, against ONNX Runtime's kernel, all three outputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import Target, target
from rewriter.lowering import Stuck, lower
from rewriter.parity.sites import check_sites
from tests import htp, ort
from tests.contrib.embed_layer_normalization import CASES, Case, feeds, node

F16 = ir.DataType.FLOAT16
STANDARD, QNN = target("onnx-standard"), target("qnn", "2.7.0")


def _compared(name: str, reference: np.ndarray, found: np.ndarray) -> None:
    if reference.dtype == np.int32:
        assert found.dtype == np.int32
        assert np.array_equal(reference, found)
    else:
        assert ort.worst(reference, found) < 2e-6, name


@pytest.mark.parametrize("ep", [STANDARD, QNN], ids=str)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_equals_the_kernel(case: Case, ep: Target) -> None:
    model = node(case)
    given = feeds(case)
    expected = ort.run(model, given)
    lower(model, ep)
    assert not any(n.domain for n in model.graph)
    actual = ort.run(model, given)
    assert list(actual) == [name for name in case.outputs if name]
    for name, reference in expected.items():
        _compared(name, reference, actual[name])


@pytest.mark.parametrize("case", CASES[6:10], ids=lambda case: case.name)
def test_each_input_and_attribute_changes_the_result(case: Case) -> None:
    model, plain = node(case), node(CASES[2])
    given = feeds(case)
    expected = ort.run(model, given)["y"]
    lower(model, QNN)
    actual = ort.run(model, given)["y"]
    assert ort.worst(expected, actual) < 2e-6
    assert ort.worst(ort.run(plain, given)["y"], actual) > 1e-3  # the kernel without it


def test_half_precision() -> None:
    half = node(Case("half", mask=True, dtype=F16))
    wide = node(Case("wide", mask=True))
    for name, value in half.graph.initializers.items():
        stored = value.const_value
        assert stored is not None
        wide.graph.initializers[name].const_value = ir.tensor(
            stored.numpy().astype(np.float32), name=name
        )
    given = feeds(CASES[0])
    exact = ort.run(wide, given)["y"]
    lower(half, QNN)
    assert ort.worst(exact, ort.run(half, given)["y"].astype(np.float32)) < 4e-3


def test_refuses_positions_that_do_not_fit() -> None:
    model = node(Case("positions", positions=2))
    value = next(v for v in model.graph.inputs if v.name == "position_ids")
    value.shape = ir.Shape((2, 5))
    with pytest.raises(Stuck, match=r"position_ids \(2, 5\) do not fit ids \(2, 3\)"):
        lower(model, QNN)


def test_refuses_segments_without_their_table() -> None:
    model = node(CASES[1])
    model.graph[0].replace_input_with(4, None)
    with pytest.raises(Stuck, match="have to be given both, or neither"):
        lower(model, QNN)


def test_sites_draw_ids_that_the_tables_have(tmp_path: Path) -> None:
    for case in (CASES[2], CASES[10]):
        report = lower(node(case), QNN)
        parity = check_sites(report.fired, tmp_path, 0)
        assert all(site.ok for site in parity), parity


@htp.needs_qnn
@pytest.mark.parametrize("case", [CASES[0], CASES[7], CASES[10]], ids=lambda case: case.name)
def test_placed_whole_on_htp(case: Case, tmp_path: Path) -> None:
    model = node(case)
    given = feeds(case)
    expected = ort.run(model, given)
    lower(model, QNN)
    found = htp.run(model, given, tmp_path)
    for name, reference in expected.items():
        if reference.dtype == np.int32:
            assert np.array_equal(reference, found[name])
        else:
            assert htp.LEAST < ort.worst(reference, found[name]) < htp.MOST
