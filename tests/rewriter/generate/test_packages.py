"""Folders of several components: the one decoder among them is driven, with its embedding."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rewriter.errors import BadInput
from rewriter.generate.decoder import opened
from rewriter.generate.folder import read_folder
from rewriter.generate.greedy import generate
from tests.rewriter.generate.toys import Toy, edit, greedy, package, renamed
from tests.rewriter.runtime.models import save_linear

PROMPT = [3, 1, 4, 1, 5]


@pytest.mark.parametrize("fixed", [True, False], ids=["phases", "growing"])
def test_the_decoder_is_driven_with_its_embedding(fixed: bool, tmp_path: Path) -> None:
    """Another component is left alone."""
    found = package(tmp_path / "f", fixed=fixed)
    save_linear(found / "vision.onnx")
    folder = read_folder(found)
    names = {graph.name: [part.name for part in graph.parts] for graph in folder.graphs.values()}
    assert names == {
        phase or "model": [f"embedding{at}", f"text{at}-1-layers", f"text{at}-2-head"]
        for phase, at in (
            (("prefill", "-prefill"), ("decode", "-decode")) if fixed else (("", ""),)
        )
    }
    with opened(folder) as decoder:
        assert list(generate(decoder, PROMPT, 6)) == greedy(PROMPT, 6)


def test_a_decoder_of_any_name_that_reads_tokens(tmp_path: Path) -> None:
    Toy().save(tmp_path, "text")
    save_linear(tmp_path / "vision.onnx")
    with opened(read_folder(tmp_path)) as decoder:
        assert list(generate(decoder, PROMPT, 4)) == greedy(PROMPT, 4)


def test_an_embedding_beside_a_model_that_is_called_model(tmp_path: Path) -> None:
    folder = package(tmp_path / "f", fixed=False)
    for file in folder.glob("text-*.onnx"):
        file.rename(folder / file.name.replace("text", "model"))
    with opened(read_folder(folder)) as decoder:
        assert list(generate(decoder, PROMPT, 4)) == greedy(PROMPT, 4)


def test_more_than_one_of_a_kind(tmp_path: Path) -> None:
    folder = package(tmp_path / "f", fixed=True)
    shutil.copy(folder / "embedding-prefill.onnx", folder / "draft_embedding-prefill.onnx")
    with pytest.raises(BadInput, match=r"more than one embedding \(draft_embedding, embedding\)"):
        read_folder(folder)
    Toy().save(folder, "draft")
    with pytest.raises(BadInput, match=r"more than one decoder \(draft, text\); copy the files"):
        read_folder(folder)


def test_what_no_token_gives(tmp_path: Path) -> None:
    folder = package(tmp_path / "f", fixed=False)
    edit(folder / "embedding.onnx", renamed("position_ids", "image_features"))
    said = r"embedding\.onnx: nothing gives its input 'image_features'.* gives tokens alone"
    with pytest.raises(BadInput, match=said):
        read_folder(folder)
    (folder / "embedding.onnx").unlink()
    with pytest.raises(BadInput, match=r"text-1-layers\.onnx: has no input 'input_ids'"):
        read_folder(folder)
