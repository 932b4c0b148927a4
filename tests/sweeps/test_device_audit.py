"""Forms that HTP computes wrong, planted, are found on every measured version of QNN."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from rewriter import packing
from rewriter.cli import main
from tests.decoders import FIXTURE
from tests.htp import needs_qnn
from tests.sweeps.environments import PACKAGES, python_of
from tests.wrong_on_htp import WRONG, chain, without_zero_point

pytestmark = [pytest.mark.slow, needs_qnn]

OTHERS = [ep for ep in PACKAGES if ep.startswith("qnn")]
LAYER = "layers.1/mlp/up"


@pytest.mark.parametrize("ep", OTHERS)
def test_weights_that_are_read_as_unsigned(
    ep: str, environments: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ir.save(chain(without_zero_point), tmp_path / "m.onnx")
    runtime = ["--runtime", str(python_of(environments, ep))]
    assert main(["audit", str(tmp_path / "m.onnx"), "--ep", "qnn", "--json", *runtime]) == 4
    told = json.loads(capsys.readouterr().out)
    assert ep.removeprefix("qnn@") in told["runtime"]
    assert told["departure"]["node"] == f"layers.{WRONG}/product/MatMul"
    assert not told["departure"]["alone"]["ok"]


def test_a_weight_of_a_decoder_in_16_bits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As unsigned integers around 8 it is the same number, and HTP adds the 8."""
    dims = ["--dim=batch=1", "--dim=seq=1", "--dim=past=8"]
    words = [str(FIXTURE), "--ep", "qnn", *dims, "--activations", "a16"]
    words += ["--no-place", "--parity", "none"]
    assert main([*words, "-o", str(tmp_path / "o")]) == 0
    right = tmp_path / "o" / "model.onnx"
    assert main(["audit", str(right), "--ep", "qnn"]) == 0
    model = ir.load(right)
    around_8(model)
    ir.save(model, tmp_path / "wrong.onnx", external_data="wrong.data")
    capsys.readouterr()
    assert main(["audit", str(tmp_path / "wrong.onnx"), "--ep", "qnn", "--json"]) == 4
    found = json.loads(capsys.readouterr().out)["departure"]
    assert (found["op"], found["value"]) == ("MatMul", f"{LAYER}/QuantizeLinear")
    assert not found["alone"]["ok"]


def around_8(model: ir.Model) -> None:
    """Plant it in one layer."""
    (node,) = (
        node
        for node in model.graph
        if node.op_type == "DequantizeLinear" and (node.name or "").startswith(f"{LAYER}/MatMul")
    )
    for place, name in ((0, "codes"), (2, "points")):
        value = node.inputs[place]
        assert value is not None
        assert value.const_value is not None
        integers = np.asarray(value.const_value.numpy()).astype(np.int8) + 8
        tensor = packing.integers(integers, ir.DataType.UINT4)
        tensor.name = f"planted {name}"
        planted = ir.Value(name=tensor.name, const_value=tensor, type=ir.TensorType(tensor.dtype))
        planted.shape = ir.Shape(integers.shape)
        model.graph.register_initializer(planted)
        node.replace_input_with(place, planted)
