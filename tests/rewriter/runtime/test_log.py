from __future__ import annotations

import pytest

from rewriter.runtime import log

VERBOSE = """\
[V:onnxruntime:, qnn.cc:1 LogNodeSupport] Validation FAILED for 2 nodes in OrtNodeUnit (Slice) :
\tOperator type: DequantizeLinear Node name: dq Node index: 1
\tOperator type: Slice Node name: a b/slice Node index: 2
\tREASON : first pass
[V:onnxruntime:, qnn.cc:1 LogNodeSupport] Validation FAILED for 1 nodes in OrtNodeUnit (Slice) :
\tOperator type: Slice Node name: a b/slice Node index: 2
\tREASON : Operators of type `Slice` are not supported by QNN EP.Slice node `a b/slice` will not be.
[V:onnxruntime:, qnn.cc:1 LogNodeSupport] Validation PASSED for 1 nodes in OrtNodeUnit (Mul) :
\tOperator type: Mul Node name: mul Node index: 3
\tREASON : a line that belongs to no refused node
[V:onnxruntime:, qnn.cc:1 LogNodeSupport] Validation FAILED for 1 nodes in OrtNodeUnit (Erf) :
\tOperator type: Erf Node name:  Node index: 4
\tREASON : alone
"""


def test_every_node_of_a_refused_unit_gets_the_last_reason() -> None:
    assert log.read(VERBOSE.splitlines()).reasons == {
        "dq": "first pass",
        "a b/slice": "Operators of type `Slice` are not supported by QNN EP.",
        "unnamed Erf": "alone",
    }


def test_memory_traffic_is_read_for_each_partition_with_and_without_a_prefix() -> None:
    lines = [
        "read_total_bytes=1",
        "====== DDR bandwidth summary ======",
        "spill_bytes=0",
        "read_total_bytes=6144",
        "====== DDR bandwidth summary ======",
        "[V:onnxruntime:Default, q.cc:5 QnnLogging] write_total_bytes=2048",
    ]
    assert log.read(lines).ddr == (
        {"spill_bytes": 0, "read_total_bytes": 6144},
        {"write_total_bytes": 2048},
    )


def test_errors_lose_their_colour_and_come_once() -> None:
    line = "\x1b[1;31m2026 [E:onnxruntime:, ep.cc:2 GetCapability] no device\x1b[m"
    seen = log.read([line, line, "[W:onnxruntime:, ep.cc:3 F] a warning", "the end", ""])
    assert seen.errors == ("no device",)
    assert seen.last == "the end"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("[ONNXRuntimeError] : 1 : FAIL : no good", "no good"),
        (
            "Message: /src/ops.h:560 void onnxruntime::It::Add(ptrdiff_t, long) a == 1 was false.",
            "Message: a == 1 was false.",
        ),
        ("Error: utils.cc:619 ValidatePath path does not exist", "Error: path does not exist"),
        ("broken\nStacktrace:\n#0 main", "broken"),
        ("two\n lines", "two lines"),
        ("Exception from src/core.cpp:84:\nFrontEnd API failed with Fault:\nbroken", "broken"),
        ("Check 'a\n== b' failed at src/x.hpp:1:\nbroken", "broken"),
        ("While validating node 'R (x[0]:f32)' with friendly_name 'R':\nbroken", "broken"),
        ("Exception from src/core.cpp:84:", "Exception from src/core.cpp:84:"),
        ("a kept model.onnx: yes", "a kept model.onnx: yes"),
    ],
)
def test_a_sentence_has_no_code_in_it(message: str, expected: str) -> None:
    assert log.sentence(message) == expected


def test_a_long_message_is_cut() -> None:
    text = log.sentence("word " * 1000)
    assert len(text) <= 300
    assert text.endswith("…")
