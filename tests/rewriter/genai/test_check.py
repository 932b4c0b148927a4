"""A configuration that says of its graphs what is not so is an error that names both."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from capabilities import target
from rewriter.errors import BadInput
from rewriter.genai import NAME, check, genai_files
from rewriter.source import Companions, GenaiBase
from tests.rewriter.genai.folders import base, growing, pair, parts, save

Change = Callable[[dict[str, Any]], Any]


def _written(folder: Path, ep: str) -> dict[str, Any]:
    stated = GenaiBase(json.dumps(base()).encode())
    made = genai_files(folder, Companions({}, genai=stated), target(ep))
    for name, content in made.files.items():
        assert isinstance(content, bytes)
        (folder / name).write_bytes(content)
    config: dict[str, Any] = json.loads((folder / NAME).read_text(encoding="utf-8"))
    check(config, folder)
    return config


def _decoder(key: str, value: Any) -> Change:
    return lambda config: config["model"]["decoder"].update({key: value})


def _inner(name: str, key: str, value: Any) -> Change:
    return lambda config: config["model"]["decoder"][name].update({key: value})


def _stage(stage: str, key: str, value: Any) -> Change:
    return lambda config: config["model"]["decoder"]["pipeline"][0][stage].update({key: value})


PLAIN: dict[str, tuple[Change, str]] = {
    "file": (_decoder("filename", "a.onnx"), r"'model.decoder.filename' is a.onnx.*model.onnx"),
    "heads": (_decoder("num_key_value_heads", 6), r"num_key_value_heads' is 6, .*\[2\]"),
    "head size": (_decoder("head_size", 64), r"head_size' is 64, .*\[8\]"),
    "fewer layers": (_decoder("num_hidden_layers", 2), r"is silent .*'past_key_values\.2\.key'"),
    "more layers": (_decoder("num_hidden_layers", 4), r"_names' is past_key_values\.3\.key"),
    "input": (_inner("inputs", "position_ids", "pos"), r"inputs.position_ids' is pos, .*input_ids"),
    "caches": (_inner("inputs", "past_key_names", "k.%d"), r"past_key_names' is k\.0"),
    "logits": (_inner("outputs", "logits", "scores"), r"outputs.logits' is scores, .*logits"),
    "presents": (_inner("outputs", "present_value_names", "v%d"), r"present_value_names' is v0"),
    "words": (lambda c: c["model"].update(vocab_size=8), r"'model.vocab_size' is 8, .* 7;"),
    "longer than the model": (
        lambda c: c["search"].update(max_length=65), r"'search.max_length' is 65, .*64",
    ),
    "buffer": (
        lambda c: c["search"].update(past_present_share_buffer=True),
        r"past_present_share_buffer' is True, .*grow",
    ),
    "nothing": (lambda c: c["model"]["decoder"].clear(), r"filename' is None, "),
    "no head size": (lambda c: c["model"]["decoder"].pop("head_size"), r"head_size' is None, "),
    "no length": (lambda c: c.pop("search"), r"max_length' is None, "),
    "windows": (
        _decoder("sliding_window", {"window_size": 4}), r"sliding_window' is .*caches of past rows",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("change", "words"), PLAIN.values(), ids=[*PLAIN])
def test_of_a_plain_decoder(tmp_path: Path, change: Change, words: str) -> None:
    save(tmp_path / "model.onnx", growing())
    config = _written(tmp_path, "ort-cpu")
    change(config)
    with pytest.raises(BadInput, match=words):
        check(config, tmp_path)


WINDOWS: dict[str, tuple[Change, str]] = {
    "window": (_inner("sliding_window", "window_size", 8), r"window_size' is 8, .* 4;"),
    "alignment": (_inner("sliding_window", "alignment", "right"), r"alignment' is right, .*'left'"),
    "windows of nothing": (_decoder("sliding_window", {}), r"window_size' is None, "),
    "slides": (
        _inner("sliding_window", "slide_key_value_cache", True),
        r"slide_key_value_cache' is True, .*False",
    ),
    "rows": (lambda c: c["model"].update(context_length=64), r"context_length' is 64, .* 16;"),
    "buffer": (
        lambda c: c["search"].update(past_present_share_buffer=False),
        r"past_present_share_buffer' is False, .*16 rows",
    ),
    "file": (_stage("context", "filename", "p.onnx"), r"pipeline.context.filename' is p.onnx"),
    "stage inputs": (
        _stage("iterator", "inputs", ["input_ids"]), r"iterator.inputs' is \['input_ids'\]",
    ),
    "stage outputs": (
        _stage("lengths", "outputs", ["a"]), r"lengths.outputs' is \['a'\]",
    ),
    "phase": (_stage("context", "run_on_token_gen", True), r"pipeline' is for one token .* 4;"),
    "count": (
        _stage("lengths", "output_names_forwarder", {}),
        r"output_names_forwarder' is {}, .*'tokens_after': 'tokens_before'",
    ),
    "pad": (lambda c: c["model"].update(pad_token_id=3), r"'model.pad_token_id' is 3, .* 5;"),
    "mask": (
        _inner("inputs", "attention_mask", "attention_mask"),
        r"attention_mask' is attention_mask, .* a stage that makes it",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("change", "words"), WINDOWS.values(), ids=[*WINDOWS])
def test_of_a_pipeline(tmp_path: Path, change: Change, words: str) -> None:
    config = _written(pair(tmp_path), "qnn")
    change(config)
    with pytest.raises(BadInput, match=words):
        check(config, tmp_path)


def test_a_part_that_nobody_feeds(tmp_path: Path) -> None:
    config = _written(parts(tmp_path), "qnn")
    del config["model"]["decoder"]["pipeline"][0]["iterator-1-embedding"]
    with pytest.raises(BadInput, match=r"inputs' is silent .* the graphs have \['h0'\]"):
        check(config, tmp_path)


def test_another_folder_is_no_match(tmp_path: Path) -> None:
    """The configuration of one, the graphs of another."""
    config = _written(pair(tmp_path), "qnn")
    pair(tmp_path, rows=8)
    with pytest.raises(BadInput, match=r"'model.context_length' is 16, .* 8;"):
        check(config, tmp_path)
