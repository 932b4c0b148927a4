"""Dims by name, place and role; what follows from them; what cannot be."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from rewriter.errors import BadInput
from rewriter.passes.fix_dims import DIMS, Dims, FreeDims, fix_dims
from tests.decoders import Decoder, decoder
from tests.graphs import Builder

F32, I64 = ir.DataType.FLOAT, ir.DataType.INT64
DECODE = {"batch": 1, "seq": 1, "past": 8}
SUM = "past_sequence_length + sequence_length"


def optimum() -> ir.Model:
    """Inputs as optimum names them: the mask's length is a sum of symbols."""
    b = Builder()
    mask = b.input("attention_mask", I64, ("batch_size", SUM))
    ids = b.input("input_ids", I64, ("batch_size", "sequence_length"))
    past = b.input("past_key_values.0.key", F32, ("batch_size", 2, "past_sequence_length", 16))
    outputs = []
    for value, dtype, shape in (
        (mask, I64, ("batch_size", SUM)),
        (ids, I64, ("batch_size", "sequence_length")),
        (past, F32, ("batch_size", 2, "past_sequence_length", 16)),
    ):
        outputs.append((b.op("Identity", value, name=f"{value.name}/same"), dtype, shape))
    return b.model(outputs)


def shape_of(model: ir.Model, name: str) -> list[int | str]:
    """Shape of an input."""
    value = next(v for v in model.graph.inputs if v.name == name)
    return [d if isinstance(d, int) else str(d) for d in value.shape or ()]


def values(dims: Dims) -> dict[str, int]:
    """Symbols and values, the names of the builder's decoders shortened."""
    short = {"batch_size": "b", "sequence_length": "s", "past_sequence_length": "p"}
    short |= {"total_sequence_length": "t", SUM: "t", "kv_cache_dim": "d"}
    return {short[symbol]: value for symbol, value in dims.values().items()}


# -- names -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "asked",
    [
        DECODE,
        {"batch_size": 1, "sequence_length": 1, "past_sequence_length": 8},
        {"input_ids:0": 1, "input_ids:1": 1, "past_key_values.1.value:2": 8},
        {"batch": 1, "batch_size": 1, "seq": 1, "past": 8, "total": 9},
    ],
    ids=["roles", "symbols", "places", "both"],
)
def test_a_dim_by_any_of_its_names(asked: dict[str, int]) -> None:
    model = decoder()
    dims = fix_dims(model, asked)
    assert values(dims) == {"b": 1, "s": 1, "p": 8, "t": 9, "d": 16}
    assert not dims.free
    assert shape_of(model, "attention_mask") == [1, 9]
    assert shape_of(model, "past_key_values.1.value") == [1, 2, 8, 16]
    assert model.graph.outputs[0].shape == (1, 1, 256)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"nope": 1}, "--dim nope: the model has no such dim; its dims are batch_size (batch)"),
        ({"input_ids:7": 1}, "--dim input_ids:7: the model has no such dim"),
        ({"batch": -1}, "--dim batch=-1: a dim is 0 or more"),
        ({"batch": 1, "batch_size": 2}, "--dim batch_size=2: batch_size is 1 by another"),
        ({"input_ids:1": 1, "seq": 2}, "sequence_length is 1 by another"),
        ({"seq": 0}, "seq is 1 or more"),
        ({**DECODE, "total": 10}, "total_sequence_length is given as 10"),
        ({**DECODE, "seq": 4, "total": 3}, "it is from 4 to 12"),
        ({**DECODE, "past": 200}, "a sequence of 201"),
        ({**DECODE, "kv_cache_dim": 7}, "where (batch, 2, past, 16) is needed"),
    ],
)
def test_what_cannot_be_is_refused(asked: dict[str, int], words: str) -> None:
    with pytest.raises(BadInput) as caught:
        fix_dims(decoder(), asked)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_empty_past_is_a_first_call() -> None:
    model = decoder()
    dims = fix_dims(model, {"batch": 1, "seq": 8, "past": 0})
    assert values(dims)["t"] == 8
    assert shape_of(model, "past_key_values.0.key") == [1, 2, 0, 16]


def test_a_mask_within_the_past_is_a_buffer_with_room() -> None:
    assert values(fix_dims(decoder(), {**DECODE, "total": 8}))["t"] == 8


def test_dims_without_a_name_are_called_by_their_place() -> None:
    b = Builder()
    x = b.input("x", F32, (None, 4))
    model = b.model([(b.op("Relu", x, name="y"), F32, (None, 4))])
    loaded = ir.from_proto(ir.to_proto(model))  # shapes of a file cannot be set in part
    assert [d.name for d in fix_dims(loaded, {}).free] == ["x_0"]
    fix_dims(loaded, {"x:0": 3})
    assert loaded.graph.outputs[0].shape == (3, 4)
    assert not fix_dims(loaded, {"x:0": 3, "x_0": 3}).values()


