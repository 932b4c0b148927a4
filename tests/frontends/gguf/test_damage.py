"""Every fault of a GGUF file is one sentence that names file, thing and next step."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from frontends.decoder.weights import Float
from frontends.gguf.file import GgufFile
from frontends.gguf.weights import GgufWeights
from rewriter.errors import BadInput
from tests.frontends.gguf.files import T, random_blocks, write

MATRIX = np.arange(128, dtype=np.float32).reshape(4, 32)


def fault(path: Path, data: bytes | None = None) -> str:
    """The one sentence that a file's weights give."""
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(BadInput) as caught:
        GgufWeights(GgufFile.open(path))
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"{path}: ")
    return message.removeprefix(f"{path}: ")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a model goes."""
    return tmp_path / "m.gguf"


def text(value: str | bytes) -> bytes:
    """A string as files hold it."""
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def key(name: str | bytes, kind: int, value: bytes) -> bytes:
    """A metadata key."""
    return text(name) + struct.pack("<I", kind) + value


LLAMA = key("general.architecture", 8, text("llama"))


def tensor(name: str = "w", dims: Sequence[int] = (32, 4), kind: int = 0, offset: int = 0) -> bytes:
    """An entry of the list of tensors."""
    sizes = struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
    return text(name) + sizes + struct.pack("<IQ", kind, offset)


def model(
    keys: Sequence[bytes] = (LLAMA,),
    tensors: Sequence[bytes] = (tensor(),),
    data: bytes = bytes(512),
    version: int = 3,
) -> bytes:
    """A file of parts."""
    counts = struct.pack("<IQQ", version, len(tensors), len(keys))
    head = b"GGUF" + counts + b"".join(keys) + b"".join(tensors)
    return head + bytes(-len(head) % 32) + data


def test_the_parts_make_a_file(path: Path) -> None:
    path.write_bytes(model())
    weight = GgufWeights(GgufFile.open(path))["w"]
    assert isinstance(weight, Float)
    assert weight.shape == (4, 32)
    path.write_bytes(model(version=2))
    assert list(GgufFile.open(path).tensors) == ["w"]


# -- no GGUF at all --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "the file is empty"),
        (b"\x08\x08\x12\x04onnx", "not a GGUF file"),
        (b"PK\x03\x04....", "zip archive"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "git lfs pull"),
        (b"<!DOCTYPE html><html>", "web page"),
        (b"tjgg\x03\0\0\0", "before GGUF"),
        (b"GG", "not a GGUF file"),
        (b"GGUF\x03\0", "cut off after 6 bytes"),
        (b"GGUF\x01\0\0\0" + bytes(32), "version 1, which llama.cpp dropped"),
        (b"GGUF\0\0\0\x03" + bytes(32), "big-endian"),
        (b"GGUF\x09\0\0\0" + bytes(32), "version 9"),
    ],
)
def test_other_files(path: Path, data: bytes, words: str) -> None:
    message = fault(path, data)
    assert words in message
    assert ";" in message or "newer" in message


def test_no_file(path: Path) -> None:
    assert fault(path) == "there is no such file"
    path.mkdir()
    assert fault(path).startswith("cannot be read: ")


# -- a damaged head --------------------------------------------------------------------------

HUGE = struct.pack("<Q", 1 << 62)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60) + LLAMA, "1152921504606846976 metadata keys"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 1) + LLAMA, "1152921504606846976 tensors"),
        (model([LLAMA, key("k", 8, HUGE)]), "'k' is said to hold a text of 4611686018427387904"),
        (
            model([LLAMA, key("k", 9, struct.pack("<I", 8) + HUGE)]),
            "said to hold 46116860184273879",
        ),
        (model([LLAMA, key("k", 8, struct.pack("<Q", 9999))]), "'k' would reach beyond its end"),
        (model([LLAMA, key("k", 9, struct.pack("<IQ", 8, 9999))]), "'k' would reach beyond"),
        (model([LLAMA, key("k", 9, struct.pack("<IQ", 8, 9))]), "'k' is said to hold a text"),
        (model([LLAMA, key("k", 9, struct.pack("<IQ", 4, 9999))]), "'k' would reach beyond"),
        (model([LLAMA, key("k", 13, b"")]), "the metadata key 'k' has the type 13"),
        (
            model([LLAMA, key("k", 9, struct.pack("<IQ", 9, 1))]),
            "the metadata key 'k' has the type",
        ),
        (model([LLAMA, LLAMA]), "'general.architecture' is there twice"),
        (model([LLAMA, key(b"\xff\xfe", 4, bytes(4))]), "metadata key 2 of 2 is no UTF-8"),
        (model([LLAMA, key("k", 8, text(b"\xff"))]), "'k' is no UTF-8"),
        (model([LLAMA, key("general.alignment", 4, bytes(4))]), "general.alignment is 0"),
        (model([LLAMA, key("general.alignment", 4, b"\x30\0\0\0")]), "general.alignment is 48"),
        (model([LLAMA, key("general.alignment", 8, text("a"))]), "general.alignment is 'a'"),
        (model([LLAMA, key("split.count", 8, text("a"))]), "split.count is 'a'"),
        (model([LLAMA, key("split.count", 4, b"\2\0\0\0")]), "is shard 1 of 2"),
    ],
)
def test_damaged_metadata(path: Path, data: bytes, words: str) -> None:
    assert words in fault(path, data)


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ([tensor(), tensor(offset=512)], "two tensors are named 'w'"),
        ([tensor(dims=(1, 2, 3, 4, 5))], "tensor 'w' has 5 dims"),
        ([tensor(dims=(0, 4))], "tensor 'w' has the shape [4, 0]"),
        ([tensor(dims=(1 << 32, 1 << 31))], "has the shape [2147483648, 4294967296]"),
        ([tensor(dims=(32, 5))], "cut off: tensor 'w' needs bytes up to"),
        ([tensor(dims=(40, 4), kind=2)], "multiple of the 32 values of a Q4_0 block"),
        ([tensor(dims=(128, 1), kind=12)], "multiple of the 256 values of a Q4_K block"),
        ([tensor(kind=77)], "the type 77, which the installed gguf package does not know"),
        ([tensor(kind=4)], "the type 4, which llama.cpp dropped"),
        ([tensor(offset=32)], "said to start at byte 32 of the data"),
        ([tensor(), tensor("v", offset=256)], "tensor 'v' is said to start at byte 256"),
    ],
)
def test_damaged_tensors(path: Path, tensors: list[bytes], words: str) -> None:
    assert words in fault(path, model(tensors=tensors, data=bytes(600)))


# -- the wrong file --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ([key("general.architecture", 8, text("clip"))], "the vision or audio part of a model"),
        ([LLAMA, key("general.type", 8, text("mmproj"))], "the vision or audio part of a model"),
        ([LLAMA, key("general.type", 8, text("adapter"))], "an adapter (LoRA), not a text model"),
        ([], "the metadata key general.architecture is missing"),
        ([key("general.architecture", 4, bytes(4))], "general.architecture is missing, or no text"),
    ],
)
def test_no_text_model(path: Path, keys: list[bytes], words: str) -> None:
    assert words in fault(path, model(keys))


def test_a_vocabulary_alone(path: Path) -> None:
    assert "holds no tensors" in fault(path, model(tensors=[]))


# -- any damage ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A small file with tensors of several types, most of it head."""
    kinds = (T.Q4_0, T.Q4_K, T.Q6_K, T.IQ2_XXS, T.IQ4_XS)
    tensors = {f"blk.0.w{i}": (k, random_blocks(k, (1, 256))) for i, k in enumerate(kinds)}
    metadata = {
        "llama.block_count": 1,
        "general.alignment": 32,
        "tokenizer.ggml.tokens": [f"t{i}" for i in range(20)],
        "tokenizer.ggml.token_type": [1] * 20,
    }
    path = tmp_path_factory.mktemp("sound") / "m.gguf"
    write(path, {**tensors, "norm": (T.F32, MATRIX[0])}, metadata)
    return path.read_bytes()


