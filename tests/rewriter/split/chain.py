"""Runs the parts of a model one after the other, each a session of its own, in plain ORT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rewriter.parity.settings import EXACT

Arrays = dict[str, npt.NDArray[Any]]

_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(int64)": np.int64,
          "tensor(int32)": np.int32, "tensor(bool)": np.bool_}  # fmt: skip

SIZES = {"batch": 1, "seq": 4, "past": 5, "total": 9, " + ": 9}
_WORDS = ("total", " + ", "past", "seq", "batch")
_TOKENS = frozenset({"input_ids", "position_ids", "inputs_embeds"})


def session(path: Path, *, optimize: bool = False) -> Any:
    import onnxruntime as ort

    options = ort.SessionOptions()
    levels = ort.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimize else levels.ORT_DISABLE_ALL
    options.log_severity_level = 3
    for key, value in ({} if optimize else EXACT).items():
        options.add_session_config_entry(key, value)
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def run(
    paths: Sequence[Path], feeds: Mapping[str, npt.NDArray[Any]], *, optimize: bool = False
) -> Arrays:
    """All that the graphs compute; each is given what those before it computed."""
    known = dict(feeds)
    found: Arrays = {}
    for path in paths:
        one = session(path, optimize=optimize)
        given = {i.name: known[i.name] for i in one.get_inputs()}
        results = one.run(None, given)
        found |= {o.name: r for o, r in zip(one.get_outputs(), results, strict=True)}
        known |= found
    return found


def feeds(path: Path, seed: int = 0) -> Arrays:
    """Inputs of a graph: random tokens, and random caches of which some rows are filled.

    Dims that are free get :data:`SIZES`, by what their name says.
    """
    draw = np.random.default_rng(seed)
    inputs = {i.name: (_shape(i.shape), _TYPES[i.type]) for i in session(path).get_inputs()}
    tokens = next((s[1] for n, (s, _) in inputs.items() if n in _TOKENS), 0)
    made: Arrays = {}
    for name, (shape, dtype) in inputs.items():
        array: npt.NDArray[Any]
        if name == "attention_mask":
            array = np.arange(shape[-1]) < min(SIZES["past"] + tokens, shape[-1])
        elif name == "position_ids":
            array = np.arange(SIZES["past"], SIZES["past"] + tokens)
        elif np.issubdtype(dtype, np.floating):
            array = draw.standard_normal(shape)
        else:
            array = draw.integers(0, 2 if dtype is np.bool_ else 16, shape)
        made[name] = np.broadcast_to(array, shape).astype(dtype)
    return made


def _shape(dims: Sequence[int | str]) -> list[int]:
    return [
        d if isinstance(d, int) else next(SIZES[word] for word in _WORDS if word in d) for d in dims
    ]


def same(expected: Mapping[str, npt.NDArray[Any]], found: Mapping[str, npt.NDArray[Any]]) -> None:
    """Every output is equal bit for bit, and is numbers that say something."""
    for name, reference in expected.items():
        assert np.isfinite(reference).all()
        assert reference.any()
        assert (reference.dtype, reference.shape) == (found[name].dtype, found[name].shape)
        assert reference.tobytes() == found[name].tobytes(), name
