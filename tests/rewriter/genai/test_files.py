"""What a folder gets for onnxruntime-genai, or why it gets nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest

from capabilities import target
from rewriter.cache_layout import CacheLayout
from rewriter.errors import BadInput
from rewriter.genai import NAME, genai_files
from rewriter.source import Companions, GenaiBase
from tests.rewriter.genai.folders import Shape, base, fixed, growing, pair, parts, save

CPU, QNN = target("ort-cpu"), target("qnn")


def _companions(stated: Any = None) -> Companions:
    content = json.dumps(stated or base()).encode()
    return Companions({"tokenizer.json": b"{}"}, ("one",), GenaiBase(content, ("two",)))


def _refused(folder: Path, words: str, stated: Any = None) -> None:
    """No file, and one note more that says why."""
    made = genai_files(folder, _companions(stated), QNN)
    assert set(made.files) == {"tokenizer.json"}
    assert made.notes[0] == "one"
    (note,) = made.notes[1:]
    assert note.startswith(f"no {NAME} was written: ")
    assert words in note


def test_a_plain_decoder_gets_a_file(tmp_path: Path) -> None:
    save(tmp_path / "model.onnx", growing())
    made = genai_files(tmp_path, _companions(), CPU)
    assert set(made.files) == {"tokenizer.json", NAME}
    assert made.notes == ("one", "two")
    assert made.genai is None


def test_a_pipeline_gets_its_stages(tmp_path: Path) -> None:
    """And a note on the one token that no prompt may hold."""
    made = genai_files(pair(tmp_path), _companions(), QNN)
    assert set(made.files) == {"tokenizer.json", NAME, "lengths.onnx"}
    assert made.notes[:2] == ("one", "two")
    assert "takes 5 (pad_token_id) for padding where a prompt" in made.notes[2]
    assert "ends with it" in made.notes[2]
    content = made.files["lengths.onnx"]
    assert isinstance(content, bytes)
    onnx.checker.check_model(onnx.load_from_string(content), full_check=True)
    assert genai_files(tmp_path, _companions(), QNN).files == made.files


def test_parts_get_one_stage_too(tmp_path: Path) -> None:
    made = genai_files(parts(tmp_path), _companions(), QNN)
    assert {name for name in made.files if name.endswith(".onnx")} == {"lengths.onnx"}


def test_a_cache_that_another_part_reads_is_refused(tmp_path: Path) -> None:
    inputs, outputs = growing()
    rest = {name: shape for name, shape in inputs.items() if name != "position_ids"}
    last = {"position_ids": inputs["position_ids"], "present.2.key": outputs["present.2.key"]}
    made = {name: shape for name, shape in outputs.items() if name != "logits"}
    save(tmp_path / "model-1-layers.onnx", (rest, made))
    save(tmp_path / "model-2-head.onnx", (last, {"logits": outputs["logits"]}))
    _refused(tmp_path, "a part reads the cache of another (present.2.key)")


def test_nothing_is_known_of_a_model_without_a_base(tmp_path: Path) -> None:
    bare = Companions({"config.json": b"{}"})
    assert genai_files(tmp_path, bare, CPU) is bare


def test_caches_are_counted_from_0(tmp_path: Path) -> None:
    inputs, outputs = ({n: s for n, s in ports.items() if ".0." not in n} for ports in growing())
    save(tmp_path / "model.onnx", (inputs, outputs))
    _refused(tmp_path, "from 0 without a gap, and those are [1, 2]")


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("input_ids", ("batch", 1)),
        ("attention_mask", ("batch", 64)),
        ("past_key_values.2.key", ("batch", 2, 64, 8)),
    ],
)
def test_one_graph_of_fixed_sizes_is_refused(tmp_path: Path, name: str, shape: Shape) -> None:
    """D22: a window of fixed length that the configuration does not speak of crashed a runtime."""
    inputs, outputs = growing()
    save(tmp_path / "model.onnx", ({**inputs, name: shape}, outputs))
    _refused(tmp_path, "fixed sizes")


def test_another_interface_is_refused(tmp_path: Path) -> None:
    inputs, outputs = growing()
    save(tmp_path / "model.onnx", ({**inputs, "write_indices": ("batch",)}, outputs))
    _refused(
        tmp_path, "other inputs or outputs than tokens, mask, positions, logits and caches: wri"
    )
    save(tmp_path / "model.onnx", (inputs, {**outputs, "hidden": ("batch",)}))
    _refused(tmp_path, "hidden")
    save(tmp_path / "model.onnx", ({"pixels": (1, 1)}, {"logits": (1, 1, 7)}))
    _refused(tmp_path, "no tokens as input")
    save(tmp_path / "model.onnx", ({"input_ids": (1, 1)}, {"logits": (1, 1, 7)}))
    _refused(tmp_path, "no caches")


def test_half_a_pair_is_refused(tmp_path: Path) -> None:
    (pair(tmp_path) / "prefill.onnx").unlink()
    _refused(tmp_path, "one to read prompts and one to decode")


@pytest.mark.parametrize(
    ("window", "rows", "words"),
    [(4, 18, "18 rows of the cache are no multiple of 4"), (1, 16, "windows of 2 tokens")],
)
def test_sizes_that_the_runtime_cannot_drive(
    tmp_path: Path, window: int, rows: int, words: str
) -> None:
    """Its last window would write behind the cache; windows of one token crash it."""
    _refused(pair(tmp_path, window=window, rows=rows), words)


def test_windowed_caches_are_refused(tmp_path: Path) -> None:
    for phase, new in (("prefill", 4), ("decode", 1)):
        layout = CacheLayout("left", {"past_key_values.1.key": 8})
        save(tmp_path / f"{phase}.onnx", fixed(new, 16, 16), layout)
    _refused(tmp_path, "keep only the newest tokens")


def test_caches_that_lie_nobody_knows_how_are_refused(tmp_path: Path) -> None:
    for phase, new in (("prefill", 4), ("decode", 1)):
        save(tmp_path / f"{phase}.onnx", fixed(new, 16, 16))
    _refused(tmp_path, "do not say how")


def test_a_mask_of_another_width_is_refused(tmp_path: Path) -> None:
    for phase, new in (("prefill", 4), ("decode", 1)):
        save(tmp_path / f"{phase}.onnx", fixed(new, 16, 16), CacheLayout("right"))
    _refused(tmp_path, "has 16 columns, where the caches call for 20")


def test_a_larger_batch_is_refused(tmp_path: Path) -> None:
    for phase, new in (("prefill", 4), ("decode", 1)):
        ports = ({n: (2, *s[1:]) for n, s in some.items()} for some in fixed(new, 16, 16))
        save(tmp_path / f"{phase}.onnx", (next(ports), next(ports)), CacheLayout("left"))
    _refused(tmp_path, "a batch of 1 only")


def test_models_of_more_graphs_keep_what_was_stated_of_them(tmp_path: Path) -> None:
    stated = base(vision={"filename": "vision.onnx"})
    stated["model"]["decoder"]["filename"] = "text.onnx"
    (tmp_path / "vision.onnx").touch()
    _refused(tmp_path, "text.onnx is not among those written", stated)
    (tmp_path / "text.onnx").touch()
    made = genai_files(tmp_path, _companions(stated), QNN)
    content = made.files[NAME]
    assert isinstance(content, bytes)
    assert json.loads(content) == stated
    assert "not checked" in made.notes[1]
    assert "(vision)" in made.notes[1]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{", "is no JSON"),
        (b"[]", "is not an object"),
        (b'{"model": 1}', "'model' is not an object"),
        (b'{"model": {"decoder": []}}', "'model.decoder' is not an object"),
        (b'{"model": {"context_length": "64"}}', "'model.context_length' is not a whole number"),
        (b'{"search": {"max_length": 1.5}}', "'search.max_length' is not a whole number"),
        (b'{"model": {"decoder": {"inputs": {"a": 1}}}}', "inputs' is not an object of names"),
        (
            b'{"model": {"decoder": {"session_options": {"provider_options": [1]}}}}',
            "provider_options' is not a list of objects",
        ),
    ],
)
def test_a_file_that_is_no_configuration(tmp_path: Path, content: bytes, words: str) -> None:
    save(tmp_path / "model.onnx", growing())
    (tmp_path / NAME).write_bytes(content)
    for stated in (content, tmp_path / NAME):
        with pytest.raises(BadInput, match=f"{NAME}: .*{words}"):
            genai_files(tmp_path, Companions({}, genai=GenaiBase(stated)), CPU)


def test_what_a_user_got_wrong_is_an_error(tmp_path: Path) -> None:
    save(tmp_path / "model.onnx", growing())
    stated = base()
    stated["model"]["decoder"]["head_size"] = 64
    with pytest.raises(BadInput, match=r"'model\.decoder\.head_size' is 64, and .* \[8\]"):
        genai_files(tmp_path, _companions(stated), CPU)
    stated = base()
    stated["model"]["decoder"]["inputs"] = {"past_sequence_length": "past_len"}
    with pytest.raises(BadInput, match=r"past_sequence_length' is past_len, and the graphs have"):
        genai_files(tmp_path, _companions(stated), CPU)


def test_layers_without_a_cache_do_not_count(tmp_path: Path) -> None:
    """Layers that share the cache of another; fewer than there are caches is an error."""
    save(tmp_path / "model.onnx", growing())
    stated = base()
    stated["model"]["decoder"]["num_hidden_layers"] = 5
    made = genai_files(tmp_path, _companions(stated), CPU)
    assert "num_hidden_layers 3 for 5" in made.notes[2]
    stated["model"]["decoder"]["num_hidden_layers"] = 2
    with pytest.raises(BadInput, match=r"silent on .*past_key_values\.2\.key"):
        genai_files(tmp_path, _companions(stated), CPU)
