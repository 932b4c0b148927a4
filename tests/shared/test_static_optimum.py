"""Optimum's decoder with a cache of fixed size: placed whole, and the tokens of the original."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from rewriter.cli import main
from tests.quick import slow_but
from tests.shared import needs_shared
from tests.shared.files import ONNX
from tests.static_steps import Right, token_by_token

pytestmark = needs_shared

SOURCE = ONNX / "optimum" / "llama_with_past"
STEPS = 16


@pytest.mark.parametrize(("seq", "length"), slow_but([(8, 8)], [(8, 8), (4, 7), (8, 1)]))
def test_tokens_of_the_original(seq: int, length: int, tmp_path: Path) -> None:
    out, report = tmp_path / "out", tmp_path / "report.json"
    words = [str(SOURCE / "model.onnx"), "--ep", "qnn@2.7.0", "--static", "both", "-o", str(out)]
    words += ["--seq", str(seq), "--max-seq-len", "24", "--report", str(report)]
    assert main([*words, "--parity", "device"]) == 0
    graphs = json.loads(report.read_text(encoding="utf-8"))["graphs"]
    for graph in graphs:
        placement = graph["placement"]
        assert (placement["on_cpu"], placement["partitions"], placement["full"]) == (0, 1, True)
        assert graph["parity"]["model"]["ok"]
        assert graph["parity"]["device"]["ok"]
    assert len(list(out.glob("*.data"))) == 1

    original = tmp_path / "original.onnx"
    shutil.copy(SOURCE / "model.onnx", original)
    row = np.load(SOURCE / "golden_hf.npz")["input_ids"][0, :length].tolist()
    for _ in range(STEPS):
        row.append(int(token_by_token(original, row)[-1].argmax()))
    expected = token_by_token(original, row)
    (logits,) = Right(out)([row[:length]], [row[length:]])
    assert np.abs(logits - expected).max() < 1e-4 * expected.std()
    assert logits[length - 1 : -1].argmax(axis=-1).tolist() == row[length:]
