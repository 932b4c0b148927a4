"""Public reports of this field that concern shapes, external data, engine and oracle.

Each test names its report (../shared/reports.md) and holds us to what a correct tool must do;
reports about one op stand in the tests of that op's rule.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.cli import main
from rewriter.lowering import Stuck, lower, plan
from rewriter.parity.settings import EXACT
from rewriter.passes.fix_dims import fix_dims
from rewriter.passes.fold_shapes import settle_shapes
from rewriter.runtime import child
from tests import ort, toys
from tests.decoders import FIXTURE, Decoder, decoder
from tests.graphs import Builder

F32, F16, I64 = ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.INT64
DIMS = ["--dim=batch=1", "--dim=seq=1", "--dim=past=8"]
FAST = ["--parity=none", "--no-place"]


def test_d01_one_attention_is_supported_at_one_version_and_not_at_another() -> None:
    """The minimal input of the report: rank 3, four heads, causal, all static, on 2.4.0."""
    b = Builder()
    qkv = [b.input(name, F32, (1, 8, 64)) for name in "qkv"]
    heads = {"q_num_heads": 4, "kv_num_heads": 4, "is_causal": 1}
    model = b.model([(b.op("Attention", *qkv, name="y", **heads), F32, (1, 8, 64))], 24)
    rng = np.random.default_rng(0)
    given = {name: rng.standard_normal((1, 8, 64)).astype(np.float32) for name in "qkv"}
    expected = ort.run(model, given)["y"]
    assert not plan(model, target("qnn", "2.7.0")).changed
    report = lower(model, target("qnn", "2.4.0"))
    assert report.ops_after["Attention"] == report.ops_after["Shape"] == 0
    assert ort.worst(expected, ort.run(model, given)["y"]) < 1e-6


def test_d15_a_past_key_is_not_rotated_again() -> None:
    model = decoder(Decoder(weights="fp32", layers=1))
    fix_dims(model, {"batch": 1, "seq": 1, "past": 8})
    rng = np.random.default_rng(0)
    given: dict[str, Any] = {
        "input_ids": np.array([[5]]),
        "attention_mask": np.ones((1, 9), np.int64),
        **{f"past_key_values.0.{part}": rng.standard_normal((1, 2, 8, 16)).astype(np.float32)
           for part in ("key", "value")},
    }  # fmt: skip
    expected = ort.run(model, given)
    lower(model, target("qnn", "2.7.0"))
    found = ort.run(model, given)
    for name, reference in expected.items():
        assert ort.worst(reference, found[name]) < 1e-5
    past = given["past_key_values.0.key"]
    assert np.array_equal(found["present.0.key"][:, :, :8], past)


def test_d17_d18_capacity_is_not_length_and_rows_are_left_aligned() -> None:
    """Buffers of 8 with 5 and 3 rows valid: present has 8 rows, the new ones are 5 and 3."""
    model = decoder(Decoder(weights="fp32", layers=1, rotary=False))
    fix_dims(model, {"batch": 2, "seq": 1, "past": 8, "total": 8})
    past = np.full((2, 2, 8, 16), 7, np.float32)
    given: dict[str, Any] = {
        "input_ids": np.array([[5], [6]]),
        "attention_mask": np.array([[1] * 6 + [0] * 2, [1] * 4 + [0] * 4]),
        "past_key_values.0.key": past,
        "past_key_values.0.value": past,
    }
    expected = ort.run(model, given)
    lower(model, target("qnn", "2.7.0"))
    found = ort.run(model, given)
    present = found["present.0.key"]
    assert present.shape == past.shape
    changed = (present != past).any(axis=(1, 3))
    assert [np.flatnonzero(rows).tolist() for rows in changed] == [[5], [3]]
    assert ort.worst(expected["logits"], found["logits"]) < 1e-5
    for sequence, row in enumerate((5, 3)):
        reference = expected["present.0.key"][sequence, :, : row + 1]
        assert ort.worst(reference, present[sequence, :, : row + 1]) < 1e-5


def test_d19_free_dims_stop_the_command_and_zero_is_a_value(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(FIXTURE), "--ep", "qnn", "-o", str(tmp_path / "o"), *FAST]) == 2
    error = capsys.readouterr().err
    for word in ("batch", "seq", "past", "--dim"):
        assert word in error
    prefill = ["--dim=batch=1", "--dim=seq=8", "--dim=past=0"]
    assert main([str(FIXTURE), "--ep", "qnn", "-o", str(tmp_path / "o"), *prefill, *FAST]) == 0


def test_d20_rules_do_not_need_the_value_info_of_a_file() -> None:
    model = decoder()
    for node in model.graph:
        for value in node.outputs:
            if not value.is_graph_output():
                value.shape = value.type = None
    fix_dims(model, {"batch": 1, "seq": 1, "past": 8})
    lower(model, target("qnn", "2.7.0"))
    for node in model.graph:
        for value in node.outputs:
            assert value.dtype is not None, value.name
            assert value.shape is not None, value.name
            assert value.shape.is_static(), value.name


def test_d21_a_type_comes_from_the_tensor_not_from_its_declaration() -> None:
    b = Builder()
    x, skip = b.input("x", F16, (1, 2, 4)), b.input("skip", F16, (1, 2, 4))
    gamma = b.const("gamma", np.ones(4, np.float16))
    gamma.type = None
    y = b.op("com.microsoft::SkipSimplifiedLayerNormalization", x, skip, gamma, name="y")
    model = b.model([(y, F16, (1, 2, 4))])
    lower(model, target("onnx-standard"))
    rng = np.random.default_rng(0)
    given = {n: rng.standard_normal((1, 2, 4)).astype(np.float16) for n in ("x", "skip")}
    assert ort.run(model, given)["y"].dtype == np.float16


def test_d28_the_oracle_does_not_round_activations(tmp_path: Path) -> None:
    """At ORT's defaults the same file is off by more than 1e-3: two right answers would differ."""
    b = Builder()
    x = b.input("x", F32, (1, 4, 64))
    model = b.model([(b.linear(x, "y", 64, 32, "int4_qdq"), F32, (1, 4, 32))])
    dequantize = model.graph[0]
    weight = ort.run(_only(dequantize), {})["w"]
    path = tmp_path / "model.onnx"
    ir.save(model, path)
    feed = {"x": np.random.default_rng(0).standard_normal((1, 4, 64)).astype(np.float32)}
    exact = child.run(child.Job(path, config=EXACT, feeds=[feed])).outputs[0]["y"]
    default = child.run(child.Job(path, optimize=True, feeds=[feed])).outputs[0]["y"]
    wanted = feed["x"] @ weight
    assert ort.worst(wanted, exact) < 1e-6
    assert ort.worst(wanted, default) > 1e-3


