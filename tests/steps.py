"""Drives a decoder as a runtime does: prompts and single tokens, the cache fed back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rewriter.parity.settings import EXACT

Array = npt.NDArray[Any]


class Steps:
    """A decoder file on ONNX Runtime's CPU with exact settings.

    The cache grows, or is a buffer where the model's inputs are of fixed size.
    """

    def __init__(self, model: Path) -> None:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 3
        for key, value in EXACT.items():
            options.add_session_config_entry(key, value)
        self._session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self._shapes = {i.name: i.shape for i in self._session.get_inputs()}
        self._cache = {
            name: np.zeros(
                [d if isinstance(d, int) else int(j == 0) for j, d in enumerate(shape)], "f4"
            )
            for name, shape in self._shapes.items()
            if name.startswith("past")
        }
        self._done = 0

    def __call__(self, ids: Array) -> Array:
        """Logits (1, S, V) of the next tokens (1, S)."""
        count = ids.shape[1]
        total = self._done + count
        width = self._shapes["attention_mask"][1]
        mask = np.arange(width if isinstance(width, int) else total) < total
        feeds = {
            "input_ids": ids,
            "attention_mask": mask[None].astype(np.int64),
            "position_ids": np.arange(self._done, total)[None],
            **self._cache,
        }
        found = self._session.run(None, {k: v for k, v in feeds.items() if k in self._shapes})
        named = dict(zip((o.name for o in self._session.get_outputs()), found, strict=True))
        logits: Array = named.pop("logits")
        self._cache = {k.replace("present", "past_key_values"): v for k, v in named.items()}
        self._done = total
        return logits

    def take(self, other: Steps) -> None:
        """Go on where another graph of the same decoder is."""
        self._cache, self._done = other._cache, other._done
