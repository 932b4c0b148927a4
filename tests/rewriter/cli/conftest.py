"""What tests of the command line start from: a small model, and an empty folder to work in."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
import pytest

from tests.decoders import Decoder, decoder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A small decoder, alone in a folder."""
    path = tmp_path / "in" / "model.onnx"
    path.parent.mkdir()
    ir.save(decoder(Decoder(layers=1)), path)
    return path


@pytest.fixture
def away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the command works in, empty so that what it leaves is seen."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder
