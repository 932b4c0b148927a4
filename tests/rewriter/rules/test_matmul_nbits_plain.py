"""MatMulNBits in its plain form, and what is around it; to the standard, too.

The oracle is ONNX Runtime on the original, with the identity matrix: what comes out *is* W. Its
kernel has no 8-bit float zero points.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.lowering import Stuck, lower
from rewriter.nodes import op_of
from tests import htp, ort, toys
from tests.graphs import Builder
from tests.nbits import NBITS, given, nbits

F32 = ir.DataType.FLOAT
STANDARD, QNN = target("onnx-standard"), target("qnn", "2.7.0")
FORMS: list[dict[str, Any]] = [
    {"bias": True},
    {"rank": 2},
    {"rank": 4},
    {"k": 80},
    {"k": 80, "zero_points": "packed"},
    {"groups": "own"},
    {"zero_points": "float"},
    {"zero_points": "float", "bits": 2},
    {"zero_points": "float", "bias": True, "rank": 2, "k": 80},
    {"bits": 8, "bias": True, "zero_points": "packed", "rank": 4},
    {"accuracy_level": 4, "rank": 2},
]


@pytest.mark.parametrize("ep", [QNN, STANDARD], ids=["qnn", "standard"])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_equals_the_kernel(form: dict[str, Any], ep: Any) -> None:
    model = nbits(**form)
    expected = ort.run(model, given(model))["y"]
    lower(model, ep)
    ops = [op_of(n) for n in model.graph]
    assert (NBITS in ops) is (ep is QNN)
    assert ort.worst(expected, ort.run(model, given(model))["y"]) < 1e-6


def test_only_what_is_needed_is_added() -> None:
    wanted = {
        "bias": [NBITS, "Add"],
        "groups": [NBITS],
        "rank": ["Reshape", NBITS, "Reshape"],
        "k": ["Concat", NBITS],
        "zero_points": [NBITS, "Reshape", "ReduceSum", "MatMul", "Add"],
    }
    forms = {"bias": True, "groups": "own", "rank": 2, "k": 80, "zero_points": "float"}
    for name, ops in wanted.items():
        model = nbits(**{name: forms[name]})  # type: ignore[arg-type]  # loosely typed in tests
        lower(model, QNN)
        assert sorted(op_of(n) for n in model.graph) == sorted(ops), name
        node = next(n for n in model.graph if op_of(n) == NBITS)
        assert [v for v in node.inputs[3:] if v is not None] == []


@pytest.mark.parametrize("ep", [QNN, STANDARD], ids=["qnn", "standard"])
def test_refuses_blocks_of_another_length(ep: Any) -> None:
    with pytest.raises(Stuck, match="g_idx gives a block another number of rows than 32"):
        lower(nbits(groups="uneven"), ep)


@pytest.mark.parametrize("ep", [QNN, STANDARD], ids=["qnn", "standard"])
@pytest.mark.parametrize("changes", [{}, {"rank": 2}, {"k": 80}], ids=str)
@pytest.mark.parametrize("groups", ["reversed", "shuffled"])
def test_rows_are_put_in_the_order_of_their_blocks(
    groups: str, changes: dict[str, Any], ep: Any
) -> None:
    """The kernel's 8- and 2-bit forms of g_idx fail or read what is not there: 4 bits only."""
    model = nbits(groups=groups, **changes)
    expected = ort.run(model, given(model))["y"]
    plain = ort.run(nbits(**changes), given(model))["y"]
    assert ort.worst(expected, plain) > 1e-2, "the groups change nothing here"
    lower(model, ep)
    assert [op_of(n) for n in model.graph].count("Gather") == 1
    assert ort.worst(expected, ort.run(model, given(model))["y"]) < 1e-6


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"weight_prepacked": 1}, "prepacked weights have their own layout"),
        ({"zero_points": "bytes"}, "16 bytes of zero points are not packed into 8"),
        ({"groups": "own", "zero_points": "packed"}, "zero points beside g_idx"),
        ({"groups": "own", "zero_points": "float"}, "zero points beside g_idx"),
        ({"groups": "own", "bits": 8}, "g_idx of 8-bit codes"),
        ({"groups": "own", "bits": 2}, "g_idx of 2-bit codes"),
        ({"empty": True}, "B is empty: the projection is left out"),
        ({"dtype": ir.DataType.BFLOAT16}, "bfloat16 has no kernel"),
    ],
    ids=str,
)
def test_refuses(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(Stuck, match=reason):
        lower(nbits(bias=True, **changes), STANDARD)
    with pytest.raises(Stuck, match=reason):
        lower(nbits(bias=True, **changes), QNN)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_packed_zero_points_beside(bits: int) -> None:
    """Readers that take no zero points (OpenVINO before 2025.4) get the middle and sums."""
    model = nbits(bits=bits, zero_points="packed")
    expected = ort.run(model, given(model))["y"]
    lower(model, toys.target(f"{NBITS} | zero_points given | illegal", f"{NBITS} | any | legal"))
    assert sorted(op_of(n) for n in model.graph) == sorted(
        [NBITS, "Reshape", "ReduceSum", "MatMul", "Add"]
    )
    assert ort.worst(expected, ort.run(model, given(model))["y"]) < 1e-5


def test_products_of_one_activation_share_its_sums() -> None:
    b = Builder()
    a = b.input("a", F32, (1, 4, 64))
    ys = []
    for i in range(2):
        codes = b.const(f"codes{i}", b.rng.integers(0, 256, (8, 2, 16)).astype(np.uint8))
        scales = b.const(f"scales{i}", b.rng.uniform(0.1, 1, (8, 2)).astype(np.float32))
        points = b.const(f"points{i}", b.rng.uniform(0, 15, (8, 2)).astype(np.float32))
        sizes = {"K": 64, "N": 8, "bits": 4, "block_size": 32}
        ys.append(b.op(NBITS, a, codes, scales, points, name=f"y{i}", **sizes))
    model = b.model([(y, F32, (1, 4, 8)) for y in ys])
    feeds = {"a": np.random.default_rng(1).standard_normal((1, 4, 64)).astype(np.float32)}
    expected = ort.run(model, feeds)
    report = lower(model, QNN)
    assert [op_of(n) for n in model.graph].count("ReduceSum") == 1
    assert report.notes == ["zero points z became sums of float: s·(8 - z), each rounded once"]
    for name, reference in expected.items():
        assert ort.worst(reference, ort.run(model, feeds)[name]) < 1e-5


@htp.needs_qnn
@pytest.mark.parametrize(
    "form",
    [
        {"groups": "shuffled"},
        {"zero_points": "float", "rank": 2},
        {"zero_points": "float", "bits": 8},
        {"zero_points": "halves", "bits": 2},
        {"zero_points": "float", "bits": 2, "rank": 4},
        {"bias": True, "k": 80, "rank": 4},
    ],
    ids=str,
)
def test_placed_whole_on_htp(form: dict[str, Any], tmp_path: Path) -> None:
    """The oracle of 8-bit float zero points is the formula, of all others the kernel."""
    model = nbits(**form)
    shape = model.graph.inputs[0].shape
    assert shape is not None
    a = np.random.default_rng(2).standard_normal(shape.numpy()).astype(np.float32)
    if form.get("bits") == 8:
        codes, scales, points = (
            v.const_value.numpy().astype(np.float64)  # type: ignore[union-attr]  # it is stored
            for v in (model.graph.initializers[n] for n in ("codes", "scales", "points"))
        )
        w = (codes - points[..., None]) * scales[..., None]
        expected = {"y": a.astype(np.float64) @ w.reshape(8, -1).T}
    else:
        expected = ort.run(model, {"a": a})
    lower(model, QNN)
    htp.check(model, {"a": a}, expected, tmp_path)


@pytest.mark.parametrize(
    ("version", "bits", "blocks", "beside"),
    [
        ("2.6.0", 4, 3, True),
        ("2.6.0", 4, 4, False),
        ("2.6.0", 4, 1, False),
        ("2.6.0", 2, 3, False),
        ("2.6.0", 2, 6, True),
        ("2.3.0", 4, 7, True),
        ("2.7.0", 4, 3, False),
    ],
)
def test_rows_of_zero_points_fill_their_bytes(
    version: str, bits: int, blocks: int, beside: bool
) -> None:
    """HTP before 2.7 leaves others to the CPU: "Unexpected input zero_points size"."""
    model = nbits(bits=bits, k=32 * blocks, zero_points="packed")
    expected = ort.run(model, given(model))["y"]
    report = lower(model, target("qnn", version))
    assert [fired.rule for fired in report.fired] == (["zero_points_beside"] if beside else [])
    assert ort.worst(expected, ort.run(model, given(model))["y"]) < 1e-5


@pytest.mark.parametrize("version", ["2024.6.0", "2025.0.0", "2025.2.0", "2025.4.1", "2026.4.1"])
@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("bits", [2, 4])
def test_float_zero_points_on_openvino(bits: int, flat: bool, version: str) -> None:
    """Of 2 bits since 2026.2; of 4 bits as a row alone before 2025.2, as scales are."""
    model = nbits(bits=bits, zero_points="float", flat=flat)
    expected = ort.run(model, given(model))["y"]
    lower(model, target("openvino", version))
    product = next(n for n in model.graph if op_of(n) == NBITS)
    assert (len(product.inputs) == 3) is (bits == 2 and version < "2026.2")
    if version < "2025.2":
        assert all(v is None or len(v.shape or ()) == 1 for v in product.inputs[2:])
    assert ort.worst(expected, ort.run(model, given(model))["y"]) < 1e-5
