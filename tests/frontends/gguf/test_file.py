"""Opening GGUF files: metadata, tensors, shards, and how long it takes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader, GGUFWriter
from gguf.constants import GGUFValueType

from frontends.gguf.file import GgufFile
from rewriter.errors import BadInput
from tests.frontends.gguf.files import T, random_blocks, write

MATRIX = np.arange(128, dtype=np.float32).reshape(4, 32)


def test_metadata_of_every_type(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    writer = GGUFWriter(path, "llama")
    given = {
        "u8": (GGUFValueType.UINT8, 200),
        "i8": (GGUFValueType.INT8, -100),
        "u16": (GGUFValueType.UINT16, 60000),
        "i16": (GGUFValueType.INT16, -30000),
        "u32": (GGUFValueType.UINT32, 4000000000),
        "i32": (GGUFValueType.INT32, -2000000000),
        "u64": (GGUFValueType.UINT64, 1 << 63),
        "i64": (GGUFValueType.INT64, -(1 << 62)),
        "f32": (GGUFValueType.FLOAT32, 0.25),
        "f64": (GGUFValueType.FLOAT64, 0.1),
        "yes": (GGUFValueType.BOOL, True),
        "text": (GGUFValueType.STRING, "naïve 日本 🙂"),
        "empty": (GGUFValueType.STRING, ""),
    }
    for key, (kind, value) in given.items():
        writer.add_key_value(key, value, kind)
    lists: dict[str, list[Any]] = {
        "texts": ["a", "", "é"],
        "numbers": [1, -2],
        "reals": [0.5, 1.5],
        "flags": [True],
    }
    for key, values in lists.items():
        writer.add_array(key, values)
    writer.add_tensor("w", MATRIX)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    metadata = GgufFile.open(path).metadata
    assert metadata == {
        "general.architecture": "llama",
        **{key: value for key, (_, value) in given.items()},
        **lists,
    }
    assert type(metadata["yes"]) is bool
    assert type(metadata["f32"]) is float
    assert type(metadata["u64"]) is int


def test_tensors_as_the_gguf_package_reads_them(tmp_path: Path) -> None:
    path = write(
        tmp_path / "m.gguf",
        {
            "a": (T.F32, MATRIX[0, :5]),
            "b": (T.Q4_K, random_blocks(T.Q4_K, (2, 3, 256))),
            "c": (T.F16, MATRIX.astype(np.float16)),
            "d": (T.F32, MATRIX[:1, :1]),
        },
        {"general.alignment": 64},
    )
    file = GgufFile.open(path)
    reader = GGUFReader(path)
    assert [t.name for t in reader.tensors] == list(file.tensors)
    for theirs in reader.tensors:
        ours = file.tensors[theirs.name]
        assert ours.type == theirs.tensor_type
        assert ours.shape == tuple(int(d) for d in reversed(theirs.shape))
        assert ours.offset == theirs.data_offset
        assert ours.nbytes == theirs.n_bytes
        assert ours.raw.tobytes() == theirs.data.tobytes()
    assert file.tensors["b"].shape == (2, 3, 256)
    assert file.tensors["b"].raw.shape == (6, 144)


def test_equal_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frontends.gguf.file._COMPARED", 100)
    other = MATRIX.copy()
    other[-1, -1] = -0.0 if other[-1, -1] else 1.0
    tensors = {"a": MATRIX, "b": MATRIX, "c": other, "d": MATRIX.reshape(8, 16)}
    file = GgufFile.open(
        write(tmp_path / "m.gguf", {name: (T.F32, array) for name, array in tensors.items()})
    )
    assert file.same("a", "b")
    assert not file.same("a", "c")
    assert not file.same("a", "d")
    assert not file.same("a", "x")


def test_a_large_vocabulary_opens_fast(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    tokens = [f"token{i}é" for i in range(262144)]
    write(path, {"w": (T.F32, MATRIX)}, {"tokenizer.ggml.tokens": tokens})
    start = time.process_time()
    file = GgufFile.open(path)
    seconds = time.process_time() - start
    assert file.metadata["tokenizer.ggml.tokens"] == tokens
    assert seconds < 1


# -- shards ----------------------------------------------------------------------------------


def shards(folder: Path, count: int = 3) -> list[Path]:
    """A model of one tensor in each of some shards, in llama.cpp's form."""
    paths = []
    for i in range(count):
        split = {"split.no": i, "split.count": count, "split.tensors.count": count}
        extra = {"llama.block_count": 7} if i == 0 else {}
        path = folder / f"model-{i + 1:05}-of-{count:05}.gguf"
        paths.append(write(path, {f"w{i}": (T.F32, MATRIX + i)}, {**split, **extra}))
    return paths


@pytest.mark.parametrize("given", [0, 1, 2])
def test_shards_are_one_file(tmp_path: Path, given: int) -> None:
    paths = shards(tmp_path)
    file = GgufFile.open(paths[given])
    assert file.path == paths[0]
    assert file.metadata["llama.block_count"] == 7
    assert list(file.tensors) == ["w0", "w1", "w2"]
    for i, tensor in enumerate(file.tensors.values()):
        assert tensor.path == paths[i]
        assert tensor.raw.tobytes() == (MATRIX + i).tobytes()


def test_shards_written_by_the_gguf_package(tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "m.gguf", "llama", split_max_tensors=2)
    for i in range(5):
        writer.add_tensor(f"w{i}", MATRIX + i)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = GgufFile.open(tmp_path / "m-00002-of-00003.gguf")
    assert sorted(file.tensors) == [f"w{i}" for i in range(5)]


def test_faults_of_shards(tmp_path: Path) -> None:
    paths = shards(tmp_path)
    renamed = tmp_path / "other.gguf"
    renamed.write_bytes(paths[1].read_bytes())
    with pytest.raises(BadInput, match=r"shard 2 of 3, which its name does not say"):
        GgufFile.open(renamed)
    third = paths[2].read_bytes()
    paths[2].unlink()
    with pytest.raises(BadInput, match=r"model-00003-of-00003\.gguf is missing; download all"):
        GgufFile.open(paths[0])
    paths[2].write_bytes(paths[1].read_bytes())
    with pytest.raises(BadInput, match=r"says it is shard 2 of 3, and is named as 3 of 3"):
        GgufFile.open(paths[0])
    split = {"split.no": 2, "split.count": 3, "split.tensors.count": 3}
    write(paths[2], {"w0": (T.F32, MATRIX)}, split)
    with pytest.raises(BadInput, match=r"tensor 'w0' is also in model-00001-of-00003\.gguf"):
        GgufFile.open(paths[0])
    write(paths[2], {"w2": (T.F32, MATRIX), "w3": (T.F32, MATRIX)}, split)
    with pytest.raises(BadInput, match=r"hold 4 tensors of 3"):
        GgufFile.open(paths[0])
    paths[2].write_bytes(third[:-1])
    with pytest.raises(BadInput, match=r"00003-of-00003\.gguf: the file is cut off: tensor 'w2'"):
        GgufFile.open(paths[0])


@pytest.mark.parametrize("number", [5, 3])
def test_a_shard_beyond_the_count(tmp_path: Path, number: int) -> None:
    path = tmp_path / f"m-{number + 1:05}-of-00003.gguf"
    write(path, {"w": (T.F32, MATRIX)}, {"split.no": number, "split.count": 3})
    with pytest.raises(BadInput, match="name all shards as they were made"):
        GgufFile.open(path)