def _only(node: ir.Node) -> ir.Model:
    """A DequantizeLinear of constants as a model."""
    b = Builder()
    inputs = [b.const(str(v.name), v.const_value) for v in node.inputs if v and v.const_value]
    attributes = {name: a.value for name, a in node.attributes.items()}
    w = b.op("DequantizeLinear", *inputs, name="w", **attributes)
    return b.model([(w, F32, (64, 32))])


@pytest.mark.parametrize("op", ["RMSNormalization", "RotaryEmbedding"])
def test_d34_openvino_without_a_translator_gets_primitives(op: str) -> None:
    """An Attention and a Gelu behind it are not blamed with it: they are lowered or legal."""
    b = Builder()
    x = b.input("x", F32, (1, 2, 4, 8))
    extra = (
        [b.const("w", np.ones(8, np.float32))]
        if op == "RMSNormalization"
        else [b.input(name, F32, (1, 4, 4)) for name in ("cos", "sin")]
    )
    root = b.op(op, x, *extra, name="root")
    y = b.op("Gelu", b.op("Attention", root, root, root, name="attended", is_causal=1), name="y")
    model = b.model([(y, F32, (1, 2, 4, 8))], 24)
    report = plan(model, target("openvino", "2026.2.1"))
    assert not report.stuck
    assert not report.unknown
    assert not report.ops_after[op]


