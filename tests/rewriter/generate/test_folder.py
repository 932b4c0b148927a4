"""What a folder is seen to hold, and one clear error for each that cannot be driven."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest

from rewriter.cache_layout import CacheLayout
from rewriter.errors import BadInput
from rewriter.generate.config import read_config
from rewriter.generate.decoder import opened
from rewriter.generate.folder import read_folder
from rewriter.source import CONTEXT
from tests.decoders import Decoder, decoder
from tests.rewriter.generate.toys import PAST, Toy, edit, pair, renamed
from tests.rewriter.runtime.models import save_linear

FIXTURES = Path(__file__).parents[3] / "fixtures"


def shape_of(name: str, *dims: int | str) -> Callable[[ir.Model], None]:
    """Declare another shape of an input or output."""

    def change(model: ir.Model) -> None:
        for value in (*model.graph.inputs, *model.graph.outputs):
            if value.name == name:
                value.shape = ir.Shape(dims)

    return change


def refused(folder: Path) -> str:
    with pytest.raises(BadInput) as caught:
        read_folder(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# -- what is there ---------------------------------------------------------------------------


def test_one_graph(tmp_path: Path) -> None:
    Toy().save(tmp_path / "f", "model")
    folder = read_folder(tmp_path / "f")
    graph = folder.graphs["model"]
    assert (list(folder.graphs), folder.vocabulary, folder.positions) == (["model"], 24, None)
    assert (graph.batch, graph.width, graph.caches.alignment) == (1, None, "growing")
    assert sorted(graph.inputs) == ["attention_mask", "input_ids", "position_ids"]
    assert {c.past: c.present for c in graph.caches.all.values()} == {
        name: name.replace("past_key_values", "present") for name in PAST
    }
    assert graph.caches.all[PAST[0]].empty(2)[0] == (2, 2, 0, 8)


def test_two_graphs_in_parts(tmp_path: Path) -> None:
    folder = read_folder(pair(tmp_path / "f", parts=True))
    for name, tokens in (("prefill", 4), ("decode", 1)):
        graph = folder.graphs[name]
        assert [part.name.rpartition("-")[2] for part in graph.parts] == [
            "embedding", "layers", "head",
        ]  # fmt: skip
        assert graph.width == tokens
        assert (graph.caches.alignment, graph.caches.rows) == ("left", 16)


def test_other_files_are_no_part_of_it(tmp_path: Path) -> None:
    folder = pair(tmp_path / "f")
    save_linear(folder / "prefill-lengths.onnx")
    save_linear(folder / "prefill_ctx.onnx")
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    found = read_folder(folder).graphs["prefill"].parts[0]
    assert (found.file.name, found.compiled) == ("prefill.onnx", folder / "prefill_ctx.onnx")


def test_compiled_graphs_alone(tmp_path: Path) -> None:
    folder = pair(tmp_path / "f", parts=True)
    for file in folder.glob("prefill*.onnx"):
        file.rename(file.with_name(f"{file.stem}_ctx.onnx"))
    found = read_folder(folder)
    part = found.graphs["prefill"].parts[1]
    assert (part.name, part.file) == ("prefill-2-layers", part.compiled)
    assert found.graphs["decode"].parts[1].compiled is None
    with (
        pytest.raises(BadInput, match=r"prefill-1-embedding_ctx\.onnx: is compiled for QNN"),
        opened(found),
    ):
        pass


def test_positions_that_the_graphs_know(tmp_path: Path) -> None:
    folder = pair(tmp_path / "f")
    edit(folder / "decode.onnx", lambda m: m.metadata_props.update({CONTEXT: "9"}))
    assert read_folder(folder).positions == 9


@pytest.mark.parametrize("name", ["gemma2", "gptoss_int4"])
def test_a_window_is_seen_in_the_nodes(name: str) -> None:
    caches = read_folder(FIXTURES / "genai" / name).any_graph.caches
    assert caches.alignment == "growing"
    windows = {cache.window for cache in caches.all.values()}
    assert windows == {4, None}
    assert all(cache.rows == (cache.window or 0) for cache in caches.all.values())
    assert caches.windowed


def test_the_size_of_a_head_that_is_a_symbol_is_inferred(tmp_path: Path) -> None:
    ir.save(decoder(Decoder(layers=1)), tmp_path / "model.onnx")
    caches = read_folder(tmp_path).any_graph.caches
    assert {cache.empty(1)[0] for cache in caches.all.values()} == {(1, 2, 0, 16)}


def test_caches_are_paired_by_position_where_names_say_nothing(tmp_path: Path) -> None:
    Toy().save(tmp_path, "model")
    for old, new in (("present.0.key", "out_a"), ("present.0.value", "out_b")):
        edit(tmp_path / "model.onnx", renamed(old, new))
    caches = read_folder(tmp_path).any_graph.caches.all.values()
    assert [(cache.past, cache.present) for cache in caches] == [
        (PAST[0], "out_a"), (PAST[1], "out_b"),
    ]  # fmt: skip


# -- what cannot be driven -------------------------------------------------------------------


def test_no_folder_and_no_graphs(tmp_path: Path) -> None:
    assert "there is no such folder" in refused(tmp_path / "none")
    file = save_linear(tmp_path / "other.onnx")
    assert "is a file; name the folder" in refused(file)
    assert "holds only other.onnx, where model.onnx, prefill.onnx" in refused(tmp_path)
    file.unlink()
    assert "holds no ONNX file" in refused(tmp_path)


def test_graphs_that_do_not_belong_together(tmp_path: Path) -> None:
    both = pair(tmp_path / "both")
    Toy().save(both, "model")
    assert "holds both model.onnx and phases" in refused(both)
    mixed = pair(tmp_path / "mixed", parts=True)
    Toy(alignment="left", tokens=1).save(mixed, "decode")
    assert "holds both decode.onnx and parts of it" in refused(mixed)
    twice = pair(tmp_path / "twice", parts=True)
    (twice / "decode-2-layers.onnx").rename(twice / "decode-3-layers.onnx")
    assert "two parts of one number, decode-3-head.onnx and decode-3-layers.onnx" in refused(twice)


@pytest.mark.parametrize(
    ("gone", "said"),
    [
        ("prefill-1-embedding", "part 1 of 3 of prefill is missing; copy prefill-1-*.onnx too"),
        ("decode-2-layers", "part 2 of 3 of decode is missing"),
        ("decode-3-head", "decode-2-layers.onnx: gives no 'logits', only mixed, present.0.key"),
    ],
)
def test_a_part_that_is_missing(gone: str, said: str, tmp_path: Path) -> None:
    folder = pair(tmp_path / "f", parts=True)
    (folder / f"{gone}.onnx").unlink()
    assert said in refused(folder)


def test_an_input_that_nothing_gives(tmp_path: Path) -> None:
    folder = pair(tmp_path / "f", parts=True)
    edit(folder / "decode-2-layers.onnx", renamed("hidden", "unheard"))
    said = "decode-2-layers.onnx: nothing gives its input 'unheard'"
    assert said in refused(folder)
    lone = tmp_path / "lone"
    Toy().save(lone, "model")
    edit(lone / "model.onnx", renamed("position_ids", "inputs_embeds"))
    assert "model.onnx: nothing gives its input 'inputs_embeds'" in refused(lone)


def test_parts_that_hand_on_another_shape(tmp_path: Path) -> None:
    folder = pair(tmp_path / "f", parts=True)
    edit(folder / "decode-3-head.onnx", shape_of("mixed", 1, 1, 32))
    assert "takes 'mixed' as float32(1, 1, 32), and the part before gives" in refused(folder)


def test_what_does_not_generate_text(tmp_path: Path) -> None:
    folder = tmp_path / "f"
    Toy().save(folder, "model")
    edit(folder / "model.onnx", renamed("logits", "last_hidden_state"))
    said = refused(folder)
    assert "gives no 'logits', only last_hidden_state" in said
    assert "an encoder does not generate text" in said
    assert "a classifier does not generate text" in refused(FIXTURES / "torch" / "vit")
    assert "an encoder does not" in refused(FIXTURES / "torch" / "sentence_encoder")
    Toy().save(folder, "model")
    edit(folder / "model.onnx", renamed("input_ids", "pixel_values"))
    assert "has no input 'input_ids', only pixel_values" in refused(folder)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (shape_of(PAST[0], 1, 2, 12, 8), "goes from (1, 2, 12, 8) to (1, 2, 16, 8)"),
        (shape_of(PAST[1], 1, "heads", 16, 8), None),
        (renamed("present.0.value", "past_key_values.1.value"), None),
    ],
)
def test_one_cache_of_a_pair_that_differs(
    change: Callable[[ir.Model], None], said: str | None, tmp_path: Path
) -> None:
    folder = pair(tmp_path / "f")
    edit(folder / "decode.onnx", change)
    if said is None:
        read_folder(folder)  # the output says it, or the position
    else:
        assert said in refused(folder)


def test_prefill_and_decode_that_differ(tmp_path: Path) -> None:
    rows = pair(tmp_path / "rows")
    Toy(alignment="left", tokens=1, rows=12).save(rows, "decode")
    assert "is (1, 2, 16, 8) in prefill and (1, 2, 12, 8) in decode" in refused(rows)
    sides = pair(tmp_path / "sides")
    Toy(alignment="right", tokens=1).save(sides, "decode")
    assert "caches of prefill are left and those of decode right" in refused(sides)
    batches = pair(tmp_path / "batches")
    Toy(alignment="left", tokens=1, batch=2).save(batches, "decode")
    assert "prefill has 1 sequences and decode 2" in refused(batches)
    names = pair(tmp_path / "names")
    for old, new in ((PAST[0], "past_key_values.1.key"), ("present.0.key", "present.1.key")):
        edit(names / "decode.onnx", renamed(old, new))
    assert f"the cache '{PAST[0]}' is missing in decode" in refused(names)


def test_a_layout_that_cannot_be_told(tmp_path: Path) -> None:
    pair(tmp_path / "f", note=False)
    said = refused(tmp_path / "f")
    assert "has fixed rows, (1, 2, 16, 8) to (1, 2, 16, 8)" in said
    assert "--static both" in said
    Toy(note=False).save(tmp_path / "g", "model")
    assert read_folder(tmp_path / "g").any_graph.caches.alignment == "growing"


def test_a_cache_that_serves_one_call_only(tmp_path: Path) -> None:
    Toy().save(tmp_path, "model")
    edit(tmp_path / "model.onnx", shape_of(PAST[0], 1, 2, 8, 8))
    assert "takes 8 rows and no other number, so it serves one call only" in refused(tmp_path)


def test_a_window_with_too_few_rows(tmp_path: Path) -> None:
    folder = pair(tmp_path / "f")
    edit(folder / "prefill.onnx", lambda m: CacheLayout("left", {PAST[0]: 17}).note(m))
    assert "has 16 rows, fewer than its window of 17" in refused(folder)
    edit(folder / "prefill.onnx", lambda m: CacheLayout("right", {PAST[0]: 5}).note(m))
    assert "windowed caches among those that lie at the right" in refused(folder)


def test_parts_of_two_layouts(tmp_path: Path) -> None:
    folder = pair(tmp_path / "f", parts=True)
    edit(folder / "prefill-3-head.onnx", lambda m: CacheLayout("right").note(m))
    assert "caches are right, and those of a part before left" in refused(folder)


def test_damage(tmp_path: Path) -> None:
    folder = pair(tmp_path / "f")
    edit(folder / "decode.onnx", lambda m: m.metadata_props.update({"rewriter.cache": "{"}))
    assert "the metadata entry 'rewriter.cache' is damaged" in refused(folder)
    (folder / "decode.onnx").write_bytes(b"no model" * 9)
    assert "decode.onnx: cannot be read as an ONNX model" in refused(folder)


def test_a_type_that_numpy_has_not(tmp_path: Path) -> None:
    Toy().save(tmp_path, "model")

    def change(model: ir.Model) -> None:
        model.graph.inputs[-1].type = ir.TensorType(ir.DataType.BFLOAT16)

    edit(tmp_path / "model.onnx", change)
    assert "is bfloat16, which no runtime's Python API takes" in refused(tmp_path)


# -- genai_config.json -----------------------------------------------------------------------


def config_of(folder: Path, model: Any) -> Path:
    text = model if isinstance(model, str) else json.dumps({"model": model})
    (folder / "genai_config.json").write_text(text, encoding="utf-8")
    return folder


PLAIN = {
    "context_length": 12,
    "eos_token_id": [2, 5],
    "decoder": {
        "filename": "model.onnx",
        "inputs": {"input_ids": "input_ids", "past_key_names": "past_key_values.%d.key"},
        "outputs": {"logits": "logits", "present_key_names": "present.%d.key"},
    },
}


def stage(name: str, inputs: list[str]) -> dict[str, Any]:
    return {"filename": name, "inputs": inputs, "outputs": ["logits"]}


def test_a_configuration_that_fits(tmp_path: Path) -> None:
    Toy().save(tmp_path / "f", "model")
    assert read_config(read_folder(tmp_path / "f")).stop == frozenset()
    found = read_config(read_folder(config_of(tmp_path / "f", PLAIN)))
    assert (set(found.stop), found.context) == ({2, 5}, 12)
    found = read_config(read_folder(config_of(tmp_path / "f", {**PLAIN, "eos_token_id": 7})))
    assert found.stop == {7}
    found = read_config(read_folder(config_of(tmp_path / "f", {**PLAIN, "eos_token_id": None})))
    assert not found.stop
    folder = pair(tmp_path / "g")
    save_linear(folder / "prefill-lengths.onnx")
    stages = {
        "lengths": stage("prefill-lengths.onnx", ["past_seq_len"]),
        "context": stage("prefill.onnx", ["input_ids", PAST[0]]),
        "iterator": stage("decode.onnx", ["input_ids"]),
    }
    config_of(folder, {"eos_token_id": 1, "decoder": {"pipeline": [stages]}})
    assert read_config(read_folder(folder)).stop == {1}


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("{", "is no JSON"),
        ({}, "is no configuration of a decoder"),
        ({**PLAIN, "eos_token_id": "two"}, "'model.eos_token_id' is not a token id or a list"),
        ({"decoder": stage("other.onnx", [])}, "'model.decoder.inputs' is not an object of names"),
        (
            {"decoder": {"pipeline": [{"a": {"filename": "model.onnx", "inputs": [1]}}]}},
            "'model.decoder.pipeline' is not a list of stages",
        ),
        (
            {"decoder": {"filename": ["model.onnx"]}},
            "'model.decoder.filename' is not the name of a file",
        ),
        (
            {"decoder": {"pipeline": [{"a": stage("other.onnx", [])}]}},
            "'model.decoder.pipeline.a.filename' is other.onnx, and the graphs have ['model.onnx']",
        ),
        (
            {"decoder": {"pipeline": [{"a": stage("model.onnx", ["input_ids", "other"])}]}},
            "'model.decoder.pipeline.a.inputs' is other, and the graphs have ['attention_mask', ",
        ),
        (
            {"decoder": {**PLAIN["decoder"], "outputs": {"present_key_names": "kept.%d"}}},  # type: ignore[dict-item]  # PLAIN is of mixed values
            "'model.decoder.outputs.present_key_names' is kept.%d, and the graphs have ['logits', ",
        ),
    ],
)
def test_a_configuration_that_does_not(model: Any, said: str, tmp_path: Path) -> None:
    Toy().save(tmp_path, "model")
    with pytest.raises(BadInput, match=re.escape(said)):
        read_config(read_folder(config_of(tmp_path, model)))


def test_weights_that_are_not_whole(tmp_path: Path) -> None:
    ir.save(decoder(Decoder(layers=1)), tmp_path / "model.onnx", external_data="model.onnx.data")
    data = tmp_path / "model.onnx.data"
    data.write_bytes(data.read_bytes()[:1000])
    with pytest.raises(BadInput, match=r"is cut off: .* of model\.onnx\.data, which has 1000 "):
        read_folder(tmp_path)
    data.unlink()
    with pytest.raises(BadInput, match=r"is missing: .*model\.onnx\.data is not there"):
        read_folder(tmp_path)
    (tmp_path / "model.onnx").write_bytes(b"")
    with pytest.raises(BadInput, match=r"model\.onnx: is empty"):
        read_folder(tmp_path)
