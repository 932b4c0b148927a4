"""``rewrite explain MODEL:NODE``: what decides, what becomes of the node, what a person can do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter import explain_node
from rewriter.cli import main
from rewriter.errors import BadInput
from rewriter.node_explanation import Fate, NodeExplanation
from tests.decoders import Decoder, decoder
from tests.graphs import Builder

F32 = ir.DataType.FLOAT


def activated(op: str = "Mish", rows: int | str = 3) -> ir.Model:
    """A product and a function of it."""
    b = Builder()
    x = b.input("x", F32, (rows, 8))
    product = b.op("MatMul", x, b.const("w", b.rng.standard_normal((8, 4), np.float32)), name="xw")
    return b.model([(b.op(op, product, name="y"), F32, (rows, 4))], 22)


def norm_of_parts() -> ir.Model:
    """An RMS norm in parts, ``x / sqrt(mean(x^2) + eps) * w``, as torch exports it."""
    b = Builder()
    x = b.input("x", F32, (2, 3, 8))
    square = b.op("Pow", x, b.const("two", np.float32(2)), name="square")
    axes = b.const("axes", np.array([-1]))
    mean = b.op("ReduceMean", square, axes, name="mean")
    root = b.op("Sqrt", b.op("Add", mean, b.const("eps", np.float32(1e-6)), name="e"), name="root")
    norm = b.op("Mul", x, b.op("Reciprocal", root, name="r"), name="norm")
    y = b.op("Mul", norm, b.const("w", np.arange(8, dtype=np.float32)), name="y")
    return b.model([(y, F32, (2, 3, 8))], 23)


def explained(model: ir.Model, node: str, ep: str, **given: Any) -> NodeExplanation:
    before = [n.op_type for n in model.graph]
    found = explain_node(model, node, target(ep, **given))
    assert [n.op_type for n in model.graph] == before
    return found


def test_a_legal_node() -> None:
    found = explained(activated(), "xw/MatMul", "qnn@2.7.0")
    assert found.fate is Fate.KEPT
    assert found.evidence is not None
    assert found.evidence.best is not None
    assert found.facts[:2] == ("A: float [3, 8]", "B: float [8, 4] const")
    assert any("--illegal 'MatMul" in said for said in found.advice)
    assert not found.rules


def test_a_lowered_node() -> None:
    b = Builder()
    y = b.op("Mish", b.input("x", F32, (3, 4)), name="y")
    model = b.model([(y, F32, (3, 4))], 22)
    found = explained(model, "y/Mish", "qnn@2.7.0", illegal=["Mish"])
    assert (found.fate, found.rules) == (Fate.LOWERED, ("mish_primitives",))
    assert found.becomes == {"Softplus": 1, "Tanh": 1, "Mul": 1}
    assert found.judgement.why == "you said so"
    assert found.legal_on == ("2.3.0", "2.4.0", "2.5.0", "2.6.0", "2.7.0")
    assert any("--legal 'Mish' keeps it" in said for said in found.advice)


def test_a_legal_node_that_goes_with_others_is_not_offered_to_be_legal() -> None:
    found = explained(norm_of_parts(), "e/Add", "qnn@2.7.0")
    assert (found.fate, found.judgement.verdict) == (Fate.FUSED, "legal")
    assert found.becomes == {"RMSNormalization": 1}
    assert not any("--legal" in said or "as it is" in said for said in found.advice)


def test_what_a_rule_built_is_followed() -> None:
    """The norm that the first rule builds is not in the standard either."""
    model = decoder(Decoder(layers=1))
    node = next(n for n in model.graph if n.op_type == "SkipSimplifiedLayerNormalization")
    found = explained(model, str(node.name), "onnx-standard")
    assert found.rules == ("add_and_norm", "rms_primitives")
    assert found.becomes["Add"] >= 1
    assert found.becomes["Sqrt"] == 1
    assert "SimplifiedLayerNormalization" not in found.becomes


def test_a_stuck_node_with_what_was_tried() -> None:
    model = activated("Celu")
    found = explained(model, "y/Celu", "qnn@2.7.0", illegal=["Celu"])
    assert (found.fate, found.rules, found.tried) == (Fate.STUCK, (), ())
    said = " / ".join(found.advice)
    for words in ("--legal 'Celu'", "rewrite probe --ep qnn --op Celu", "--allow-stuck", "a rule"):
        assert words in said


def test_a_rule_that_was_disabled_is_told() -> None:
    on = target("qnn@2.7.0", illegal=["Mish"])
    found = explain_node(activated(), "y/Mish", on, disable=["mish_primitives"])
    assert found.fate is Fate.STUCK
    assert [(t.rule, t.reason) for t in found.tried] == [("mish_primitives", "disabled by you")]
    with pytest.raises(BadInput, match="there is no rule 'nothing'"):
        explain_node(activated(), "y/Mish", on, disable=["nothing"])


def test_a_wrong_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Claimed and miscomputed: OpenVINO 2026.2.1 and attention of rank 3."""
    b = Builder()
    qkv = [b.input(name, F32, (1, 8, 64)) for name in "qkv"]
    heads = {"q_num_heads": 4, "kv_num_heads": 4}
    model = b.model([(b.op("Attention", *qkv, name="y", **heads), F32, (1, 8, 64))], 24)
    ir.save(model, tmp_path / "m.onnx")
    words = ["explain", f"{tmp_path / 'm.onnx'}:y", "--ep", "openvino@2026.2.1"]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert "wrong [Q rank 3]" in text
    assert "rule attention_primitives replaces it" in text or "replaces it" in text
    assert "openvino 2026.4.1 runs it as it is" in text
    assert main([*words, "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)["nodes"]
    assert (told["verdict"], told["fate"]) == ("wrong", "lowered")
    assert told["row"]["form"] == "Q rank 3"
    assert told["legal_on"] == ["2026.4.1"]


def test_a_node_that_is_a_constant() -> None:
    b = Builder()
    x = b.input("x", F32, (3, 8))
    y = b.op("Reshape", b.op("Abs", x, name="a"), b.op("Shape", x, name="shape"), name="y")
    found = explain_node(b.model([(y, F32, (3, 8))], 24), "shape", target("qnn@2.7.0"))
    assert (found.op, found.fate) == ("Shape", Fate.GONE)
    assert found.legal_on == found.advice == ()


def test_fused_nodes() -> None:
    """A written-out norm becomes one node; each of its nodes says so."""
    model = norm_of_parts()
    for name in ("square", "y"):
        found = explained(model, name, "qnn@2.7.0", illegal=["ReduceMean"])
        assert found.fate is Fate.FUSED
        assert found.rules
    assert not any(name.endswith("_primitives") for name in found.rules)


def test_an_unknown_node() -> None:
    b = Builder()
    y = b.op("com.acme::Square", b.input("x", F32, (3, 8)), name="y")
    found = explained(b.model([(y, F32, (3, 8))], 22), "y", "qnn@2.7.0")
    assert found.judgement.row is None
    assert found.fate is Fate.UNKNOWN


def test_free_dims_are_the_first_thing_to_do() -> None:
    found = explained(activated(rows="rows"), "y/Mish", "qnn@2.7.0")
    assert found.facts[0] == "X: float [?, 4]"
    assert found.advice[0].startswith("its dims are not all known: fix them with --dim")


def test_what_stays_for_its_free_dims_may_go_with_them() -> None:
    found = explain_node(
        activated(rows="rows"), "y/Mish", target("qnn", "2.7.0"), disable=["mish_primitives"]
    )
    assert found.fate is Fate.OPEN
    (advice,) = found.advice
    assert advice.startswith("its dims are not all known: fix them with --dim")


def test_a_path_and_a_name_may_hold_colons(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = activated()
    model.graph[1].name = "act:0"
    path = tmp_path / "a:b.onnx"
    ir.save(model, path)
    assert main(["explain", f"{path}:act:0", "--ep", "qnn@2.7.0"]) == 0
    assert "Mish 'act:0' on qnn@2.7.0" in capsys.readouterr().out
