"""Shape inference of com.microsoft ops: the shapes that ONNX Runtime's outputs have."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import onnx_ir as ir
import pytest

from rewriter.shapes import infer_model
from tests import ort
from tests.contrib import attention_ms as attention
from tests.contrib import decoder_masked_multi_head_attention as masked
from tests.contrib import embed_layer_normalization as embed
from tests.contrib import multi_head_attention as multi
from tests.contrib import multi_head_buffer as buffered
from tests.contrib import skip_layer_normalization as skip
from tests.contrib import skip_simplified_layer_normalization as simplified
from tests.grouped_query import Case as Grouped
from tests.grouped_query import feeds as grouped_feeds
from tests.grouped_query import node as grouped

Given = tuple[ir.Model, ort.Arrays]


def both(module: Any, case: Any) -> Given:
    model = module.node(case)
    return model, module.feeds(model, case)


def of_norm(module: Any, outputs: tuple[str, ...]) -> Given:
    model = module.node(outputs)
    return model, module.feeds(model)


def of_embedding(case: embed.Case) -> Given:
    return embed.node(case), embed.feeds(case)


def shown_scores() -> Given:
    case = Grouped("chunk", tokens=4, capacity=8, total=12, valid=(12,))
    model = grouped(case, qk_output=1)
    return model, grouped_feeds(model, case)


MODELS: dict[str, Callable[[], Given]] = {"GQA scores": shown_scores}
for module in (attention, masked, multi, buffered):
    for case in module.CASES:
        name = f"{module.__name__.rpartition('.')[2]} {case.name}"
        MODELS[name] = partial(both, module, case)
for embedding in embed.CASES:
    MODELS[f"embed {embedding.name}"] = partial(of_embedding, embedding)
for outputs in skip.OUTPUTS:
    MODELS[f"skip {outputs}"] = partial(of_norm, skip, outputs)
for outputs in simplified.OUTPUTS:
    MODELS[f"simplified {outputs}"] = partial(of_norm, simplified, outputs)


@pytest.mark.parametrize("name", list(MODELS))
def test_inferred_is_what_the_runtime_gives(name: str) -> None:
    model, given = MODELS[name]()
    expected = ort.run(model, given)
    for value in model.graph.outputs:
        value.shape, value.type = None, None
    infer_model(model)
    for value in model.graph.outputs:
        array = expected[value.name or ""]
        assert value.dtype is not None
        assert value.dtype.numpy() == array.dtype
        assert value.shape is not None
        known = [d if isinstance(d, int) else None for d in value.shape]
        assert len(known) == array.ndim
        assert all(d in {None, n} for d, n in zip(known, array.shape, strict=True)), value.shape
        if not name.startswith("multi_head_buffer"):
            assert None not in known, value.shape


def test_the_length_that_comes_at_run_time_stays_open() -> None:
    case = buffered.Case("scores", outputs=4, stored=False)
    model = buffered.node(case)
    model.graph.outputs[3].shape = None
    infer_model(model)
    inferred = {value.name: value.shape for value in model.graph.outputs}["qk"]
    assert inferred is not None
    assert inferred[:3] == (case.batch, buffered.HEADS, case.tokens)
    assert not isinstance(inferred[3], int)
