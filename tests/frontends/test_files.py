"""Which file is read, whatever its format."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import frontends
from rewriter.errors import BadInput


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes on Windows")
@pytest.mark.parametrize("ending", ["onnx", "gguf"])
def test_a_pipe_is_not_waited_for(ending: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / f"m.{ending}")
    with pytest.raises(BadInput, match="is a pipe or a device"):
        frontends.read(tmp_path / f"m.{ending}")
