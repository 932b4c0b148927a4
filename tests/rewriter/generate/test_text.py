"""Text in and out, through the tokenizers of the fixtures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from frontends.gguf.tokenizer import tokenizer_files
from rewriter.errors import BadInput
from rewriter.generate.text import Text

TOKENIZERS = Path(__file__).parents[3] / "fixtures" / "tokenizers"
NAMES = ["byte_level", "gemma4", "sentencepiece"]
TEXTS = [
    "Hello world",
    "  two spaces, a tab\tand\nlines\n\n",
    "naïve café, ½ größer",
    "日本語のテキスト and 한국어",
    "emoji 👩‍👩‍👧 and 🇨🇭 flags",
    "x",
]


def written(name: str) -> bytes:
    """The tokenizer that is written for the metadata of a GGUF file."""
    metadata = json.loads((TOKENIZERS / f"{name}.json").read_text(encoding="utf-8"))["metadata"]
    prefixed = {f"tokenizer.ggml.{key}": value for key, value in metadata.items()}
    content = tokenizer_files(Path("model.gguf"), prefixed).files["tokenizer.json"]
    assert isinstance(content, bytes)
    return content


def tokenizer(name: str) -> Any:
    return Tokenizer.from_str(written(name).decode())


def text_of(name: str, folder: Path) -> Text:
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_bytes(written(name))
    return Text(folder)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("text", TEXTS)
def test_ids_are_those_of_the_tokenizer(name: str, text: str, tmp_path: Path) -> None:
    known = tokenizer(name)
    assert text_of(name, tmp_path).ids(text) == known.encode(text).ids


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("cut", [1, 3, 6])
def test_streamed_text_is_the_text(name: str, text: str, cut: int, tmp_path: Path) -> None:
    """Wherever the prompt ends, what follows is what the whole has more, and whole characters."""
    known = tokenizer(name)
    ids = known.encode(text * 12, add_special_tokens=False).ids
    whole = known.decode(ids)
    stream = text_of(name, tmp_path).after(ids[:cut])
    pieces = [stream.add(token) for token in ids[cut:]]
    assert "\N{REPLACEMENT CHARACTER}" not in "".join(pieces)
    pieces.append(stream.end())
    joined = "".join(pieces)
    assert whole.endswith(joined)
    assert len(joined) >= len(whole) - len(known.decode(ids[:cut])) - 1


def test_bytes_of_one_character_come_at_once(tmp_path: Path) -> None:
    known = tokenizer("byte_level")
    start, ids = known.encode("x").ids, known.encode("👩").ids
    assert len(ids) > 1, "else the tokenizer has the character"
    stream = text_of("byte_level", tmp_path).after(start)
    assert [stream.add(token) for token in ids] == [*[""] * (len(ids) - 1), "👩"]


def test_bytes_that_never_become_one_are_replaced_at_the_end(tmp_path: Path) -> None:
    known = tokenizer("byte_level")
    stream = text_of("byte_level", tmp_path).after(known.encode("x").ids)
    assert stream.add(known.encode("👩").ids[0]) == ""
    assert stream.end() == "\N{REPLACEMENT CHARACTER}"


def test_errors_of_one_line(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"holds no tokenizer\.json.*--ids"):
        Text(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
    with pytest.raises(BadInput, match="is no tokenizer that can be read"):
        Text(tmp_path)
    for name in NAMES:
        with pytest.raises(BadInput, match="the prompt is empty"):
            text_of(name, tmp_path).ids("")


def test_a_prompt_that_is_no_utf_8(tmp_path: Path) -> None:
    """As Python reads bytes of the command line that it does not understand."""
    (tmp_path / "tokenizer.json").write_bytes(written(NAMES[0]))
    with pytest.raises(BadInput, match="the prompt is no UTF-8"):
        Text(tmp_path).ids("bad \udcff bytes")
