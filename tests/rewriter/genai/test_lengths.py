"""The stage between what onnxruntime-genai feeds and what graphs of fixed sizes take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from rewriter.genai.graphs import Port
from rewriter.genai.lengths import lengths_graph
from tests.ort import run

NAMES = {"input_ids": "ids", "attention_mask": "mask", "position_ids": "positions"}
I32, I64, F32 = ir.DataType.INT32, ir.DataType.INT64, ir.DataType.FLOAT
ROWS, WINDOW, PAD = 16, 4, 9


def _step(columns: int, dtype: ir.DataType = I64, ids: ir.DataType = I64) -> dict[str, Port]:
    return {
        "input_ids": Port(ids, (1, WINDOW)),
        "attention_mask": Port(dtype, (1, columns)),
        "position_ids": Port(I64, (1, WINDOW)),
    }


def _driven(model: ir.Model, steps: Sequence[Sequence[int]]) -> list[dict[str, Any]]:
    """What comes of each step, with what is counted fed back."""
    import onnxruntime as ort

    session = ort.InferenceSession(ir.to_proto(model).SerializeToString())
    names = [output.name for output in session.get_outputs()]
    found: list[dict[str, Any]] = []
    kept: dict[str, Any] = {}
    for ids in steps:
        feeds = {"ids": np.array([ids]), **kept}
        made = dict(zip(names, session.run(None, feeds), strict=True))
        kept = {"tokens_before": made.pop("tokens_after")}
        found.append({name: array[0].tolist() for name, array in made.items()})
    return found


def _ones(count: int) -> list[int]:
    return [1] * count + [0] * (ROWS - count)


def test_pads_behind_the_tokens_are_written_over() -> None:
    """A prompt of two windows, tokens, a second prompt of one that is not full, a token."""
    model = lengths_graph("left", _step(ROWS), NAMES, ROWS, PAD)
    prompt = [[1, 2, 3, 4], [5, 9, 6, 9]]  # the first 9 was said
    found = _driven(model, [*prompt, [7], [9], [1, 2, 9, 9], [3]])
    totals = [4, 8, 8, 9, 13, 12]
    assert [step["mask"] for step in found] == [_ones(total) for total in totals]
    assert [step["positions"] for step in found] == [
        [0, 1, 2, 3], [4, 5, 6, 7], [7], [8], [9, 10, 11, 12], [11],
    ]  # fmt: skip


def test_a_prompt_of_pads_alone_is_one_token() -> None:
    model = lengths_graph("left", _step(ROWS), NAMES, ROWS, PAD)
    found = _driven(model, [[9, 9, 9, 9], [1]])
    assert found[1]["positions"] == [1]


def test_pads_in_front_of_the_tokens_stay_and_are_hidden() -> None:
    """The newest rows are the last; a second prompt leaves its pads between."""
    model = lengths_graph("right", _step(ROWS + WINDOW), NAMES, ROWS, PAD)
    found = _driven(model, [[9, 9, 1, 2], [3, 9, 4, 5], [6], [9], [9, 9, 9, 7], [8]])
    said = [0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 1, 1]
    ends = [4, 8, 9, 10, 14, 15]
    for step, end in zip(found, ends, strict=True):
        columns = ROWS + len(step["positions"])
        assert step["mask"] == [0] * (columns - end) + said[:end]
    assert [step["positions"] for step in found] == [
        [0, 0, 0, 1], [2, 3, 4, 5], [6], [7], [7, 7, 7, 8], [9],
    ]  # fmt: skip


def test_the_oldest_rows_move_out() -> None:
    model = lengths_graph("right", _step(ROWS + WINDOW), NAMES, ROWS, PAD)
    found = _driven(model, [[9, 1, 2, 3], *[[1, 2, 3, 4]] * 3, [5], [6]])
    assert found[3]["mask"] == [0] * 4 + [0] + [1] * 15
    assert found[4]["mask"] == [0] + [1] * 16
    assert found[5]["mask"] == [1] * 17


@pytest.mark.parametrize("alignment", ["left", "right"])
@pytest.mark.parametrize("dtype", [I32, I64, F32])
@pytest.mark.parametrize("ids", [I32, I64])
def test_types_are_those_of_the_graphs(
    alignment: str, dtype: ir.DataType, ids: ir.DataType
) -> None:
    model = lengths_graph(alignment, _step(ROWS, dtype, ids), NAMES, ROWS, PAD)
    assert model.graph.inputs[0].dtype == ids
    made = run(model, {"ids": np.array([[1, 2]], ids.numpy())})
    assert made["mask"].dtype == dtype.numpy()
    assert made["positions"].dtype == np.int64
    assert made["mask"].sum() == 2


def test_a_graph_without_positions_gets_none() -> None:
    step = _step(ROWS)
    del step["position_ids"]
    model = lengths_graph("left", step, NAMES, ROWS, PAD)
    assert [value.name for value in model.graph.outputs] == ["tokens_after", "mask"]
