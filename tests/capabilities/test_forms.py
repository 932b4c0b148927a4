from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from capabilities import forms
from capabilities.facts import Facts, Tensor
from capabilities.forms import TERMS, Form, term

MATMUL = Facts(
    op="com.microsoft::MatMulNBits",
    opset=1,
    attributes={"K": 128, "N": 64, "bits": 4, "block_size": 32, "epsilon": 1e-5, "mode": "linear"},
    inputs={
        "A": Tensor("float16", (1, 8, 128), source="Mul"),
        "B": Tensor("uint8", (64, 4, 16), const=True),
        "zero_points": Tensor("uint8", (64, 2), const=True, uniform=136.0),
    },
    outputs={"Y": Tensor("float16", (1, 8, 64), boundary=True)},
    standard=False,
    options={"op_affinity": "a.json", "soc_model": "60"},
)
STORED = replace(MATMUL, inputs={"B": Tensor("uint8", (64, 4, 16), const=True, outside=True)})
NORM = Facts(
    op="LayerNormalization",
    attributes={"axis": -1, "scale": None},
    inputs={"X": Tensor("float", (2, None, 64)), "Scale": Tensor("float", (64,), const=True)},
    outputs={"Y": Tensor("float", None)},
)
WEIGHT = Facts(
    op="DequantizeLinear",
    attributes={"axis": 1, "block_size": 0},
    inputs={"x": Tensor("int4", (8, 8), const=True), "x_scale": Tensor("float", ())},
    outputs={"y": Tensor("float", (8, 8))},
    activations="uint16",
)


def scaled(shape: tuple[int, ...] | None, block_size: int = 0) -> Facts:
    """The weight, with scales of that shape."""
    attributes = {**WEIGHT.attributes, "block_size": block_size}
    inputs = {**WEIGHT.inputs, "x_scale": Tensor("float", shape)}
    return replace(WEIGHT, attributes=attributes, inputs=inputs)


def heads(q: int, k: int) -> Facts:
    """An Attention of rank 4."""
    return Facts(
        op="Attention",
        attributes={"q_num_heads": None, "kv_num_heads": None},
        inputs={"Q": Tensor("float", (1, q, 8, 16)), "K": Tensor("float", (1, k, 8, 16))},
    )


