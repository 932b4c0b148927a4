"""Folders of every layout, whole and in parts, against the formula of the decoder."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import pytest

from rewriter.errors import BadInput
from rewriter.generate.decoder import Decoder, opened
from rewriter.generate.folder import read_folder
from rewriter.generate.greedy import check_room, generate, room
from rewriter.generate.plan import CacheFull
from tests.rewriter.generate.toys import PAST, WORDS, Toy, formula, greedy

S, ROWS, NEAR = 4, 14, 1e-5
IDS = np.random.default_rng(1).integers(0, WORDS, (1, ROWS))
LAYOUTS: dict[str, dict[str, Any]] = {
    "growing": {"alignment": "growing"},
    "none": {"alignment": "none"},
    "left": {"alignment": "left", "tokens": S},
    "lengths": {"alignment": "left", "tokens": S, "lengths": True},
    "right": {"alignment": "right", "tokens": S},
    "right, a mask of floats": {
        "alignment": "right",
        "tokens": S,
        "mask_dtype": ir.DataType.FLOAT,
    },
}


def write(folder: Path, layout: dict[str, Any], *, parts: bool = False, **more: Any) -> Path:
    """A folder of a layout: one graph, or two of fixed sizes."""
    spec = {**layout, **more}
    if "tokens" not in spec:
        Toy(**spec).save(folder, "model", parts=parts)
        return folder
    Toy(**spec, rows=ROWS).save(folder, "prefill", parts=parts)
    Toy(**{**spec, "tokens": 1}, rows=ROWS).save(folder, "decode", parts=parts)
    return folder


@contextmanager
def driven(folder: Path) -> Generator[Decoder, None, None]:
    with opened(read_folder(folder)) as decoder:
        yield decoder


def near(found: npt.NDArray[Any], expected: npt.NDArray[Any]) -> bool:
    assert found.shape == expected.shape
    return float(np.abs(found - expected).max()) < NEAR * float(expected.std())


@pytest.mark.parametrize("parts", [False, True], ids=["whole", "parts"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_logits_of_every_position(layout: str, parts: bool, tmp_path: Path) -> None:
    expected = formula(IDS)
    with driven(write(tmp_path / "f", LAYOUTS[layout], parts=parts)) as decoder:
        for prompt in (1, S - 1, S, S + 1, 2 * S, ROWS - 1, ROWS):
            decoder.restart()
            found = [decoder.feed(IDS[:, :prompt])]
            found += [decoder.feed(IDS[:, i]) for i in range(prompt, ROWS)]
            assert near(np.concatenate(found, axis=1), expected), prompt


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_prompt_in_pieces_is_the_prompt(layout: str, tmp_path: Path) -> None:
    with driven(write(tmp_path / "f", LAYOUTS[layout])) as decoder:
        found = [decoder.feed(IDS[:, start:stop]) for start, stop in ((0, 2), (2, 7), (7, ROWS))]
    assert near(np.concatenate(found, axis=1), formula(IDS))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_greedy_tokens(layout: str, tmp_path: Path) -> None:
    expected = greedy([3, 1, 4], ROWS - 2)
    assert len(set(expected)) > 6
    with driven(write(tmp_path / "f", LAYOUTS[layout])) as decoder:
        assert list(generate(decoder, [3, 1, 4], ROWS - 2)) == expected
        decoder.restart()
        stopped = list(generate(decoder, [3, 1, 4], ROWS - 2, stop={expected[3]}))
    assert stopped == expected[: expected.index(expected[3]) + 1]


@pytest.mark.parametrize("layout", ["left", "right", "growing"])
def test_several_sequences_at_once(layout: str, tmp_path: Path) -> None:
    both = np.concatenate([IDS, IDS[:, ::-1]])
    with driven(write(tmp_path / "f", LAYOUTS[layout], batch=2)) as decoder:
        found = [decoder.feed(both[:, :6]), decoder.feed(both[:, 6:])]
        assert near(np.concatenate(found, axis=1), formula(both))
        decoder.restart()
        with pytest.raises(BadInput, match="1 sequences were given, and the graphs take 2"):
            decoder.feed(IDS)
        assert list(generate(decoder, [3, 1, 4], 3)) == greedy([3, 1, 4], 3)


def test_a_free_batch_is_that_of_the_ids(tmp_path: Path) -> None:
    both = np.concatenate([IDS, IDS[:, ::-1]])
    with driven(write(tmp_path / "f", LAYOUTS["growing"], batch=None)) as decoder:
        assert near(decoder.feed(both[:, :6]), formula(both)[:, :6])
        with pytest.raises(BadInput, match="1 sequences were given, and the graphs take 2"):
            decoder.feed(IDS)


@pytest.mark.parametrize("layout", ["left", "growing"])
def test_only_the_last_logits(layout: str, tmp_path: Path) -> None:
    with driven(write(tmp_path / "f", LAYOUTS[layout], last=True)) as decoder:
        assert near(decoder.feed(IDS[:, :7])[:, -1], formula(IDS)[:, 6])


def test_what_the_caches_hold(tmp_path: Path) -> None:
    found = {}
    for layout in ("growing", "left", "right"):
        with driven(write(tmp_path / layout, LAYOUTS[layout])) as decoder:
            decoder.feed(IDS[:, :6])
            found[layout] = decoder.caches()
    for name in PAST:
        grown = found["growing"][name]
        assert grown.shape[2] == 6
        assert np.abs(grown).min() > 0
        np.testing.assert_allclose(found["left"][name][:, :, :6], grown, atol=1e-5)
        np.testing.assert_allclose(found["right"][name][:, :, -6:], grown, atol=1e-5)


@pytest.mark.parametrize("layout", ["left", "right"])
def test_a_full_cache(layout: str, tmp_path: Path) -> None:
    folder = read_folder(write(tmp_path / "f", LAYOUTS[layout]))
    assert (room(folder, 3), room(folder, ROWS)) == (ROWS - 2, 1)
    with pytest.raises(CacheFull, match="the prompt of 15 tokens does not fit: the cache has 14"):
        room(folder, ROWS + 1)
    check_room(folder, 3, ROWS - 2)
    with pytest.raises(CacheFull, match=r"leaves room for 12 new ones, not 13.*--max-seq-len"):
        check_room(folder, 3, ROWS - 1)
    with opened(folder) as decoder:
        tokens = generate(decoder, IDS[0].tolist(), 2)
        assert next(tokens) == int(formula(IDS)[0, -1].argmax())
        with pytest.raises(CacheFull, match="15 tokens do not fit"):
            next(tokens)


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ([WORDS], "token id 24 is outside the vocabulary, whose ids are 0 to 23"),
        ([3, -1], "token id -1 is outside"),
        ([], "token ids are one whole number or more"),
        ([0.5], "token ids are one whole number or more"),
        ([[[1]]], "token ids are one whole number or more"),
    ],
)
def test_ids_that_cannot_be_read(ids: list[Any], said: str, tmp_path: Path) -> None:
    with driven(write(tmp_path / "f", LAYOUTS["growing"])) as decoder:
        with pytest.raises(BadInput, match=said):
            decoder.feed(ids)
        assert near(decoder.feed(IDS[:, :2]), formula(IDS)[:, :2])


def test_an_empty_prompt(tmp_path: Path) -> None:
    with (
        driven(write(tmp_path / "f", LAYOUTS["growing"])) as decoder,
        pytest.raises(BadInput, match="the prompt is empty"),
    ):
        next(generate(decoder, [], 1))


@pytest.mark.parametrize(("name", "tokens"), [("prefill", S), ("decode", 1), ("model", 3)])
def test_one_graph_of_a_fixed_size_alone(name: str, tokens: int, tmp_path: Path) -> None:
    Toy(alignment="left", tokens=tokens, rows=ROWS).save(tmp_path, name)
    with driven(tmp_path) as decoder:
        found = [decoder.feed(IDS[:, :7]), *(decoder.feed(IDS[:, i]) for i in range(7, ROWS))]
        assert near(np.concatenate(found, axis=1), formula(IDS))