def read_or_refused(path: Path, data: bytes) -> bool:
    """Whether a file is refused; any other error fails the test."""
    path.write_bytes(data)
    try:
        weights = GgufWeights(file := GgufFile.open(path))
        for name in file.tensors:
            weight = weights[name]
            parts = (
                (weight.tensor,)
                if isinstance(weight, Float)
                else (weight.codes, weight.scales, weight.minimums)
            )
            for part in parts:
                if part is not None:
                    part.numpy()
    except BadInput as error:
        message = str(error)
    else:
        return False
    assert message.startswith(str(path))
    assert "\n" not in message
    return True


def test_cut_off_anywhere(path: Path, sound: bytes) -> None:
    assert "cut off" in fault(
        path, model([LLAMA, key("k", 8, text("é"))], []).partition(b"\xa9")[0]
    )
    draw = random.Random(0)
    for length in [*range(64), *draw.sample(range(64, len(sound)), 200)]:
        assert read_or_refused(path, sound[:length])


@pytest.mark.parametrize("change", ["flip", "byte", "number"])
def test_changed_bytes(path: Path, sound: bytes, change: str) -> None:
    draw = random.Random(change)
    changes: dict[str, Callable[[bytearray, int], None]] = {
        "flip": lambda data, at: data.__setitem__(at, data[at] ^ (1 << draw.randrange(8))),
        "byte": lambda data, at: data.__setitem__(at, draw.randrange(256)),
        "number": lambda data, at: data.__setitem__(slice(at, at + 8), draw.randbytes(8)),
    }
    refused = 0
    for _ in range(200):
        data = bytearray(sound)
        changes[change](data, draw.randrange(len(data) - 8))
        refused += read_or_refused(path, bytes(data))
    assert 20 < refused < 200