@pytest.mark.parametrize("symbol", ["my dim", "?", "1st", "a:b", "a[0]"])
def test_a_symbol_that_is_no_expression(symbol: str) -> None:
    b = Builder()
    x = b.input("x", F32, (symbol, 4))
    model = b.model([(b.op("Relu", x, name="y"), F32, (symbol, 4))])
    loaded = ir.from_proto(ir.to_proto(model))
    [free] = fix_dims(loaded.clone(), {}).free
    for name in (symbol, free.name):
        fixed = loaded.clone()
        assert fix_dims(fixed, {name: 3}).values() == {free.name: 3}
        assert fixed.graph.outputs[0].shape == (3, 4)


# -- sums ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "asked",
    [
        {"batch": 1, "seq": 1, "past": 8},
        {"batch": 1, "seq": 1, "total": 9},
        {"batch": 1, "past": 8, SUM: 9},
        {"batch": 1, "past": 8, "past_sequence_length+sequence_length": 9},
        {"batch": 1, "past": 8, "attention_mask:1": 9, "seq": 1},
    ],
)
def test_a_sum_and_its_terms_determine_each_other(asked: dict[str, int]) -> None:
    model = optimum()
    dims = fix_dims(model, asked)
    assert values(dims) == {"b": 1, "s": 1, "p": 8, "t": 9}
    assert shape_of(model, "attention_mask") == [1, 9]
    assert not dims.free


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"seq": 1, "past": 8, "total": 8}, "is given as 8, but its parts make 9"),
        ({"seq": 9, "total": 8}, "is given as 8, less than its parts, 9"),
    ],
)
def test_a_sum_that_is_none(asked: dict[str, int], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        fix_dims(optimum(), {"batch": 1, **asked})


def test_a_sum_with_a_number() -> None:
    b = Builder()
    x, y = b.input("x", F32, ("n",)), b.input("y", F32, ("n + 1",))
    outputs = [(b.op("Relu", v, name=f"{v.name}r"), F32, v.shape or ()) for v in (x, y)]
    model = b.model([(v, t, [str(d) for d in s]) for v, t, s in outputs])
    fix_dims(model, {"n": 4})
    assert shape_of(model, "y") == [5]


# -- what is free ----------------------------------------------------------------------------


def test_free_dims_say_what_they_are_and_what_would_work() -> None:
    dims = fix_dims(decoder(), {})
    with pytest.raises(FreeDims) as caught:
        dims.require_fixed("qnn")
    listed = str(caught.value).splitlines()
    assert listed[0].startswith("qnn runs fixed shapes only")
    assert [line.split(":")[0].strip() for line in listed[1:]] == ["batch", "seq", "total", "past"]
    assert "input_ids, axis 1; new tokens of one call" in listed[2]
    words = caught.value.words()
    assert words == ["--dim", "batch=1", "--dim", "seq=1", "--dim", "past=127"]  # 128 rotary rows
    asked = {k: int(v) for k, _, v in (w.partition("=") for w in words[1::2])}
    assert not fix_dims(decoder(), asked).free


@pytest.mark.parametrize(
    ("asked", "past"), [({"seq": 16}, 112), ({"seq": 128}, 0), ({"batch": 2}, 127)]
)
def test_proposals_fit_what_is_given(asked: dict[str, int], past: int) -> None:
    found = {d.name: d.proposal for d in fix_dims(decoder(), asked).free}
    assert found["past"] == past


def test_proposals_without_a_rotary_table() -> None:
    model = decoder(Decoder(rotary=False))
    assert {d.name: d.proposal for d in fix_dims(model, {}).free}["past"] == 128


def test_an_encoder_is_given_a_whole_text() -> None:
    b = Builder()
    ids = b.input("input_ids", I64, ("batch_size", "sequence_length"))
    model = b.model([(b.op("Identity", ids, name="y"), I64, ("batch_size", "sequence_length"))])
    assert {d.name: d.proposal for d in fix_dims(model, {}).free} == {"batch": 1, "seq": 128}


def test_two_dims_of_one_role_keep_their_own_names() -> None:
    b = Builder()
    x, y = b.input("x", F32, ("batch",)), b.input("y", F32, ("N",))
    outputs = [(b.op("Relu", v, name=f"{v.name}r"), F32, [None]) for v in (x, y)]
    model = b.model(outputs)
    assert [d.name for d in fix_dims(model, {}).free] == ["batch", "N"]


# -- again, and wrongly ----------------------------------------------------------------------


@pytest.mark.parametrize("asked", [DECODE, {"input_ids:0": 1, "sequence_length": 1, "past": 8}])
def test_the_same_again_changes_nothing(asked: dict[str, int]) -> None:
    model = decoder()
    fix_dims(model, asked)
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    dims = fix_dims(model, asked)
    assert not dims.values()
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before


def test_another_value_the_second_time_is_refused() -> None:
    model = decoder()
    fix_dims(model, DECODE)
    for asked in ({"batch": 2}, {"batch_size": 2}, {"input_ids:0": 2}, {"total": 5}):
        with pytest.raises(BadInput, match="this model has it fixed at"):
            fix_dims(model, asked)
    with pytest.raises(BadInput, match="all its dims are fixed"):
        fix_dims(model, {"nope": 2})


def test_roles_by_symbol_alone_are_remembered_too() -> None:
    b = Builder()
    x = b.input("x", F32, ("batch_size", 4))
    model = b.model([(b.op("Relu", x, name="y"), F32, ("batch_size", 4))])
    fix_dims(model, {"batch": 2})
    assert not fix_dims(model, {"batch": 2, "batch_size": 2, "x:0": 2}).values()


@pytest.mark.parametrize("text", ["no json", "[1]", '{"batch": "x"}', "batch=1"])
def test_memory_of_somebody_else_is_none(text: str) -> None:
    model = decoder()
    model.metadata_props[DIMS] = text
    fix_dims(model, DECODE)
    assert '"batch_size": 1' in model.metadata_props[DIMS]


def toy(*, inputs: int = 8, outputs: int = 4) -> ir.Model:
    """Relu of x times w (8, 4), declared as given."""
    b = Builder()
    x = b.input("x", F32, ("n", inputs))
    y = b.op("MatMul", x, b.const("w", np.ones((8, 4), np.float32)), name="y")
    return b.model([(b.op("Relu", y, name="z"), F32, ("n", outputs))])


def test_shapes_that_contradict_each_other() -> None:
    fix_dims(toy(), {"n": 2})
    with pytest.raises(BadInput, match=r"z at dim 1: existing 5 vs inferred 4; export it again"):
        fix_dims(toy(outputs=5), {})
    with pytest.raises(BadInput, match=r"with n=2, shapes do not fit.*9 vs 8; give other dims"):
        fix_dims(toy(inputs=9), {"n": 2})


def test_caches_that_contradict_their_attention() -> None:
    model = decoder(Decoder(layers=1))
    past = next(v for v in model.graph.inputs if v.name == "past_key_values.0.value")
    past.shape = ir.Shape(["batch_size", 3, "past_sequence_length", "kv_cache_dim"])
    with pytest.raises(BadInput, match=r"'past_key_values.0.value' .* where \(batch, 2, past, 16"):
        fix_dims(model, DECODE)


def test_an_attention_without_heads() -> None:
    model = decoder(Decoder(layers=1))
    node = next(n for n in model.graph if n.op_type == "GroupQueryAttention")
    node.attributes["num_heads"] = ir.AttrInt64("num_heads", 0)
    with pytest.raises(BadInput, match="has 0 heads"):
        fix_dims(model, DECODE)


def test_the_cache_of_a_window_has_the_rows_of_the_window() -> None:
    """Whatever came before; unless its dim is asked for by its own name."""

    def windowed() -> ir.Model:
        model = decoder()
        for node in model.graph:
            if node.op_type == "GroupQueryAttention" and "layers.0" in (node.name or ""):
                node.attributes["sliding_window_cache"] = ir.AttrInt64("sliding_window_cache", 1)
                node.attributes["local_window_size"] = ir.AttrInt64("local_window_size", 6)
                for value in node.inputs[3:5]:
                    assert value is not None
                    assert value.shape is not None
                    value.shape = ir.Shape([*value.shape[:2], "past_sliding", value.shape[3]])
        return model

    for past in (0, 4, 8):
        model = windowed()
        dims = fix_dims(model, {"batch": 1, "seq": 8, "past": past})
        assert dims.derived["past_sliding"] == (6, "the window that its cache has to hold")
        assert dims.derived["total_sequence_length"][0] == past + 8
        caches = [v.shape for v in model.graph.inputs if (v.name or "").startswith("past")]
        assert {None if shape is None else shape[2] for shape in caches} == {6, past}
    named = {"batch": 1, "seq": 1, "past_sequence_length": 4, "past_sliding": 9}
    dims = fix_dims(windowed(), named)
    assert dims.fixed["past_sliding"] == 9


def test_the_head_size_follows_from_what_is_put_behind_a_cache() -> None:
    """The genai builder joins caches outside MultiHeadAttention for float16 on the CPU."""
    b = Builder()
    past = b.input("past_key_values.0.key", ir.DataType.FLOAT16, ("batch", 2, "past", "size"))
    new = b.input("new", ir.DataType.FLOAT16, ("batch", 2, 1, 16))
    total = b.op("Concat", past, new, name="present.0.key", axis=2)
    model = b.model([(total, ir.DataType.FLOAT16, ("batch", 2, "total", "size"))])
    dims = fix_dims(model, {"batch": 1, "past": 8})
    assert dims.derived["size"] == (16, "what 'present.0.key/Concat' puts together")
    assert total.shape == ir.Shape((1, 2, 9, 16))
