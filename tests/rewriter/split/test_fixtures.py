"""Lowered decoders and encoders of many kinds: the chain of parts is the whole, bit for bit."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
import pytest

from capabilities import target
from frontends import read
from rewriter.cli import main
from rewriter.errors import BadInput
from rewriter.lowering import lower
from rewriter.passes.fix_dims import fix_dims
from rewriter.split import Written, foresee, write_parts
from tests.rewriter.split import chain

FIXTURES = Path(__file__).parents[3] / "fixtures"
DECODE = {"batch": 1, "seq": 1, "past": 16, "total": 16}
PREFILL = {"batch": 1, "seq": 4, "past": 16, "total": 16}
QNN, CPU = "qnn@2.7.0", "ort-cpu"
LAYERS = {"gemma3": 6, "gemma4-moe": 3, "smollm3": 4, "vit": 2}

CASES = [
    *((f"gguf/{name}/model.gguf", QNN, dims)
      for name in ("gemma3", "gemma4-moe", "gpt-oss", "qwen2moe", "smollm3")
      for dims in (DECODE, PREFILL)),
    ("gguf/smollm3/model.gguf", QNN, DECODE | {"batch": 2}),
    *((f"genai/{name}/model.onnx", QNN, DECODE) for name in ("gemma2", "phi3", "gptoss_int4")),
    *((f"genai/{name}/model.onnx", CPU, {}) for name in ("phi3", "qwen2_int4")),
    ("torch/mistral/model.onnx", QNN, {"seq": 8}),
    ("torch/mistral/model.onnx", CPU, {}),
    ("torch/sentence_encoder/model.onnx", QNN, {"seq": 8}),
    ("torch/vit/model.onnx", QNN, {}),
]  # fmt: skip


def _whole(folder: Path, file: str, ep: str, dims: dict[str, int]) -> Path:
    name, _, version = ep.partition("@")
    model = read(FIXTURES / file)
    fix_dims(model, dims)
    lower(model, target(name, version or None), keep_sites=False)
    path = folder / "model.onnx"
    ir.save(model, path, external_data="model.onnx.data")
    return path


def _in_order(written: list[Written]) -> list[str]:
    """Inputs and outputs of the whole, as the parts have them."""
    names = [name for part in written for name in (*part.cut.inputs, *part.cut.outputs)]
    return [name for name in names if name.startswith(("past", "present"))]


@pytest.mark.parametrize(("file", "ep", "dims"), CASES, ids=str)
def test_the_chain_is_bit_equal(file: str, ep: str, dims: dict[str, int], tmp_path: Path) -> None:
    whole = _whole(tmp_path, file, ep, dims)
    feeds = chain.feeds(whole)
    expected = chain.run([whole], feeds)
    layers = LAYERS.get(Path(file).parent.name, 2)
    for parts in (2, 3, None):
        if parts is not None and parts > layers:
            continue
        written = write_parts(whole, parts)
        assert [part.cut.name for part in written] == [
            "embedding", *["layers"] * (parts or 1), "head"
        ]  # fmt: skip
        for part in written:
            for handed in part.cut.hands:
                assert handed.dtype == "float", "integers and booleans stay inside"
        chain.same(expected, chain.run([part.path for part in written], feeds))


@pytest.mark.parametrize("file", sorted({file for file, *_ in CASES}))
def test_layers_are_counted_before_a_model_is_lowered(file: str) -> None:
    model, layers = read(FIXTURES / file), LAYERS.get(Path(file).parent.name, 2)
    foresee(model, layers)
    with pytest.raises(BadInput, match=f"the model has {layers} layers; give a number from 1 to"):
        foresee(model, layers + 1)


def test_too_many_parts_are_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(FIXTURES / "gguf" / "olmo2" / "model.gguf"), "--ep", "qnn", "--split", "3"]
    assert main([*words, "-o", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert "--split 3: the model has 2 layers; give a number from 1 to 2, or auto" in said
    assert "prefill: writing" not in said


@pytest.mark.parametrize("name", ["gemma3", "smollm3"])
@pytest.mark.parametrize("parts", [2, 3])
def test_both_phases_are_cut_alike(name: str, parts: int, tmp_path: Path) -> None:
    orders = []
    for phase, dims in (("prefill", PREFILL), ("decode", DECODE)):
        (tmp_path / phase).mkdir()
        whole = _whole(tmp_path / phase, f"gguf/{name}/model.gguf", QNN, dims)
        written = write_parts(whole, parts)
        orders.append([_in_order([part]) for part in written])
    assert orders[0] == orders[1]


def test_layers_keep_their_norms_where_adding_is_fused_with_them(tmp_path: Path) -> None:
    """The sum and what is added to it are handed on, so that the head has the final norm."""
    whole = _whole(tmp_path, "genai/qwen2_int4/model.onnx", CPU, {})
    written = write_parts(whole, 2)
    for number, part in enumerate(written[1:-1], 2):
        assert [h.name for h in part.cut.hands] == [f"hidden_states.{number}.{i}" for i in (0, 1)]
    head = ir.load(written[-1].path).graph
    assert [node.op_type for node in head] == [
        "SkipSimplifiedLayerNormalization", "MatMulNBits"
    ]  # fmt: skip