def test_d37_writing_again_does_not_append(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The report's weights of 262,144 bytes; what is referenced and what is written are said."""
    b = Builder()
    x = b.input("x", F32, (1, 256))
    w = b.const("w", np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32))
    source = tmp_path / "source.onnx"
    ir.save(b.model([(b.op("MatMul", x, w, name="y"), F32, (1, 256))]), source)
    words = [str(source), "--ep", "qnn", *FAST, "-o", str(tmp_path / "o"), "--overwrite"]
    for _ in range(2):
        assert main(words) == 0
        assert (tmp_path / "o" / "model.onnx.data").stat().st_size == 262144
    assert "262,144 bytes before, 262,144 after" in capsys.readouterr().out


def test_d38_a_short_source_is_an_error_and_the_source_is_never_written_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "source"
    shutil.copytree(FIXTURE, source)
    before = (source / "model.onnx.data").read_bytes()
    assert main([str(source), "--ep", "qnn", *DIMS, *FAST, "-o", str(source)]) == 2
    assert (source / "model.onnx.data").read_bytes() == before
    (source / "model.onnx.data").write_bytes(before[:-100])
    capsys.readouterr()
    assert main([str(source), "--ep", "qnn", *DIMS, *FAST, "-o", str(tmp_path / "o")]) == 2
    error = capsys.readouterr().err
    assert "model.onnx.data" in error
    assert "100" in error
    assert not (tmp_path / "o").exists()


