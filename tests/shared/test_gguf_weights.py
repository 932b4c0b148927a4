"""Every tensor of the shared GGUF files is what the ``gguf`` package makes of it, bit for bit."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from gguf import GGUFReader, quants

from frontends.gguf.file import GgufFile
from frontends.gguf.weights import GgufWeights
from tests.frontends.gguf.files import values_of
from tests.shared import SHARED, needs_shared

pytestmark = needs_shared

FILES = sorted((SHARED / "models").glob("*/*.gguf"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_weights_are_exact(path: Path) -> None:
    file = GgufFile.open(path)
    reader = GGUFReader(path)
    weights = GgufWeights(file)
    assert len(reader.tensors) == len(file.tensors) > 20
    for tensor in reader.tensors:
        reference = quants.dequantize(tensor.data, tensor.tensor_type)
        values = values_of(weights[tensor.name])
        assert values.size == math.prod(values.shape) == tensor.n_elements
        assert values.tobytes() == reference.tobytes(), tensor.name
    assert not weights.unused()
    assert all(row.error == 0 for row in weights.kinds())


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_metadata_is_read_whole(path: Path) -> None:
    file = GgufFile.open(path)
    reader = GGUFReader(path)
    keys = [key for key in reader.fields if not key.startswith("GGUF.")]
    assert keys == list(file.metadata)
    assert {key: reader.fields[key].contents() for key in keys} == file.metadata


def test_all_types_of_the_files_are_seen() -> None:
    """Floats, 4, 6 and 8 bits."""
    assert len(FILES) >= 12
    types = {t.type.name for path in FILES for t in GgufFile.open(path).tensors.values()}
    assert types == {"F32", "Q4_0", "Q4_K", "Q6_K", "Q8_0"}
