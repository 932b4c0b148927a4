"""Caches of a fixed size against the growing original, whose past is really shorter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.cache_layout import CacheLayout
from rewriter.parity.feeds import Layout, Scenario, layout, model_feeds, shortened, specified
from rewriter.parity.model import ModelParity, check_model
from rewriter.parity.trial import Side, read_by, trial
from rewriter.passes.static_cache import fix_phase
from rewriter.phases import Phase, phases
from rewriter.settings import Settings
from tests.decoders import Decoder, decoder
from tests.growing import Growing, growing

SEQ, ROWS = 4, 8


def made(model: ir.Model, name: str = "prefill", batch: int = 1) -> ir.Model:
    """A graph with a cache of fixed size."""
    settings = Settings(
        Path("m.onnx"), target("qnn"), None, static="both", seq=SEQ, max_seq_len=ROWS,
        dims={"batch": batch},
    )  # fmt: skip
    found: list[Phase] = phases(settings, model, built=False)[0]
    copy = model.clone()
    fix_phase(copy, next(phase for phase in found if phase.name == name))
    return copy


def parity(original: ir.Model, result: ir.Model, folder: Path) -> ModelParity:
    files = []
    for name, model in (("before", original), ("after", result)):
        files.append(folder / f"{name}.onnx")
        ir.save(model, files[-1])
    sides = [Side(ir.load(file), file) for file in files]
    return check_model(sides[0], sides[1], trial(sides[1].model, 0), folder, 120)[0]


def _sizes(name: str = "prefill") -> tuple[ir.Model, Layout]:
    model = made(growing(Growing()), name)
    return model, layout(model)


def test_scenarios_are_full_half_full_and_padded_in_front() -> None:
    model, sizes = _sizes()
    assert (sizes.right, sizes.tokens, sizes.total, sizes.capacity) == (True, 4, 12, 8)
    assert [s.short for s in sizes.scenarios(0, 2)] == [0, 4, 10]
    assert [s.short for s in _sizes("decode")[1].scenarios(0, 2)] == [0, 4, 8]
    feeds = model_feeds(model, sizes, Scenario(0, 10))
    assert feeds["attention_mask"].tolist() == [[0] * 10 + [1] * 2]
    assert feeds["position_ids"].tolist() == [[0, 0, 0, 1]]
    assert model_feeds(model, sizes, Scenario(0, 4))["position_ids"].tolist() == [[4, 5, 6, 7]]


def test_the_original_gets_what_is_filled() -> None:
    original, (model, sizes) = growing(Growing()), _sizes()
    feeds = model_feeds(model, sizes, Scenario(0, 4))
    cut = shortened(original, feeds, sizes, Scenario(0, 4))
    assert cut["attention_mask"].tolist() == [[1] * 8]
    assert cut["past_key_values.0.key"].shape == (1, 2, 4, 8)
    assert np.array_equal(cut["past_key_values.0.key"], feeds["past_key_values.0.key"][:, :, 4:])
    assert cut["input_ids"].shape == (1, 4)
    feeds = model_feeds(model, sizes, Scenario(0, 10))
    cut = shortened(original, feeds, sizes, Scenario(0, 10))
    assert cut["past_key_values.0.key"].shape == (1, 2, 0, 8)
    assert np.array_equal(cut["input_ids"], feeds["input_ids"][:, 2:])
    assert cut["position_ids"].tolist() == [[0, 1]]
    assert shortened(model, feeds, sizes, Scenario(0, 10)) == feeds


def test_what_is_compared() -> None:
    _, sizes = _sizes()
    present, logits = np.arange(8).reshape(1, 1, 8, 1), np.zeros((1, 4, 48))
    assert specified("present.0.key", present, sizes, Scenario(0, 0)).size == 8
    newest = specified("present.0.key", present, sizes, Scenario(0, 10))
    assert newest.reshape(-1).tolist() == [6, 7]
    grown = np.arange(12).reshape(1, 1, 12, 1)
    kept = specified("present.0.key", grown, sizes, Scenario(0, 0))
    assert kept.reshape(-1).tolist() == list(range(4, 12))
    assert specified("logits", logits, sizes, Scenario(0, 10)).shape == (1, 2, 48)
    assert specified("logits", logits[:, 2:], sizes, Scenario(0, 10)).shape == (1, 2, 48)
    assert specified("logits", logits, sizes, Scenario(0, 4)).shape == (1, 4, 48)


@pytest.mark.parametrize("name", ["prefill", "decode"])
@pytest.mark.parametrize("attention", ["written", "attention", "multi_head"])
def test_right_graphs_are_right(attention: str, name: str, tmp_path: Path) -> None:
    model = growing(Growing(attention, mask="bias" if attention == "multi_head" else "bool"))
    found = parity(model, made(model, name), tmp_path)
    assert found.ok
    assert len(found.outputs) == 5
    assert all(output.error is not None for output in found.outputs)


def _oldest(model: ir.Model) -> None:
    """The present keeps the oldest rows instead of the newest."""
    first, end = (model.graph.initializers[f"static_cache/{name}"] for name in ("first", "end"))
    first.const_value = ir.tensor(np.array([0]), name=first.name)
    end.const_value = ir.tensor(np.array([ROWS]), name=end.name)


def _unmasked(model: ir.Model) -> None:
    """Rows that are not filled are seen."""
    padding = next(node for node in model.graph if node.outputs[0].name == "seen")
    padding.replace_input_with(1, padding.inputs[0])


def _counted(model: ir.Model) -> None:
    """Positions are one off."""
    node = next(node for node in model.graph if node.outputs[0].name == "where")
    positions = node.inputs[1]
    assert positions is not None
    one = ir.node("Add", [positions, model.graph.initializers["number1"]], name="off")
    one.outputs[0].name = "off"
    model.graph.insert_before(node, one)
    node.replace_input_with(1, one.outputs[0])


@pytest.mark.parametrize("wrong", [_oldest, _unmasked, _counted])
def test_wrong_graphs_are_seen(wrong: Callable[[ir.Model], None], tmp_path: Path) -> None:
    model = growing(Growing())
    result = made(model)
    wrong(result)
    found = parity(model, result, tmp_path)
    assert not found.ok
    assert any(output.error and output.error.max_std > 0.01 for output in found.outputs)


@pytest.mark.parametrize("spec", [Growing(positions="counted"), Growing(compares="positions")])
def test_a_model_that_counts_the_rows_of_its_cache_is_seen(spec: Growing, tmp_path: Path) -> None:
    """Were it not refused before: the comparison with a shorter past finds it."""
    model = growing(spec)
    assert parity(model, _forced(model), tmp_path).ok is False


def _forced(model: ir.Model) -> ir.Model:
    copy = model.clone()
    fix_phase(copy, Phase("prefill", {"batch": 1, "seq": SEQ, "past": ROWS}, "right"))
    return copy


def test_a_slice_is_compared_at_one_size() -> None:
    original, (model, sizes) = growing(Growing()), _sizes()
    part = trial(original, 0, part_of=sizes)
    assert part.sizes.right
    assert not part.sizes.padded
    given = trial(model, 0, part_of=sizes)
    assert [s.short for s in given.scenarios] == [0, 4, 8]
    assert all(one.keys() == other.keys() for one, other in zip(
        read_by(original, given), given.feeds, strict=True))  # fmt: skip
    shapes = {name: array.shape for name, array in read_by(original, given)[1].items()}
    assert shapes["past_key_values.0.key"] == (1, 2, ROWS, 8)


@pytest.mark.parametrize("name", ["prefill", "decode"])
def test_sequences_go_through_a_buffers_original_one_by_one(name: str, tmp_path: Path) -> None:
    """ONNX Runtime takes a chunk of several only with ``query_seqlens``, which the result has."""
    model = decoder(Decoder(weights="fp32", layers=1))
    result = made(model, name, batch=2)
    counts = [n.inputs[16] for n in result.graph if len(n.inputs) > 16]
    assert [v.const_value.numpy().tolist() for v in counts if v and v.const_value] == (
        [[SEQ, SEQ]] if name == "prefill" else []
    )
    found = parity(model, result, tmp_path)
    assert found.ok, found.note
    for node in result.graph:
        if node.op_type == "GroupQueryAttention":
            node.attributes.add(ir.AttrFloat32("scale", 0.3))
    assert not parity(model, result, tmp_path).ok


def test_only_a_noted_buffer_is_fed_so() -> None:
    model = made(decoder(Decoder(weights="fp32", layers=1)), batch=2)
    assert layout(model).several == 2
    CacheLayout("growing").note(model)
    assert layout(model).several == 1
