"""What others saw on devices: it is read as it is written, and never overrules a measurement."""

from __future__ import annotations

import pytest

from capabilities import Facts, Tensor, UnknownTarget, Verdict, target
from capabilities.devices import DEVICES, device_rows, seen

READ = [(ep, device) for ep, devices in DEVICES.items() for device in devices if device != "CPU"]


def facts(op: str, operand: str, dtype: str, rank: int, opset: int = 21) -> Facts:
    """Of a node with one input and one output of the same type and shape."""
    tensor = Tensor(dtype, (2,) * rank)
    return Facts(op, opset, inputs={operand: tensor}, outputs={"out": tensor})


@pytest.mark.parametrize(("ep", "device"), READ)
def test_every_row_says_what_was_counted(ep: str, device: str) -> None:
    rows = device_rows(ep, device)
    assert rows
    on = {row.op: [one for one in rows if one.op == row.op] for row in rows}
    for one in seen(ep, device):
        if one.form != "float" or not (one.operand and one.dtype):
            continue
        for rank, (compiled, _) in one.ranks.items():
            told = facts(one.op, one.operand, one.dtype, rank, one.opset)
            verdicts = {row.verdict for row in on[one.op] if row.holds(told)}
            if compiled:
                assert verdicts == {Verdict.LEGAL}, (one, rank)
            elif one.highest is None or rank > one.highest:
                assert Verdict.ILLEGAL in verdicts, (one, rank)


def test_a_count_is_read() -> None:
    found = next(
        one
        for one in seen("qnn", "NPU")
        if (one.op, one.form, one.dtype) == ("MatMul", "float", "float16")
    )
    assert found.operand == "A"
    assert found.ranks[4] == (20, 21)
    assert found.ranks[6] == (0, 33)
    assert found.highest == 5


@pytest.mark.parametrize(("ep", "device"), READ)
def test_they_are_reports(ep: str, device: str) -> None:
    assert {row.kind for row in device_rows(ep, device)} == {"reported"}


def test_a_report_is_a_doubt_beside_a_measurement() -> None:
    """OpenVINO's reader takes an Equal of bool, which no model of the NPU compiled."""
    boolean = Tensor("bool", (2, 3))
    asked = Facts("Equal", 19, inputs={"A": boolean, "B": boolean}, outputs={"C": boolean})
    assert target("openvino").judge(asked).doubts == ()
    judged = target("openvino", device="NPU").judge(asked)
    assert judged.verdict is Verdict.LEGAL
    assert judged.row is not None
    assert judged.row.kind == "measured"
    assert [row.why[:4] for row in judged.doubts] == ["NPU:"]


def test_a_report_decides_where_nothing_was_measured() -> None:
    asked = facts("Hardmax", "input", "float", 3)
    assert target("openvino").judge(asked).verdict is Verdict.UNKNOWN
    judged = target("openvino", device="NPU").judge(asked)
    assert judged.row is not None
    assert judged.row.kind == "reported"


def test_a_cpu_adds_nothing() -> None:
    assert target("openvino", device="CPU") == target("openvino")


@pytest.mark.parametrize(("ep", "device"), [("qnn", "GPU"), ("ort-cpu", "NPU")])
def test_a_device_that_an_ep_has_not(ep: str, device: str) -> None:
    with pytest.raises(UnknownTarget, match=f"{ep} has no device '{device}'; known: "):
        target(ep, device=device)