@pytest.mark.parametrize(
    ("facts", "text", "expected"),
    [
        (MATMUL, "any", True),
        (MATMUL, "not any", False),
        (NORM, "standard", True),
        (MATMUL, "standard", False),
        (MATMUL, "not standard", True),
        (NORM, "newer", False),
        (replace(NORM, newer=True), "newer", True),
        (MATMUL, "opset 1", True),
        (MATMUL, "opset <= 1", True),
        (MATMUL, "opset > 1", False),
        (MATMUL, "dynamic", False),
        (NORM, "dynamic", True),
        (replace(MATMUL, outputs={"Y": Tensor("float", None)}), "dynamic", True),
        (MATMUL, "empty", False),
        (replace(MATMUL, inputs={"A": Tensor("float", (1, 0, 4))}), "empty", True),
        (STORED, "some uint8/int4 outside the file", True),
        (STORED, "some float16 outside the file", False),
        (MATMUL, "some uint8 outside the file", False),
        (replace(NORM, traits=frozenset({"root last"})), "root last", True),
        (NORM, "root last", False),
        (MATMUL, "zero_points given", True),
        (MATMUL, "zero_points absent", False),
        (MATMUL, "bias given", False),
        (MATMUL, "bias absent", True),
        (MATMUL, "Y given", True),
        (MATMUL, "B const", True),
        (MATMUL, "A const", False),
        (MATMUL, "bias const", False),
        (MATMUL, "A from Mul", True),
        (MATMUL, "A from Add", False),
        (MATMUL, "B from Mul", False),
        (MATMUL, "A rank 3", True),
        (MATMUL, "A rank <= 3", True),
        (MATMUL, "A rank <= 2", False),
        (MATMUL, "A rank > 2", True),
        (MATMUL, "A rank > 3", False),
        (MATMUL, "Y rank 3", True),
        (MATMUL, "bias rank 3", False),
        (MATMUL, "bias rank <= 9", False),
        (MATMUL, "rank 3", True),
        (MATMUL, "rank > 3", False),
        (NORM, "Y rank <= 4", False),
        (MATMUL, "A dim -1 128", True),
        (MATMUL, "A dim 1 8", True),
        (MATMUL, "A dim -1 > 127", True),
        (MATMUL, "A dim -1 <= 127", False),
        (MATMUL, "A dim 3 1", False),
        (NORM, "X dim 1 > 0", False),
        (NORM, "Y dim 0 > 0", False),
        (MATMUL, "A dim 1 as in Y", True),
        (MATMUL, "A dim 2 as in Y", False),
        (MATMUL, "A dim 7 as in Y", False),
        (NORM, "X dim 1 as in X", False),
        (NORM, "X dim 0 as in Y", False),
        (MATMUL, "A dtype float16", True),
        (MATMUL, "A dtype float/float16", True),
        (MATMUL, "A dtype float", False),
        (MATMUL, "dtype float16", True),
        (MATMUL, "bias dtype float", False),
        (MATMUL, "A floating", True),
        (MATMUL, "B floating", False),
        (MATMUL, "bias floating", False),
        (MATMUL, "some uint8", True),
        (MATMUL, "some double/bfloat16", False),
        (MATMUL, "some float16 rank 3", True),
        (MATMUL, "some float16 rank 2", False),
        (MATMUL, "some float16 at the boundary", True),
        (MATMUL, "some uint8 at the boundary", False),
        (MATMUL, "some float16 rank 3 at the boundary", True),
        (MATMUL, "some float16 rank 5 at the boundary", False),
        (MATMUL, "Y at the boundary", True),
        (MATMUL, "A at the boundary", False),
        (MATMUL, "bias at the boundary", False),
        (MATMUL, "zero_points all 136", True),
        (MATMUL, "zero_points all 0", False),
        (MATMUL, "B all 0", False),
        (MATMUL, "bias all 0", False),
        (WEIGHT, "activations uint16", True),
        (WEIGHT, "activations uint16/uint8", True),
        (WEIGHT, "activations float", False),
        (NORM, "activations float", False),
        (NORM, "last axis", True),
        (replace(NORM, attributes={"axis": 2}), "last axis", True),
        (replace(NORM, attributes={"axis": 1}), "last axis", False),
        (replace(NORM, attributes={}), "last axis", False),
        (Facts("Constant", attributes={"axis": 0}), "last axis", False),
        (scaled(()), "per tensor", True),
        (scaled((1,)), "per tensor", True),
        (scaled((1,)), "per channel", False),
        (scaled((8,)), "per channel", True),
        (scaled((8,)), "per tensor", False),
        (scaled((1, 8), 8), "blocked", True),
        (scaled((1, 8), 8), "per channel", False),
        (scaled(None), "per tensor", False),
        (MATMUL, "per tensor", False),
        (MATMUL, "K a multiple of block_size", True),
        (
            replace(MATMUL, attributes={"K": 100, "block_size": 32}),
            "K a multiple of block_size",
            False,
        ),
        (NORM, "K a multiple of block_size", False),
        (heads(4, 2), "grouped heads", True),
        (heads(4, 4), "grouped heads", False),
        (replace(NORM, attributes={"q_num_heads": 4, "kv_num_heads": 2}), "grouped heads", True),
        (replace(NORM, attributes={"q_num_heads": 4, "kv_num_heads": 4}), "grouped heads", False),
        (MATMUL, "grouped heads", False),
        (MATMUL, "option op_affinity", True),
        (MATMUL, "option op_affinity=a.json", True),
        (MATMUL, "option op_affinity=b.json", False),
        (NORM, "option op_affinity", False),
        (MATMUL, "bits=4", True),
        (MATMUL, "bits=2/8", False),
        (MATMUL, "bits=2/4/8", True),
        (MATMUL, "bits!=4", False),
        (MATMUL, "bits!=8", True),
        (MATMUL, "bits>=4", True),
        (MATMUL, "bits>=5", False),
        (MATMUL, "bits<=4", True),
        (MATMUL, "mode=linear", True),
        (MATMUL, "mode>=1", False),
        (MATMUL, "epsilon=0.00001", True),
        (MATMUL, "epsilon=0.001", False),
        (MATMUL, "nothing=1", False),
        (MATMUL, "nothing>=1", False),
        (NORM, "scale>=1", False),
        (MATMUL, "A rank 3 & bits=4 & bias absent", True),
        (MATMUL, "A rank 3 & bits=4 & bias given", False),
        (MATMUL, "A rank 3 & not bias given", True),
        (MATMUL, "not A rank 3", False),
    ],
)
def test_a_form_holds(facts: Facts, text: str, expected: bool) -> None:
    assert Form(text).holds(facts) is expected


def test_a_float_attribute_is_compared_as_float32() -> None:
    stored = 9.999999974752427e-07  # what 1e-6 is in a model
    assert Form("epsilon=1e-6").holds(replace(NORM, attributes={"epsilon": stored}))


def test_a_form_prints_as_written() -> None:
    assert str(Form("bias given & A rank 2")) == "bias given & A rank 2"


@pytest.mark.parametrize("text", ["", "bias", "A rank", "rank three", "any & ", "bits ~ 4", "nota"])
def test_a_misspelt_form_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="no form that is registered"):
        Form(text)


def test_every_kind_of_term_is_documented() -> None:
    assert all(kind.about for kind in TERMS)


@pytest.fixture
def restored() -> Iterator[None]:
    before = list(TERMS)
    yield
    TERMS[:] = before
    forms._compile.cache_clear()


@pytest.mark.usefixtures("restored")
def test_a_third_party_adds_a_kind_of_term() -> None:
    with pytest.raises(ValueError, match="no form"):
        Form("square input")
    term(r"square input")(lambda facts, _match: facts.inputs["x"].shape == (8, 8))
    assert Form("square input & x const").holds(WEIGHT)
