"""Key heads repeated before an Attention go into it as they were, in the right order only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.lowering import lower, plan
from tests import htp, ort, toys
from tests.graphs import Builder

F32, BOOL = ir.DataType.FLOAT, ir.DataType.BOOL
B, HK, G, S, T, D = 2, 2, 3, 3, 5, 8
STANDARD = target("onnx-standard")


def attention(
    *, order: str = "repeat", values: str = "", mask: str = "bool", outputs: int = 1,
    groups: int = G, past: bool = False, **attributes: Any,
) -> ir.Model:  # fmt: skip
    """Attention with keys and values that are repeated (h // G) or tiled (h % Hk)."""
    b = Builder()
    q = b.input("q", F32, (B, HK * G, S, D))
    k, v = (b.input(name, F32, (B, HK, T, D)) for name in ("k", "v"))

    def many(x: ir.Value, order: str) -> ir.Value:
        axis = 2 if order == "repeat" else 1
        sizes = (B, HK, groups, T, D) if order == "repeat" else (B, groups, HK, T, D)
        apart = b.op("Unsqueeze", x, b.const(f"{x.name} axis", np.array([axis])), name=f"{x.name}1")
        wide = b.op("Expand", apart, b.const(f"{x.name} sizes", np.array(sizes)), name=f"{x.name}2")
        shape = b.const(f"{x.name} shape", np.array([B, HK * groups, T, D]))
        return b.op("Reshape", wide, shape, name=f"{x.name}/many")

    given = [q, many(k, order), many(v, values or order)]
    if mask:
        given.append(b.input("mask", BOOL if mask == "bool" else F32, (B, 1, S, T)))
    if past:
        given += [b.input(n, F32, (B, HK * G, 1, D)) for n in ("past_key", "past_value")]
    names = ["y", "present_key", "present_value"][:outputs]
    made = b.node("Attention", given, names, **attributes)
    shapes = [(B, HK * G, S, D), *[(B, HK * G, T + past, D)] * 2]
    found = [(value, F32, shape) for value, shape in zip(made, shapes, strict=False)]
    return b.model(found, opset=23)


def feeds(model: ir.Model) -> ort.Arrays:
    rng = np.random.default_rng(1)
    found: ort.Arrays = {
        str(v.name): rng.standard_normal(v.shape.numpy()).astype(np.float32)  # type: ignore[union-attr]  # it has a shape
        for v in model.graph.inputs
    }
    if "mask" in found and next(v for v in model.graph.inputs if v.name == "mask").dtype == BOOL:
        found["mask"] = found["mask"] > -0.5
        found["mask"][..., 2] = True
    return found


@pytest.mark.parametrize("mask", ["", "bool", "float"])
@pytest.mark.parametrize(
    "attributes",
    [{}, {"scale": 0.5}, {"softcap": 1.5}, {"is_causal": 1}, {"softmax_precision": 1}],
    ids=str,
)
def test_the_same_with_fewer_heads(attributes: dict[str, Any], mask: str) -> None:
    model = attention(mask=mask, **attributes)
    given = feeds(model)
    expected = ort.run(model, given)["y"]
    lower(model, STANDARD)
    (node,) = model.graph
    assert [str(v.name) for v in node.inputs[:3] if v is not None] == ["q", "k", "v"]
    assert {k: a.value for k, a in node.attributes.items()} == pytest.approx(attributes)
    assert ort.worst(expected, ort.run(model, given)["y"]) < 1e-6


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"order": "tile"}, "keys and values are not repeated head by head"),
        ({"values": "tile"}, "keys and values are not repeated head by head"),
        ({"outputs": 3}, "present_key is used"),
    ],
    ids=str,
)
def test_stays_where_it_would_be_another_function(changes: dict[str, Any], reason: str) -> None:
    rows = toys.target("Attention | is_causal=1 | illegal", "Attention | is_causal=0 | legal")
    report = plan(attention(is_causal=1, **changes), rows, disable=["scaled_products"])
    (stuck,) = report.stuck
    assert reason in {tried.reason for tried in stuck.tried}


def test_a_past_has_the_repeated_heads() -> None:
    assert not plan(attention(past=True, mask="float", outputs=3), STANDARD).changed


def test_stays_where_grouped_heads_are_wrong() -> None:
    """OpenVINO 2026.2 tiles them (D04)."""
    report = plan(attention(mask="float"), target("openvino", "2026.2.1"))
    assert not any(site.rule == "grouped_heads" for site in report.fired)


@htp.needs_qnn
@pytest.mark.parametrize("mask", ["", "float"])
def test_placed_whole_on_htp(mask: str, tmp_path: Path) -> None:
    """A mask that comes at run time may hide a row whole, and the Attention is written out."""
    model = attention(mask=mask)
    given = feeds(model)
    expected = ort.run(model, given)
    lower(model, target("qnn", "2.7.0"))
    ops = [node.op_type for node in model.graph]
    assert ("Softmax" in ops) if mask else ops == ["Attention"]
    htp.check(model, given, expected, tmp_path)
