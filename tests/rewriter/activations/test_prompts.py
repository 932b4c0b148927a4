"""Calibration data of every kind, and what is said of data that does not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from rewriter.activations import Calibration, calibration
from rewriter.errors import BadInput
from tests.graphs import Builder

F32, I64 = ir.DataType.FLOAT, ir.DataType.INT64
VOCABULARY = 16


@pytest.fixture
def decoder(tmp_path: Path) -> Path:
    """A decoder of sorts: logits are rows of a table."""
    b = Builder()
    ids = b.input("input_ids", I64, (1, 4))
    table = b.const("table", np.eye(VOCABULARY, dtype=np.float32))
    logits = b.op("Gather", table, ids, name="logits")
    return saved(b.model([(logits, F32, (1, 4, VOCABULARY))]), tmp_path)


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    b = Builder()
    x = b.input("pixels", F32, (1, 3))
    return saved(b.model([(b.op("Relu", x, name="y"), F32, (1, 3))]), tmp_path)


def saved(model: ir.Model, folder: Path) -> Path:
    ir.save(model, folder / "model.onnx")
    return folder / "model.onnx"


def read(file: Path, asked: Path | str, tokenizer: bytes | None = None) -> Calibration:
    return calibration(str(asked), file, tokenizer, 0)


def test_random_ids_are_in_the_vocabulary_and_called_what_they_are(decoder: Path) -> None:
    found = read(decoder, "auto")
    assert found.source == "4 x 4 random ids, NOT TEXT"
    ids = np.array(found.prompts)
    assert ids.shape == (4, 4)
    assert ids.min() >= 0
    assert ids.max() < VOCABULARY
    assert len(np.unique(ids)) > 4
    assert np.array_equal(ids, read(decoder, "auto").prompts)


def test_random_inputs_of_a_graph_that_reads_no_tokens(encoder: Path) -> None:
    found = read(encoder, "auto")
    assert (found.source, len(found.feeds)) == ("random inputs, NOT DATA", 4)
    assert found.feeds[0]["pixels"].shape == (1, 3)


def test_ids_of_an_npz(decoder: Path, tmp_path: Path) -> None:
    ids = np.array([[1, 2, 3, 4], [5, 6, 7, 8]])
    np.savez(tmp_path / "ids.npz", other=np.zeros(1), input_ids=ids)
    found = read(decoder, tmp_path / "ids.npz")
    assert [len(feed["input_ids"]) for feed in found.feeds] == []
    assert np.array_equal(found.prompts, ids)


def test_samples_of_an_npz(encoder: Path, tmp_path: Path) -> None:
    given = np.arange(6, dtype=np.float32).reshape(2, 1, 3)
    np.savez(tmp_path / "all.npz", pixels=given)
    found = read(encoder, tmp_path / "all.npz")
    assert [feed["pixels"].tolist() for feed in found.feeds] == given.tolist()
    np.savez(tmp_path / "one.npz", pixels=given[0])
    assert len(read(encoder, tmp_path / "one.npz").feeds) == 1


def test_prompts_of_a_text_through_the_model_s_own_tokenizer(decoder: Path, tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {"the": 1, "cat": 2, "sat": 3}
    own = Tokenizer(models.WordLevel({"?": 0, **words}, unk_token="?"))
    own.pre_tokenizer = pre_tokenizers.Whitespace()
    (tmp_path / "prompts.txt").write_text("the cat sat\n\ncat the dog\n", encoding="utf-8")
    found = read(decoder, tmp_path / "prompts.txt", own.to_str().encode())
    assert [prompt.tolist() for prompt in found.prompts] == [[1, 2, 3], [2, 1, 0]]
    assert found.source == "2 prompts of prompts.txt"
    with pytest.raises(BadInput, match=r"the model has no tokenizer\.json"):
        read(decoder, tmp_path / "prompts.txt")


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("none.npz", None, "there is no such file"),
        ("data.csv", b"1,2", "is neither .txt nor .npz"),
        ("broken.npz", b"PK", "cannot be read"),
        ("empty.txt", b"\n \n", "is empty"),
    ],
)
def test_what_is_wrong_with_a_file(
    name: str, content: bytes | None, why: str, decoder: Path, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInput, match=why):
        read(decoder, tmp_path / name, b"{}")


def test_ids_that_the_model_does_not_have(decoder: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "ids.npz", input_ids=np.array([[1, VOCABULARY, 0, 0, 0]]), x=np.zeros(1))
    with pytest.raises(BadInput, match="outside the vocabulary of 16"):
        read(decoder, tmp_path / "ids.npz")


def test_inputs_that_are_missing(encoder: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "all.npz", other=np.zeros(3))
    with pytest.raises(BadInput, match=r"lacks the input\(s\) pixels"):
        read(encoder, tmp_path / "all.npz")
    np.savez(tmp_path / "flat.npz", pixels=np.zeros(3))
    with pytest.raises(BadInput, match="neither the ranks of the inputs nor"):
        read(encoder, tmp_path / "flat.npz")
