"""What counts as placed, and as right."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import pytest

from capabilities import Verdict
from rewriter.probe.verdict import Measured, compared, figure, gap, placed, shows_nothing
from rewriter.runtime.child import Assigned, Partition
from tests.graphs import Builder

F32 = ir.DataType.FLOAT
CPU, QNN = "CPUExecutionProvider", "QNNExecutionProvider"


def model(op: str = "Relu") -> ir.Model:
    """Q and DQ of the input, one op, Q and DQ of the output."""
    b = Builder()
    scale, point = b.const("s", np.float32(0.1)), b.const("z", np.uint8(128))
    q = b.op("QuantizeLinear", b.input("x", F32, (2, 2)), scale, point, name="q")
    y = b.op(op, b.op("DequantizeLinear", q, scale, point, name="d"), name="r")
    q2 = b.op("QuantizeLinear", y, scale, point, name="q2")
    out = b.op("DequantizeLinear", q2, scale, point, name="y")
    return b.model([(out, F32, (2, 2))])


def part(ep: str, *nodes: str) -> Partition:
    return Partition(ep, tuple(Assigned(node, node.partition("/")[2]) for node in nodes))


IN, OUT = "q/QuantizeLinear", "y/DequantizeLinear"
INNER = ("d/DequantizeLinear", "r/Relu", "q2/QuantizeLinear")


@pytest.mark.parametrize(
    ("partitions", "word"),
    [
        ([part(QNN, IN, *INNER, OUT)], "HTP"),
        ([part(CPU, IN), part(QNN, *INNER), part(CPU, OUT)], "HTP+io"),
        ([part(CPU, IN, INNER[0]), part(QNN, *INNER[1:]), part(CPU, OUT)], "MIX"),
        ([part(CPU, IN, *INNER, OUT)], "CPU"),
        ([part(QNN, IN, *INNER), part(QNN, OUT)], "SPLIT"),
        ([], "HTP"),  # ONNX Runtime computed everything ahead
    ],
)
def test_placement(partitions: list[Partition], word: str) -> None:
    assert placed(partitions, model()) == word


@pytest.mark.parametrize(
    ("word", "meaning"),
    [
        ("HTP", "legal"), ("HTP+io", "legal"), ("OK", "legal"),
        ("HTP-WRONG", "wrong"), ("HTP+io-NAN", "wrong"), ("OK-SHAPE", "wrong"),
        ("CPU", "illegal"), ("MIX", "illegal"), ("SPLIT", "illegal"), ("LOAD_ERROR", "illegal"),
        ("CRASH", "illegal"), ("TIMEOUT", "illegal"), ("READ_ERROR", "illegal"),
    ],
)  # fmt: skip
def test_meaning(word: str, meaning: str) -> None:
    assert Measured(word).meaning is Verdict(meaning)
    assert Measured(word).known
    assert not Measured(f"{word}-NOREF").known


ONE = np.array([1.0, -4.0, np.inf, 2.0], np.float32)


@pytest.mark.parametrize(
    ("other", "flaw"),
    [
        ([1.0, -4.0, np.inf, 2.0], ""),
        ([1.03, -4.0, np.inf, 2.0], ""),
        ([1.05, -4.0, np.inf, 2.0], "WRONG"),  # 0.04 are allowed: 1 % of 4
        ([np.nan, -4.0, np.inf, 2.0], "NAN"),
        ([-np.inf, -4.0, np.inf, 2.0], "INF"),
        ([1.0, -4.0, 65504.0, 2.0], "NONFINITE"),
        ([1.0, -4.0, -np.inf, 2.0], "NONFINITE"),
        ([[1.0, -4.0, np.inf, 2.0]], "SHAPE"),
    ],
)
def test_floats(other: npt.ArrayLike, flaw: str) -> None:
    assert gap(ONE, np.asarray(other, np.float32), 0.01).flaw == flaw


def test_a_least_error_is_allowed_besides() -> None:
    small, other = np.array([1e-4, 0], np.float32), np.array([6e-4, 0], np.float32)
    assert gap(small, other, 0.01).flaw == "WRONG"
    assert gap(small, other, 0.01, 1e-3).flaw == ""


def test_integers_and_bools_have_to_be_equal() -> None:
    numbers = np.array([100, 200])
    assert gap(numbers, numbers, 0.02).flaw == ""
    assert gap(numbers, numbers + np.array([0, 1]), 0.02).flaw == "WRONG"
    assert gap(np.array([True, False]), np.array([True, True]), 0.02).flaw == "WRONG"


def test_a_reference_of_one_number_shows_nothing() -> None:
    assert shows_nothing({"y": np.zeros((2, 3), np.float32)})
    assert shows_nothing({"y": np.array([True, True])})
    assert not shows_nothing({"y": np.array([True, True]), "z": np.array([1.0, 2.0])})
    assert not shows_nothing({"y": np.array(3.0)})  # a scalar has no other choice


def test_right_errors_are_written_as_the_power_of_ten_they_lie_below() -> None:
    assert [figure(e, right=True) for e in (0, 1e-4, 1.1e-4, 9.9e-4)] == [
        "0",
        "1e-04",
        "1e-03",
        "1e-03",
    ]
    assert figure(0.1234, right=False) == "0.12"


def test_a_quantized_output_may_be_off_by_two_steps() -> None:
    reference = {"y": np.array([[1.0, 0.9], [0.5, 0.2]], np.float32)}
    for steps, flaw in ((2, ""), (3, "WRONG")):
        other = {"y": reference["y"] - np.float32(0.1 * steps)}
        assert compared("qnn", model(), reference, other).flaw == flaw
    assert compared("openvino", model(), reference, {"y": reference["y"] - 0.1}).flaw == "WRONG"


def test_openvino_may_round_a_computed_tie_elsewhere() -> None:
    reference = {"y": np.array([[1.0, 0.9], [0.5, 0.2]], np.float32)}
    for op, steps, flaw in (("Tanh", 1, ""), ("Tanh", 2, "WRONG"), ("Relu", 1, "WRONG")):
        other = {"y": reference["y"] - np.float32(0.1 * steps)}
        assert compared("openvino", model(op), reference, other).flaw == flaw, op
