"""Equivalent graphs by what they cost: by the runtime's own count, or by what they store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from rewriter import packing
from rewriter.cli import main
from tests.graphs import Builder
from tests.htp import needs_qnn

F32, K, N = ir.DataType.FLOAT, 512, 1024


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """One product twice: of floats, and of four bits in blocks."""
    folder = tmp_path_factory.mktemp("costs")
    rng = np.random.default_rng(0)
    codes = rng.integers(-7, 8, (K, N)).astype(np.int8)
    scales = rng.uniform(0.01, 0.02, (K // 32, N)).astype(np.float32)
    for name in ("floats", "packed"):
        b = Builder()
        x = b.input("x", F32, (1, 8, K))
        if name == "floats":
            weight = codes * np.repeat(scales, 32, axis=0)
            y = b.op("MatMul", x, b.const("w", weight), name="y")
        else:
            stored = b.const("codes", packing.matrix_to_blocks(codes, 32, 4))
            y = b.blocks(x, stored, b.const("scales", np.ascontiguousarray(scales.T)), "y", K, N)
        ir.save(b.model([(y, F32, (1, 8, N))]), folder / f"{name}.onnx")
    return [str(folder / f"{name}.onnx") for name in ("floats", "packed")]


def ranking(words: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> dict[str, Any]:
    assert main(["audit", *words, "--cost", "--json"]) == code
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


def test_without_a_runtime_by_what_is_stored(
    pair: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    told = ranking(pair, capsys)
    first, second = told["ranking"]
    assert (first["file"], second["file"]) == (pair[1], pair[0])
    assert first["bytes_stored"] == K * N // 2 + K // 32 * N * 4
    assert second["bytes_moved_estimated"] == 4 * (K * N + 8 * K + 8 * N)
    assert first["placement"] is None
    assert told["missing"] == ["no runtime was asked for placement and partitions: --ep qnn"]


@needs_qnn
def test_by_what_the_runtime_counts(pair: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    told = ranking([*pair, "--ep", "qnn"], capsys)
    first, second = told["ranking"]
    assert (first["file"], second["file"]) == (pair[1], pair[0])
    # QNN reads the packed product as it is stored, and keeps floats in 16 bits.
    assert first["ddr"]["read_total_bytes"] == pytest.approx(K * N // 2 + 4 * K * N // 32, rel=0.08)
    assert second["ddr"]["read_total_bytes"] == pytest.approx(2 * K * N, rel=0.08)
    assert (first["placement"]["on_ep"], first["placement"]["partitions"]) == (1, 1)
    assert told["by"] == (
        "nodes left to the CPU, then bytes that the runtime counts, partitions, nodes"
    )


def test_another_function_is_no_cheaper_one(
    pair: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = ir.load(pair[1])
    scales = model.graph.initializers["scales"]
    assert scales.const_value is not None
    scales.const_value = ir.tensor(scales.const_value.numpy() * np.float32(1.01), name="scales")
    ir.save(model, tmp_path / "other.onnx")
    told = ranking([pair[0], str(tmp_path / "other.onnx")], capsys, code=4)
    assert [one["same_function"] for one in told["ranking"]] == [False, True]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--cost"], "--cost ranks two or more models"),
        ([], "give two models to compare, or one and --ep"),
        (["x.onnx", "--ep", "qnn"], "--ep asks about one model"),
        (["--runtime", "python"], "--runtime says whose environment --ep asks"),
    ],
)
def test_what_does_not_go_together(
    words: list[str], says: str, pair: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", pair[0], *words]) == 2
    assert says in capsys.readouterr().err
