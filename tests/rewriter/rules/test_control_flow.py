"""Loop, Scan and If are reported with what they are and what to do; what they hold is lowered."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from onnx import parser

from capabilities import target
from rewriter.cli import main
from rewriter.deadends import dead_ends
from rewriter.lowering import Stuck, lower
from rewriter.rule import registry
from tests import ort

QNN, OLD_QNN = target("qnn", "2.7.0"), target("qnn", "2.4.0")
HEADER = '<ir_version: 10, opset_import: ["" : 22, "com.microsoft" : 1]>\n'


def parsed(text: str, **constants: np.ndarray) -> ir.Model:
    model = parser.parse_model(HEADER + text)
    for name, array in constants.items():
        model.graph.initializer.append(ir.to_proto(ir.tensor(array, name=name)))
    return ir.from_proto(model)


def loop(body: str, **constants: np.ndarray) -> ir.Model:
    trips = "" if "trips" in constants else "int64 trips, "
    return parsed(
        f"""main ({trips}float[2, 4] x) => (float[2, 4] y) {{
            keep = Constant <value = bool {{1}}> ()
            y = Loop <body = step (int64 i, bool going, float[2, 4] h) => (bool going_on,
                float[2, 4] next) {{
                going_on = Identity (going)
                {body}
            }}> (trips, keep, x)
        }}""",
        **constants,
    )


def why(model: ir.Model, ep: str = "2.7.0") -> str:
    with pytest.raises(Stuck) as raised:
        lower(model, target("qnn", ep))
    return str(raised.value.report.stuck[0].tried[-1].reason)


def test_a_loop_of_an_unknown_number_of_turns() -> None:
    reason = why(loop("next = Sigmoid (h)"))
    assert reason == (
        "a Loop of a number of turns that is known at run time alone over 2 nodes and 1 carried "
        "value(s): unroll it, or compute it outside of the model"
    )


def test_a_loop_of_a_fixed_number_of_turns() -> None:
    reason = why(loop("next = Sigmoid (h)", trips=np.array(3)))
    assert "a Loop of up to 3 turns over 2 nodes" in reason
    assert "export the model with the loop unrolled" in reason


def test_a_loop_around_a_decoder() -> None:
    reason = why(loop("next = Softmax (h)"))
    assert "it looks like a decoder that generates in the graph" in reason
    assert "export the step inside as a model of its own" in reason


def test_what_a_loop_holds_is_lowered() -> None:
    model = loop("next = com.microsoft.QuickGelu <alpha = 1.5> (h)", trips=np.array(3))
    given = {"x": np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)}
    expected = ort.run(model, given)["y"]
    standard = target("onnx-standard")
    lower(model, standard)
    assert ort.worst(expected, ort.run(model, given)["y"]) < 2e-6
    inside = {n.op_type for n in ir.traversal.RecursiveGraphIterator(model.graph)}
    assert "Sigmoid" in inside
    assert "QuickGelu" not in inside


def scan(steps: str) -> ir.Model:
    return parsed(
        f"""main (float[4] x, float[{steps}, 4] xs) => (float[4] y, float[{steps}, 4] ys) {{
            y, ys = Scan <num_scan_inputs = 1, body = step (float[4] h, float[4] item) =>
                (float[4] next, float[4] out) {{
                next = Add (h, item)
                out = Sigmoid (next)
            }}> (x, xs)
        }}"""
    )


@pytest.mark.parametrize(
    ("steps", "said"),
    [("5", "a Scan of 5 steps over 2 nodes: export the model with it unrolled"),
     ("n", "a Scan of as many steps as its inputs are long over 2 nodes: fix that length")],
)  # fmt: skip
def test_a_scan(steps: str, said: str) -> None:
    assert said in why(scan(steps))


def choice(condition: str, **constants: np.ndarray) -> ir.Model:
    return parsed(
        f"""main (float[2, 4] x, int64 length) => (float[2, 4] y) {{
            limit = Constant <value = int64 {{8}}> ()
            {condition}
            y = If (long) <
                then_branch = longer () => (float[2, 4] a) {{ a = Sigmoid (x) }},
                else_branch = shorter () => (float[2, 4] b) {{ b = Relu (x) }}
            >
        }}""",
        **constants,
    )


def test_an_if_names_what_it_depends_on() -> None:
    reason = why(choice("long = Greater (length, limit)"), "2.4.0")
    assert "an If between 1 node and 1 node" in reason
    assert "its condition 'long' depends on the input(s) length" in reason
    assert "export one model for each branch" in reason


def test_an_if_of_a_constant_is_no_if() -> None:
    model = choice("long = Greater (limit, limit)")
    lower(model, OLD_QNN)
    assert [n.op_type for n in model.graph if n.op_type in {"If", "Relu"}] == ["Relu"]


def test_they_stay_dead_ends_of_the_plan() -> None:
    ends = {end.row.op: end.reason for end in dead_ends(QNN, registry())}
    assert ends["Loop"] == "loop_stays: builds nothing, it says what to do"
    assert "Scan" in ends


def test_the_report_of_the_command_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "loop.onnx"
    ir.save(loop("next = Sigmoid (h)", trips=np.array(3)), path)
    assert main(["plan", str(path), "--ep", "qnn@2.7.0"]) == 3
    assert "export the model with the loop unrolled" in capsys.readouterr().out
