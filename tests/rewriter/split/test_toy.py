"""Where a transformer is cut, whatever its names and its shape; and that the chain is bit-equal."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from rewriter.errors import BadInput
from rewriter.split import Part, check, cut_at, foresee, split, stages, write_parts
from tests.graphs import Builder
from tests.rewriter.split import chain
from tests.rewriter.split.toy import TOKENS, WIDTH, Toy, saved, toy

KINDS = {
    "plain": Toy(),
    "sharing": Toy(sharing=2),
    "sharing the first": Toy(layers=3, sharing=2),
    "per layer": Toy(per_layer=True),
    "both": Toy(layers=5, per_layer=True, sharing=2),
    "embedded": Toy(embedded=True),
    "no head": Toy(head=False),
    "parallel": Toy(parallel=True),
    "pooled": Toy(pooled=True),
    "cross": Toy(cross=True),
    "branches": Toy(branches=True, sharing=1),
    "one layer": Toy(layers=1),
    "one layer with its own input": Toy(layers=1, per_layer=True),
}


CASES = [(k, n) for k, spec in KINDS.items() for n in (1, 2, 3, None) if (n or 1) <= spec.layers]


@pytest.mark.parametrize(("kind", "parts"), CASES)
def test_the_chain_is_bit_equal(kind: str, parts: int | None, tmp_path: Path) -> None:
    spec = KINDS[kind]
    whole = saved(tmp_path, spec)
    feeds = chain.feeds(whole)
    expected = chain.run([whole], feeds)
    written = write_parts(whole, parts)
    names = [part.cut.name for part in written]
    layers = ["layers"] * (parts or 1)
    assert names == [*["embedding"][spec.embedded :], *layers, *["head"][not spec.head :]]
    chain.same(expected, chain.run([part.path for part in written], feeds))


def _names(parts: list[Part], model: ir.Model) -> list[list[str]]:
    return [[handed.name for handed in cut.hands] for cut in cut_at(parts, model)]


def test_one_value_is_handed_on_between_layers() -> None:
    model = toy()
    parts = split(model, 3)
    assert _names(parts, model) == [[f"hidden_states.{k}"] for k in (1, 2, 3, 4)] + [[]]
    cuts = cut_at(parts, model)
    assert cuts[1].reads == cuts[0].hands
    (handed,) = cuts[1].hands
    assert (handed.dtype, handed.shape) == ("float", (1, TOKENS, WIDTH))
    assert handed.bytes == TOKENS * WIDTH * 4
    assert [cut.inputs for cut in (cuts[0], cuts[-1])] == [["tokens"], []]
    assert [len(cut.outputs) for cut in cuts] == [0, 2, 2, 4, 1]
    assert "seen" in cuts[1].inputs
    assert "seen" in cuts[2].inputs, "the mask is computed again, from the input"


def test_a_shared_cache_is_handed_on_as_the_output_that_it_is() -> None:
    model = toy(Toy(layers=5, sharing=2))
    parts = split(model, 5)
    caches = [str(v.name) for v in model.graph.outputs][-2:]
    hands = _names(parts, model)
    assert hands[3] == ["hidden_states.4", *caches]
    assert [set(caches) <= {v.name for v in p.model.graph.inputs} for p in parts] == [
        False, False, False, False, True, True, False
    ]  # fmt: skip
    for part in parts[4:]:
        assert not any((v.name or "").startswith("m") for v in part.model.graph.inputs)
        assert not any(node.op_type == "Concat" for node in part.model.graph)


def test_inputs_of_single_layers_come_from_the_embedding() -> None:
    model = toy(Toy(per_layer=True))
    parts = split(model, 2)
    hands = _names(parts, model)
    assert hands[0] == ["hidden_states.1", *(f"shared.1.{i}" for i in range(4))]
    assert hands[1] == ["hidden_states.2"]
    reads = [[handed.name for handed in cut.reads] for cut in cut_at(parts, model)]
    assert reads[1] == ["hidden_states.1", "shared.1.0", "shared.1.1"]
    assert reads[2] == ["shared.1.2", "shared.1.3", "hidden_states.2"]
    (whole,) = [h.whole for c in cut_at(parts, model) for h in c.hands if h.name == "shared.1.2"]
    assert whole == "part2"


def test_what_an_encoder_found_is_read_where_it_is_looked_at() -> None:
    model = toy(Toy(cross=True))
    parts = split(model, 4)
    assert _names(parts, model) == [[f"hidden_states.{k}"] for k in range(1, 6)] + [[]]
    inputs = [cut.inputs for cut in cut_at(parts, model)]
    assert ["found" in names for names in inputs] == [False, *[True] * 4, False]


def test_the_head_is_the_final_norm_and_the_last_product() -> None:
    for spec, products in ((Toy(), 1), (Toy(pooled=True), 2), (Toy(layers=1), 1)):
        ops = [node.op_type for node in split(toy(spec), 1)[-1].model.graph]
        assert ops.count("MatMul") == products
        assert ops.count("SimplifiedLayerNormalization") == products


def test_a_tied_table_is_in_both_parts() -> None:
    parts = split(toy(), 2)
    tables = [
        {id(v.const_value) for v in part.model.graph.initializers.values()}
        for part in (parts[0], parts[-1])
    ]
    assert len(tables[0] & tables[1]) == 1


def test_names_in_the_way_are_avoided() -> None:
    model = toy()
    model.graph.inputs[0].name = "hidden_states.1"
    parts = split(model, 1)
    assert [v.name for v in parts[0].model.graph.outputs] == ["hidden_states.1_"]
    check(parts, model)


def test_the_model_is_left_as_it_was() -> None:
    model = toy(Toy(sharing=1))
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    split(model, 2)
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before


@pytest.mark.parametrize("parts", [0, 5])
def test_more_parts_than_layers_name_the_layers(parts: int) -> None:
    with pytest.raises(BadInput, match=rf"--split {parts}: the model has 4 layers; .* 1 to 4"):
        split(toy(), parts)
    with pytest.raises(BadInput, match=rf"--split {parts}: the model has 4 layers; .* 1 to 4"):
        foresee(toy(), parts)


def test_no_attention_is_refused() -> None:
    b = Builder()
    x = b.input("x", ir.DataType.FLOAT, (1, 4))
    y = b.op("MatMul", x, b.const("w", np.ones((4, 4), np.float32)), name="y")
    model = b.model([(y, ir.DataType.FLOAT, (1, 4))])
    foresee(model, 9)  # what becomes of the model may have one
    with pytest.raises(BadInput, match="no attention that tells its layers; leave --split out"):
        split(model, None)


def test_attention_without_a_residual_is_refused() -> None:
    b = Builder()
    x = b.input("x", ir.DataType.FLOAT, (1, 4, 4))
    y = b.op("Softmax", b.op("MatMul", x, x, name="scores"), name="probabilities")
    y = b.op("MatMul", y, x, name="mixed")
    model = b.model([(y, ir.DataType.FLOAT, (1, 4, 4))])
    with pytest.raises(BadInput, match="the embedding cannot be told from the first layer"):
        split(model, None)


def test_a_value_of_unknown_shape_is_refused() -> None:
    model = toy()
    for node in model.graph:
        for value in node.outputs:
            value.shape = None
    with pytest.raises(BadInput, match=r"the type or shape of 'v3', .* is not known"):
        split(model, 2)


def test_what_needs_a_large_table_is_handed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every part would hold the table; the rows that are looked up are few."""
    monkeypatch.setattr(stages, "_TABLE_BYTES", 1024)
    whole = saved(tmp_path)
    feeds = chain.feeds(whole)
    written = write_parts(whole, 2)
    assert [h.name for h in written[0].cut.hands] == ["hidden_states.1", "shared.1.0"]
    assert ["places" in part.cut.inputs for part in written] == [True, False, False, False]
    chain.same(chain.run([whole], feeds), chain.run([part.path for part in written], feeds))
