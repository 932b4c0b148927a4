"""GroupQueryAttention lowered, against ONNX Runtime's kernel on every form it takes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.lowering import Stuck, lower
from rewriter.nodes import op_of
from rewriter.rules.parts.positions import MASKED
from tests import ort
from tests.grouped_query import F32, Case, feeds, node

QNN = target("qnn", "2.7.0")


CASES = [
    Case("decode, cache grows"),
    Case("decode, cache grows, fewer valid rows", valid=(6,)),
    Case("decode in a buffer", capacity=16, total=16),
    Case("decode in a buffer, mask as long as what is valid", capacity=16, total=9),
    Case("last row of a buffer", capacity=16, total=16, valid=(16,)),
    Case("prefill, nothing before", tokens=8, capacity=0, total=8, valid=(8,)),
    Case("prefill without a past input", tokens=8, capacity=0, total=8, valid=(8,), past=False),
    Case("prefill into a buffer", tokens=8, capacity=16, total=8, valid=(8,)),
    Case("prefill into a buffer, mask of its length", tokens=8, capacity=16, total=16, valid=(8,)),
    Case("chunk on a buffer", tokens=4, capacity=16, total=16, valid=(11,)),
    Case("chunk, cache grows", tokens=4, total=12, valid=(12,)),
    Case("one token, nothing before", capacity=0, total=1, valid=(1,)),
    Case("separate q, k, v", packed=False),
    Case("separate q, k, v, prefill", packed=False, tokens=8, capacity=0, total=8, valid=(8,)),
    Case("no rotary", rotary=False),
    Case("partial rotary", size=32, rotary_part=16),
    Case("one head a group", heads=4, kv_heads=4),
    Case("one key head", heads=4, kv_heads=1),
    Case("three groups", heads=6, kv_heads=2, tokens=3, capacity=8, total=11, valid=(11,)),
    Case("scale", scale=0.5),
    Case("window of one key", window=1),
    Case("window in decode", window=3),
    Case("window wider than all", window=50),
    Case("window in prefill", tokens=8, capacity=0, total=8, valid=(8,), window=3),
    Case("window in a chunk", tokens=4, capacity=16, total=16, valid=(13,), window=6),
    Case("batch of two lengths", valid=(9, 6)),
    Case("batch of two lengths in a buffer", capacity=16, total=16, valid=(9, 4)),
    Case("batch of two prompts", tokens=6, capacity=0, total=6, valid=(6, 6)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_equals_the_kernel(case: Case) -> None:
    model = node(case)
    given = feeds(model, case)
    expected = ort.run(model, given)
    lower(model, QNN)
    actual = ort.run(model, given)
    assert not any(n.domain for n in model.graph)
    assert ort.worst(expected["y"], actual["y"]) < 2e-6
    for name in ("present_key", "present_value"):
        assert actual[name].shape == expected[name].shape
        for batch, valid in enumerate(case.valid):
            rows = (batch, slice(None), slice(valid))
            assert ort.worst(expected[name][rows], actual[name][rows]) < 2e-6


def test_neighbours_are_rotated_where_the_node_says_interleaved() -> None:
    for case in (CASES[0], CASES[5], CASES[15]):
        model = node(case, rotary_interleaved=1)
        given = feeds(model, case)
        expected = ort.run(model, given)
        lower(model, QNN)
        actual = ort.run(model, given)
        assert ort.worst(expected["y"], actual["y"]) < 2e-6


def test_right_padding_of_a_prompt_does_not_reach_its_valid_rows() -> None:
    case = Case("short prompt", tokens=8, capacity=0, total=8, valid=(5,))
    model = node(case)
    given = feeds(model, case)
    expected = ort.run(model, given)["y"][:, :5]
    lower(model, QNN)
    assert ort.worst(expected, ort.run(model, given)["y"][:, :5]) < 2e-6


@pytest.mark.parametrize(
    ("wrong", "case"),
    [
        ("heads tiled", Case("groups")),
        ("no window", Case("window", window=3)),
        ("window off by one", Case("window", window=3)),
        ("not rotated", Case("rotary")),
    ],
)
def test_the_comparison_sees_mutants(wrong: str, case: Case) -> None:
    """The errors that lowerings really have made (lowering.md) are far above the bound."""
    model, mutant = node(case), case
    given = feeds(model, case)
    expected = ort.run(model, given)["y"]
    if wrong == "heads tiled":
        size = case.size
        order = [0, 2, 1, 3]
        query = given["qkv0"][..., : 4 * size].reshape(1, 1, 4, size)[:, :, order]
        given["qkv0"] = np.concatenate(
            [query.reshape(1, 1, -1), given["qkv0"][..., 4 * size :]], axis=-1
        )
    else:
        changes: dict[str, object] = {
            "no window": {"window": -1},
            "window off by one": {"window": 2},
            "not rotated": {"rotary": False},
        }[wrong]  # type: ignore[assignment]  # loosely typed in tests
        mutant = replace(case, **changes)  # type: ignore[arg-type]  # loosely typed in tests
    changed = node(mutant)
    lower(changed, QNN)
    assert ort.worst(expected, ort.run(changed, given)["y"]) > 1e-3


def test_positions_are_exact_where_float_counting_is_not() -> None:
    """Trap 1 of lowering.md: above 2,048 fp16 counts are off by one; integers are not."""
    case = Case("long", capacity=4096, total=4096, valid=(3001,), positions=4096, heads=2,
                kv_heads=1)  # fmt: skip
    model = node(case)
    given = feeds(model, case)
    expected = ort.run(model, given)
    lower(model, QNN)
    actual = ort.run(model, given)
    assert ort.worst(expected["y"], actual["y"]) < 2e-6
    key = expected["present_key"][:, :, :3001]
    assert ort.worst(key, actual["present_key"][:, :, :3001]) < 2e-6
    integer = {ir.DataType.INT32, ir.DataType.INT64}
    for n in model.graph:
        if op_of(n) in {"LessOrEqual", "Less", "ScatterElements", "Gather"}:
            index = n.inputs[0] if op_of(n).startswith("Less") else n.inputs[1]
            assert index is not None
            assert index.dtype in integer


def test_the_mask_survives_fp16() -> None:
    """D06: score + mask stays finite in fp16, and masked keys get exactly 0."""
    largest_score = np.float16(5000)
    assert np.isfinite(np.float16(MASKED) - largest_score)
    assert np.exp(np.float32(MASKED) + np.float32(largest_score)) == 0


def test_half_precision() -> None:
    case = Case("fp16", valid=(9,))
    half = node(case, ir.DataType.FLOAT16)
    given = feeds(half, case)
    wide = {k: v.astype(np.float32) if v.dtype == np.float16 else v for k, v in given.items()}
    exact = ort.run(node(case), wide)["y"]
    lower(half, QNN)
    assert ort.worst(exact, ort.run(half, given)["y"].astype(np.float32)) < 4e-3


def test_products_stay_at_rank_4() -> None:
    """Trap 13 of the measured table: rank-5 products are wrong in fp16."""
    model = node(Case("groups", tokens=4, capacity=8, total=12, valid=(12,)))
    lower(model, QNN)
    ranks = [
        len(v.shape or ()) for n in model.graph if n.op_type == "MatMul" for v in n.inputs if v
    ]
    assert ranks == [4] * 4


def _with(case: Case, **more: object) -> ir.Model:
    return node(case, **more)  # type: ignore[arg-type]  # loosely typed in tests


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"sliding_window_cache": 1}, "sliding_window_cache=1 without local_window_size"),
        ({"k_quant_type": "PER_TENSOR"}, "k_quant_type=PER_TENSOR is not handled"),
        ({"v_quant_type": "PER_CHANNEL"}, "v_quant_type=PER_CHANNEL is not handled"),
        ({"kv_cache_bit_width": 8}, "kv_cache_bit_width=8 is not handled"),
        ({"causal": 0, "local_window_size": 3}, "causal=0 with local_window_size is not legal"),
        ({"qk_output": 3}, "qk_output=3 is not defined"),
    ],
)
def test_refuses_attributes_by_name(attributes: dict[str, object], reason: str) -> None:
    window = int(str(attributes.get("local_window_size", -1)))
    more = {name: value for name, value in attributes.items() if name != "local_window_size"}
    with pytest.raises(Stuck, match=reason):
        lower(_with(Case("plain", window=window), **more), QNN)


def test_refuses_a_window_of_nothing() -> None:
    with pytest.raises(Stuck, match="local_window_size=0 sees no key"):
        lower(node(Case("none", window=0)), QNN)


@pytest.mark.parametrize(
    ("index", "name"),
    [(12, "k_scale"), (13, "v_scale"), (14, "q_norm_weight"), (15, "k_norm_weight")],
)
def test_refuses_inputs_by_name(index: int, name: str) -> None:
    model = node(Case("plain"))
    attention = next(n for n in model.graph if n.op_type == "GroupQueryAttention")
    extra = ir.Value(name=name, type=ir.TensorType(F32), shape=ir.Shape((4,)))
    model.graph.inputs.append(extra)
    attention.resize_inputs(index + 1)
    attention.replace_input_with(index, extra)
    with pytest.raises(Stuck, match=f"{name} is not handled"):
        lower(model, QNN)


def test_layers_share_positions_masks_and_table_rows() -> None:
    from rewriter.passes.fix_dims import fix_dims
    from tests.decoders import decoder

    counts = []
    for layers in (1, 3):
        from tests.decoders import Decoder

        model = decoder(Decoder(layers=layers))
        fix_dims(model, {"batch": 1, "seq": 1, "past": 8})
        report = lower(model, QNN)
        counts.append((report.ops_after["Where"], report.ops_after["LessOrEqual"],
                       report.ops_after["Gather"], report.ops_after["Expand"]))  # fmt: skip
    assert counts[0] == counts[1]
