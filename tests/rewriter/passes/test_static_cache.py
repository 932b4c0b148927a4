"""Caches of a fixed size, driven as a runtime does, against the growing original step by step."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.cache_layout import CacheLayout, cache_layout
from rewriter.cli import main
from rewriter.errors import BadInput
from rewriter.lowering import lower
from rewriter.nodes import op_of
from rewriter.passes.static_cache import fix_phase, layout_of
from rewriter.phases import Phase, phases
from rewriter.settings import Settings
from tests.decoders import Decoder, decoder
from tests.growing import VOCABULARY, Growing, growing
from tests.scattered import scattered
from tests.static_steps import Left, Right, run, session, token_by_token

LOWEST = float(np.finfo(np.float32).min)
SEQ, ROWS = 4, 8
GQA = Decoder(weights="fp32", layers=2)
KINDS = {
    "written out": Growing(),
    "a score selected": Growing(selects=True),
    "the lowest float": Growing(hides=LOWEST),
    "minus ten thousand": Growing(hides=-1e4),
    "positions of the mask": Growing(positions="summed"),
    "a window of three": Growing(window=3),
    "Attention": Growing("attention"),
    "Attention, bools": Growing("attention", mask="bool"),
    "Attention, causal": Growing("attention", mask="bool", causal=True),
    "Attention behind Concat": Growing("behind"),
    "Attention, no mask": Growing("attention", mask="none"),
    "MultiHeadAttention, no mask": Growing("multi_head", mask="none"),
    "MultiHeadAttention": Growing("multi_head", mask="padding"),
    "MultiHeadAttention, bias": Growing("multi_head", mask="bias"),
}


def found(model: ir.Model, ep: str = "qnn@2.7.0", **more: Any) -> list[Phase]:
    sizes: dict[str, Any] = {"static": "both", "seq": SEQ, "max_seq_len": ROWS, **more}
    settings = Settings(Path("m.onnx"), target(*ep.split("@")), None, **sizes)
    return phases(settings, model, built=False)[0]


def make(model: ir.Model, folder: Path, ep: str = "qnn@2.7.0", **more: Any) -> None:
    """The original, and both graphs for a target beside it."""
    ir.save(model, folder / "original.onnx")
    for phase in found(model, ep, **more):
        copy = model.clone()
        fix_phase(copy, phase)
        lower(copy, target(*ep.split("@")), keep_sites=False)
        ir.save(copy, folder / phase.file)


def worst(folder: Path, driver: type[Left | Right], lengths: list[int], more: int) -> float:
    """Largest error of all logits of some prompts and the tokens after them, over their std."""
    rng = np.random.default_rng(len(lengths))
    prompts = [rng.integers(0, VOCABULARY, n).tolist() for n in lengths]
    then = [rng.integers(0, VOCABULARY, more).tolist() for _ in lengths]
    errors = []
    for b, logits in enumerate(driver(folder)(prompts, then)):
        expected = token_by_token(folder / "original.onnx", [*prompts[b], *then[b]])
        assert np.isfinite(expected).all()
        assert logits.shape == expected.shape
        errors.append(np.abs(logits - expected).max() / expected.std())
    return float(max(errors))


@pytest.mark.parametrize("ep", ["qnn@2.7.0", "qnn@2.4.0", "onnx-standard@24"])
@pytest.mark.parametrize("kind", KINDS)
def test_growing_caches_of_fixed_size(kind: str, ep: str, tmp_path: Path) -> None:
    """Prompts shorter than a chunk, as long, longer, as long as the cache; decoded till full."""
    make(growing(KINDS[kind]), tmp_path, ep)
    for length in (1, 3, SEQ, 6, ROWS):
        assert worst(tmp_path, Right, [length], ROWS - length) < 5e-6, length


@pytest.mark.parametrize("kind", KINDS)
def test_growing_caches_of_several_sequences(kind: str, tmp_path: Path) -> None:
    make(growing(KINDS[kind]), tmp_path, dims={"batch": 2})
    for lengths in ([5, 2], [1, 6], [4, 4]):
        assert worst(tmp_path, Right, lengths, 2) < 5e-6, lengths


@pytest.mark.parametrize("ep", ["qnn@2.7.0", "ort-cpu@1.32.0"])
@pytest.mark.parametrize("lengths", [[1], [3], [4], [6], [8], [5, 2], [1, 6], [4, 8]])
def test_buffers_with_a_row_of_the_mask_for_each_sequence(
    lengths: list[int], ep: str, tmp_path: Path
) -> None:
    make(decoder(GQA), tmp_path, ep, dims={"batch": len(lengths)})
    assert worst(tmp_path, Left, lengths, ROWS - max(lengths)) < 5e-6


@pytest.mark.parametrize("hides", [-np.inf, LOWEST])
def test_a_prompt_longer_than_a_window_of_rows(hides: float, tmp_path: Path) -> None:
    """Beyond its rows such a cache holds the newest tokens: the original with the oldest hidden."""
    make(growing(Growing(hides=hides, layers=1)), tmp_path)
    driver = Right(tmp_path)
    rng = np.random.default_rng(0)
    row = rng.integers(0, VOCABULARY, ROWS + 3).tolist()
    logits = driver([row], [[7]])[0][-1]
    original, newest = session(tmp_path / "original.onnx"), [*row, 7][-ROWS - 1 :]
    feeds = {
        "input_ids": np.array([newest]),
        "attention_mask": np.ones((1, ROWS + 1), np.int64),
        "position_ids": np.arange(3, 3 + ROWS + 1)[None],
        "past_key_values.0.key": np.zeros((1, 2, 0, 8), np.float32),
        "past_key_values.0.value": np.zeros((1, 2, 0, 8), np.float32),
    }
    expected = run(original, feeds)["logits"][0, -1]
    assert np.abs(logits - expected).max() < 5e-6 * expected.std()


def test_a_row_that_sees_nothing_would_be_nan(tmp_path: Path) -> None:
    """What the finite masks are for: the original itself, with a pad in front."""
    model = growing(Growing())
    ir.save(model, tmp_path / "original.onnx")
    empty = {
        v.name or "": np.zeros((1, 2, 0, 8), np.float32)
        for v in model.graph.inputs
        if (v.name or "").startswith("past")
    }
    feeds = {
        "input_ids": np.array([[0, 3]]),
        "attention_mask": np.array([[0, 1]]),
        "position_ids": np.array([[0, 0]]),
        **empty,
    }
    logits = run(session(tmp_path / "original.onnx"), feeds)["logits"]
    assert np.isnan(logits[0, 1]).all()


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        (Growing(), 1),
        (Growing(selects=True), 0),
        (Growing(hides=LOWEST), 0),
        (Growing(hides=-1e4), 0),
        (Growing("attention", mask="bool"), 0),
        (Growing("attention"), 1),
        (Growing("multi_head", mask="bias"), 1),
        (Growing("multi_head", mask="padding"), 0),
    ],
    ids=str,
)
def test_only_infinite_masks_are_raised(spec: Growing, count: int) -> None:
    model = growing(spec)
    before = sum(node.op_type == "Max" for node in model.graph)
    fix_phase(model, found(model)[0])
    assert sum(node.op_type == "Max" for node in model.graph) == before + count
    numbers = [v.const_value.numpy() for v in model.graph.initializers.values() if v.const_value]
    if spec.selects:
        masked = [n for n in model.graph if n.op_type == "Where"]
        assert masked
        assert all(n.inputs[2].const_value.numpy() == np.float32(-1e30) for n in masked)  # type: ignore[union-attr]  # a floor is stored
    assert any((array == np.float32(-1e30)).any() for array in numbers) == (
        count > 0 or spec.selects
    )


def test_past_and_present_have_one_shape_and_the_interface_is_kept() -> None:
    model = growing(Growing())
    before = [v.name for v in model.graph.inputs], [v.name for v in model.graph.outputs]
    for phase in found(model):
        copy = model.clone()
        fix_phase(copy, phase)
        named = {v.name: str(v.shape) for v in (*copy.graph.inputs, *copy.graph.outputs)}
        after = [v.name for v in copy.graph.inputs], [v.name for v in copy.graph.outputs]
        assert after == before
        seq = phase.dims["seq"]
        assert named["past_key_values.1.key"] == named["present.1.key"] == f"[1,2,{ROWS},8]"
        assert named["attention_mask"] == f"[1,{ROWS + seq}]"
        assert named["logits"] == f"[1,{seq},{VOCABULARY}]"


def test_nothing_is_left_that_a_target_of_fixed_shapes_does_not_take() -> None:
    for model in (growing(Growing()), growing(Growing("attention")), scattered()):
        for phase in found(model):
            copy = model.clone()
            fix_phase(copy, phase)
            lower(copy, target("qnn", "2.7.0"), keep_sites=False)
            left = {op_of(node) for node in copy.graph}
            assert not left & {"Range", "Shape", "Tile", "TensorScatter", "Size"}


def test_a_mask_that_is_added_is_named() -> None:
    model = growing(Growing("attention", mask="none"))
    settings = Settings(Path("m.onnx"), target("qnn"), None, static="both", seq=4, max_seq_len=8)
    made, notes = phases(settings, model, built=False)
    assert "it gets attention_mask as input" in notes[-1]
    fix_phase(model, made[0])
    added = model.graph.inputs[-1]
    assert (added.name, str(added.shape), added.dtype) == ("attention_mask", "[1,12]", 7)


# -- what cannot have a fixed size ---------------------------------------------------------------


def _without_mask() -> ir.Model:
    model = growing(Growing())
    mask = next(v for v in model.graph.inputs if v.name == "attention_mask")
    mask.name = "padding"
    return model


def _two_kinds() -> ir.Model:
    """A buffer beside caches that grow."""
    model = growing(Growing())
    key, value = (v for v in model.graph.inputs if (v.name or "").startswith("past_key_values.1"))
    inputs = [None, None, None, key, value]
    nodes = {use.node for v in (key, value) for use in v.uses()}
    for node in nodes:
        other = ir.val("other", ir.DataType.FLOAT, key.shape)
        node.replace_input_with(0, other)
    model.graph.append(ir.node("GroupQueryAttention", inputs, domain="com.microsoft", name="gqa"))
    return model


def _read_by(op: str, *more: ir.Value | None, **attributes: Any) -> ir.Model:
    model = growing(Growing())
    past = next(v for v in model.graph.inputs if (v.name or "").startswith("past_key"))
    domain, _, kind = op.rpartition("::")
    given = [past] if not more else [*more, past]
    model.graph.append(ir.node(kind, given, attributes, domain=domain, name="odd"))
    return model


def _no_present() -> ir.Model:
    model = growing(Growing())
    outputs = model.graph.outputs
    outputs.remove(next(v for v in outputs if v.name == "present.1.value"))
    return model


def _four_dims() -> ir.Model:
    model = growing(Growing())
    mask = next(v for v in model.graph.inputs if v.name == "attention_mask")
    mask.shape = ir.Shape(["batch", 1, "seq", "past + seq"])
    return model


def _buffer_of_multi_head() -> ir.Model:
    model = growing(Growing("multi_head"))
    for node in model.graph:
        if node.op_type == "MultiHeadAttention":
            node.resize_inputs(9)
            node.replace_input_with(8, ir.val("past_length", ir.DataType.INT32, [1]))
    return model


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (lambda: growing(Growing(positions="counted")), "positions from the length of the cache"),
        (lambda: growing(Growing(masked=False)), "no mask reaches .*'layers.1/products/MatMul'"),
        (lambda: growing(Growing("attention", masked=False)), "no mask reaches Attention"),
        (lambda: growing(Growing("behind", mask="bool", causal=True)), "is_causal and no past"),
        (lambda: growing(Growing(compares="positions")), "compares 'position_ids' with numbers of"),
        (_without_mask, "no attention_mask"),
        (_four_dims, "an attention_mask of "),
        (_no_present, "no output holds the cache 'past_key_values.1.value'"),
        (_two_kinds, "'past_key_values.1.key' is a buffer, and 'past_key_values.0.key' grows"),
        (_buffer_of_multi_head, "past_sequence_length"),
        (lambda: _read_by("Relu"), "is read by Relu 'odd'"),
        (lambda: _read_by("Concat", None, axis=2), "is read by Concat 'odd'"),
    ],
)  # fmt: skip
def test_refused_by_name(model: Any, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        found(model())


def test_a_cache_on_another_axis() -> None:
    model = growing(Growing())
    for node in model.graph:
        if node.op_type == "Concat":
            node.attributes.add(ir.AttrInt64("axis", 1))
    with pytest.raises(BadInput, match="its axis is 1"):
        found(model)


def test_a_buffer_whose_rows_are_taken_for_its_length() -> None:
    model = decoder(GQA)
    past = next(v for v in model.graph.inputs if (v.name or "").startswith("past_key"))
    model.graph.append(ir.node("Shape", [past], name="rows"))
    with pytest.raises(BadInput, match="Shape 'rows' takes the rows of the buffer"):
        found(model)


def test_a_window_takes_several_tokens_of_one_sequence_only() -> None:
    model = windowed()
    assert len(found(model)) == 2
    assert len(found(model, dims={"batch": 2}, static="decode", seq=0)) == 1
    with pytest.raises(BadInput, match="holds a window, and takes several tokens of one sequence"):
        found(model, dims={"batch": 2})


# -- layouts -------------------------------------------------------------------------------------


def windowed() -> ir.Model:
    model = decoder(replace(GQA, window=4))
    for node in model.graph:
        if node.op_type == "GroupQueryAttention":
            node.attributes.add(ir.AttrInt64("sliding_window_cache", 1))
    return model


def _fixed(model: ir.Model, **dims: int) -> CacheLayout | None:
    phase = Phase("model", dims)
    fix_phase(model, phase)
    return layout_of(model, phase)


def test_layouts_of_one_graph() -> None:
    assert _fixed(decoder(GQA)) == CacheLayout("growing")
    assert _fixed(decoder(GQA), batch=1, seq=1, past=8) == CacheLayout("growing")
    assert _fixed(decoder(GQA), batch=1, seq=1, past=8, total=8) == CacheLayout("left")
    assert _fixed(growing(Growing())) == CacheLayout("growing")
    assert _fixed(growing(Growing()), batch=1, seq=1, past=8) == CacheLayout("growing")
    assert _fixed(scattered()) == CacheLayout("left")


def test_no_layout_without_caches() -> None:
    model = ir.Model(ir.Graph([], [], nodes=[], opset_imports={"": 22}), ir_version=10)
    assert layout_of(model, Phase("model", {})) is None


def test_an_output_of_ours_keeps_its_layout() -> None:
    model = growing(Growing())
    fix_phase(model, found(model)[0])
    assert _fixed(model) == cache_layout(model, "m") == CacheLayout("right")


def test_windows_are_noted() -> None:
    model = windowed()
    (prefill, _) = found(model)
    fix_phase(model, prefill)
    names = [f"past_key_values.{i}.{part}" for i in (0, 1) for part in ("key", "value")]
    assert cache_layout(model, "m") == CacheLayout("left", dict.fromkeys(names, 4))


def test_sizes_of_a_scattered_cache() -> None:
    dims = [dict(phase.dims) for phase in found(scattered())]
    assert dims == [{"batch": 1, "seq": SEQ, "max": ROWS}, {"batch": 1, "seq": 1, "max": ROWS}]


def test_the_command(tmp_path: Path) -> None:
    """Parity with an original whose past is really shorter, placement on HTP, and the note."""
    source, out, report = tmp_path / "m.onnx", tmp_path / "out", tmp_path / "r.json"
    ir.save(growing(Growing()), source)
    words = [str(source), "--ep", "qnn@2.7.0", "--static", "both", "-o", str(out)]
    words += ["--seq", "4", "--max-seq-len", "8", "--report", str(report)]
    assert main(words) == 0
    graphs = json.loads(report.read_text(encoding="utf-8"))["graphs"]
    assert any(note.startswith("caches are aligned right") for note in graphs[0]["notes"])
    for graph in graphs:
        assert graph["placement"]["on_cpu"] == 0
        assert graph["parity"]["model"]["ok"]
        assert len(graph["parity"]["model"]["scenarios"]) == 3
        assert len(graph["parity"]["model"]["outputs"]) == 5
        written = ir.load(out / graph["file"])
        assert cache_layout(written, graph["file"]) == CacheLayout("right")
    ir.save(growing(Growing()), out / "original.onnx")
    assert worst(out, Right, [6], 2) < 5e-6


def test_the_command_over_a_scattered_cache(tmp_path: Path) -> None:
    source, out = tmp_path / "m.onnx", tmp_path / "out"
    ir.save(scattered(), source)
    words = [str(source), "--ep", "qnn@2.7.0", "--static", "both", "-o", str(out), "--no-place"]
    assert main([*words, "--seq", "4", "--max-seq-len", "8", "--dim", "batch=2"]) == 0
    assert cache_layout(ir.load(out / "decode.onnx"), "decode.onnx") == CacheLayout("left")
