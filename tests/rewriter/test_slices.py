"""What is too much for this machine is cut to a slice, which the report says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from frontends import read
from rewriter import budget, proof
from rewriter.lowering import lower
from rewriter.passes.fix_dims import fix_dims
from rewriter.rules.parts import positions
from rewriter.slices import alike, distinct
from rewriter.wellformed import faults
from tests import toys
from tests.command_line import DIMS as DECODE
from tests.command_line import report_of, rewritten
from tests.decoders import Decoder, decoder

DIMS = {"batch": 1, "seq": 1, "past": 8}
QNN = ["--ep", "qnn", *DECODE]
TINY = ["--budget", "0.0001"]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Six layers, of which one and the head are distinct."""
    path = tmp_path / "model.onnx"
    ir.save(decoder(Decoder(layers=6, packed=False)), path, external_data="model.onnx.data")
    return path


def _needs(gigabytes: float, monkeypatch: pytest.MonkeyPatch) -> None:
    for where in (budget, proof):
        monkeypatch.setattr(where, "free_gb", lambda: gigabytes)


def test_a_slice_holds_every_form(model: Path) -> None:
    given = read(model)
    fix_dims(given, DIMS)
    lower(given, target("qnn", "2.7.0"))
    part = distinct(given)
    assert part is not None
    assert part.nodes < 70 < 250 < part.of
    assert not list(faults(part.model))
    ops = [{node.op_type for node in one.graph} for one in (given, part.model)]
    assert ops[0] == ops[1]
    assert "logits" in [value.name for value in part.model.graph.outputs]


def test_nothing_repeats_so_there_is_no_slice() -> None:
    assert distinct(toys.chain(["Relu", "Neg", "Sigmoid"])) is None
    assert alike(toys.chain(["Relu", "Neg"]), toys.chain(["Relu", "Neg"])) is None


def test_a_graph_inside_may_read_anything_so_there_is_no_slice() -> None:
    model = toys.chain(["Relu"] * 9)
    assert distinct(model) is not None
    body = ir.AttrGraph("body", toys.chain(["Relu"]).graph)
    list(model.graph)[4].attributes["body"] = body
    assert distinct(model) is None


def test_a_rule_that_reached_across_the_cut_leaves_no_common_slice() -> None:
    names = ["Relu"] * 9
    original, result = toys.chain(names), toys.chain(names)
    assert alike(original, result) is not None
    last = list(result.graph)[-1]
    last.replace_input_with(0, result.graph.inputs[0])
    original.graph.outputs[0].producer().op_type = "Neg"  # type: ignore[union-attr]  # a node computes it
    last.op_type = "Neg"
    assert alike(original, result) is None


def test_a_budget_that_is_too_small_places_a_slice(model: Path) -> None:
    assert rewritten(model, *QNN, "--parity", "none", *TINY) == 0
    graph = report_of(model.parent)
    size = graph["placement"]["slice"]
    assert size["nodes"] < 70 < 250 < size["of"] == sum(graph["ops_after"].values())
    assert graph["placement"]["on_cpu"] == 0
    assert graph["placement"]["full"]
    note = f"placed was a slice of {size['nodes']} of {size['of']} nodes"
    assert any(n.startswith(note) and "--budget 0.0001" in n for n in graph["notes"])


def test_the_terminal_says_that_it_was_a_slice(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rewritten(model, *QNN, "--parity", "none", *TINY)
    out = capsys.readouterr().out
    assert "placed: a slice of" in out
    assert "that holds every distinct form" in out


def test_a_slice_is_enough_to_contradict_the_table(model: Path) -> None:
    legal = ["--legal", "com.microsoft::SkipSimplifiedLayerNormalization"]
    assert rewritten(model, *QNN, *legal, "--parity", "none", *TINY) == 5
    ops = report_of(model.parent)["placement"]["cpu_ops"]
    assert 0 < ops["com.microsoft::SkipSimplifiedLayerNormalization"] < 12


def test_the_device_is_compared_on_the_slice(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _needs(2.5e-9 * model.with_name("model.onnx.data").stat().st_size, monkeypatch)
    assert rewritten(model, *QNN, "--parity", "device") == 0
    graph = report_of(model.parent)
    assert graph["placement"]["slice"]
    assert graph["parity"]["device"]["ok"]
    assert graph["parity"]["model"]["slice"] is None


def test_a_slice_that_is_too_much_as_well_is_said(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _needs(0.0, monkeypatch)
    assert rewritten(model, *QNN, "--parity", "none") == 0
    graph = report_of(model.parent)
    assert graph["placement"] is None
    assert any("no slice of it is small enough" in note for note in graph["notes"])


def test_memory_that_is_short_compares_a_slice(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _needs(1e-4, monkeypatch)
    assert rewritten(model, *QNN, "--no-place") == 0
    graph = report_of(model.parent)
    found = graph["parity"]["model"]
    assert found["slice"]["nodes"] < 30 < found["slice"]["of"]
    outputs = {output["name"]: output["max_std"] for output in found["outputs"]}
    assert outputs["logits"] < 1e-5
    assert outputs["present.0.key"] < 1e-5
    assert any("compared was a slice of" in n and "GB of memory" in n for n in graph["notes"])


def test_a_wrong_rule_is_seen_in_a_slice(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _needs(1e-4, monkeypatch)
    monkeypatch.setattr(positions, "MASKED", -0.5)
    assert rewritten(model, *QNN, "--no-place") == 4
    assert not report_of(model.parent)["parity"]["model"]["ok"]


def test_what_has_no_slice_is_not_called_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _needs(0.0, monkeypatch)
    path = tmp_path / "model.onnx"
    ir.save(toys.chain(["Relu"], build=lambda b, x: b.op("MatMul", x, b.const(
        "w", np.eye(3, dtype=np.float32)), name="y")), path)  # fmt: skip
    assert rewritten(path, "--ep", "qnn", "--no-place") == 4
    assert "no slice of it" in report_of(tmp_path)["parity"]["model"]["note"]