def test_d38_shards_with_other_boundaries_lose_no_tensor(tmp_path: Path) -> None:
    """Two files become one in their own folder, under the name of one that is still being read."""
    source = tmp_path / "source"
    source.mkdir()
    model = decoder()
    values = [v for v in model.graph.initializers.values() if v.const_value is not None]
    before = {str(v.name): v.const_value.numpy() for v in values if v.const_value is not None}
    for i, name in enumerate(("model.onnx.data", "more.data")):
        part = [v for at, v in enumerate(values) if at % 3 // 2 == i]
        tensors = [v.const_value for v in part if v.const_value is not None]
        made = ir.external_data.convert_tensors_to_external(tensors, source, name)
        for value, tensor in zip(part, made, strict=True):
            value.const_value = tensor
    ir.save(model, source / "model.onnx")
    words = ["--ep", "ort-cpu", *FAST, "-o", str(source), "--overwrite"]
    assert main([str(source / "model.onnx"), *words]) == 0
    assert not (source / "more.data").exists()
    after = ir.load(source / "model.onnx").graph.initializers
    assert set(after) == set(before)
    for name, array in before.items():
        stored = after[name].const_value
        assert stored is not None
        assert np.array_equal(stored.numpy(), array)


def test_d39_the_output_stands_alone(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(FIXTURE, source)
    words = ["--ep", "qnn", *DIMS, *FAST, "-o", str(tmp_path / "o")]
    assert main([str(source), *words]) == 0
    shutil.rmtree(source)
    job = child.Job(tmp_path / "o" / "model.onnx", assignment=True)
    assert child.run(job).assignment[0].nodes


def test_d40_big_weights_are_not_read_to_decide(tmp_path: Path, monkeypatch: Any) -> None:
    """Everything larger than a scale stays on disk until it is saved."""
    path = tmp_path / "model.onnx"
    ir.save(decoder(Decoder(hidden=128, ffn=256, vocabulary=512)), path, external_data="d")
    model = ir.load(path)
    fix_dims(model, {"batch": 1, "seq": 1, "past": 8})
    read: list[str] = []
    whole = ir.ExternalTensor.numpy

    def noted(tensor: ir.ExternalTensor) -> Any:
        read.append(str(tensor.name))
        return whole(tensor)

    monkeypatch.setattr(ir.ExternalTensor, "numpy", noted)
    lower(model, target("qnn", "2.7.0"), keep_sites=False)
    assert not [name for name in read if "weight_Q4" in name or "embed" in name]


def test_d42_an_inner_value_that_is_an_output_stays_one() -> None:
    """A fusion may not swallow a value that the caller asked for."""
    model = decoder(Decoder(weights="int4_qdq", layers=1))
    weight = next(n for n in model.graph if n.op_type == "DequantizeLinear").outputs[0]
    weight.type, weight.shape = ir.TensorType(F32), ir.Shape((64, 128))
    model.graph.outputs.append(weight)
    names = [v.name for v in model.graph.outputs]
    report = lower(model, toys.target("com.microsoft::MatMulNBits | any | legal"))
    assert report.sites()["matmul_nbits", "MatMul"]
    assert [v.name for v in model.graph.outputs] == names
    assert report.ops_after["DequantizeLinear"] == 1


def test_d46_a_second_run_finds_nothing_to_do() -> None:
    for weights in ("fp32", "int4", "int4_qdq"):
        for ep in ("qnn", "onnx-standard", "openvino@2025.0.0"):
            model = decoder(Decoder(weights=weights))
            fix_dims(model, {"batch": 1, "seq": 1, "past": 8})
            assert lower(model, target(ep)).changed
            again = ir.from_proto(ir.to_proto(model))
            assert not lower(again, target(ep)).changed


def test_d47_two_initializers_may_swap_their_names() -> None:
    """Weights p and q of a branch become the results q and p of an If that is taken."""
    b, branch = Builder(), Builder()
    x, taken = b.input("x", F32, (2,)), b.const("taken", np.array(True))
    inner = [branch.const(n, np.full(2, v, np.float32)) for n, v in (("p", 1), ("q", 2))]
    graph = ir.Graph([], inner[::-1], nodes=[], initializers=inner, name="then")
    other = Builder()
    zeros = other.const("zero", np.zeros(2, np.float32))
    nothing = [other.op("Identity", zeros, name=name) for name in ("left", "right")]
    for value in nothing:
        value.type, value.shape = ir.TensorType(F32), ir.Shape([2])
    rest = ir.Graph([], nothing, nodes=other.nodes, initializers=[zeros], name="else")
    p, q = b.node("If", [taken], ["p", "q"], then_branch=graph, else_branch=rest)
    y = b.op("Sub", b.op("Add", x, p, name="sum"), q, name="y")
    model = b.model([(y, F32, (2,)), (p, F32, (2,)), (q, F32, (2,))])
    settle_shapes(model)
    assert not any(node.op_type == "If" for node in model.graph)
    found = ort.run(model, {"x": np.array([10, 20], np.float32)})
    assert {name: array.tolist() for name, array in found.items()} == {
        "y": [11, 21], "p": [2, 2], "q": [1, 1],
    }  # fmt: skip


@pytest.mark.parametrize(("opset", "after"), [(17, 21), (20, 21), (22, 22)])
def test_d48_blocked_weights_raise_the_opset_to_21_and_no_further(opset: int, after: int) -> None:
    b = Builder()
    x = b.input("x", F32, (1, 4, 64))
    model = b.model([(b.linear(x, "y", 64, 32, "int4"), F32, (1, 4, 32))], opset)
    given = {"x": np.random.default_rng(0).standard_normal((1, 4, 64)).astype(np.float32)}
    expected = ort.run(model, given)["y"]
    assert lower(model, target("onnx-standard")).ops_after["DequantizeLinear"] == 1
    assert model.opset_imports[""] == after
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    assert ort.worst(expected, ort.run(model, given)["y"]) < 1e-6


def test_d49_a_refusal_names_its_first_failed_condition() -> None:
    model = decoder()
    node = next(n for n in model.graph if n.op_type == "GroupQueryAttention")
    node.attributes.add(ir.AttrString("k_quant_type", "PER_TENSOR"))
    fix_dims(model, {"batch": 1, "seq": 1, "past": 8})
    with pytest.raises(
        Stuck, match="attention_primitives refused: k_quant_type=PER_TENSOR is not handled"
    ):
        lower(model, target("qnn", "2.7.0"))


@pytest.mark.parametrize(
    ("words", "listed"),
    [
        (["--ep", "qmm"], "qnn"),
        (["--ep", "qnn@1.0"], "2.7.0"),
        (["--ep", "qnn", "--disable", "nothing"], "add_and_norm"),
    ],
)
def test_d56_an_unknown_name_lists_the_known_ones(
    words: list[str], listed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(FIXTURE), *words, *DIMS, *FAST, "-o", str(tmp_path / "o")]) == 2
    assert listed in capsys.readouterr().err
    assert not (tmp_path / "o").exists()
