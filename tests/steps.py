"""Drives a decoder as a runtime does: prompts and single tokens, the cache fed back.

The oracle for ``rewriter.generate``, of which it uses nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rewriter.parity.settings import EXACT

Array = npt.NDArray[Any]


class Steps:
    """A decoder file on ONNX Runtime's CPU with exact settings.

    The cache grows, or is a buffer where the model's inputs are of fixed size.

    Args:
        model: the file.
        sizes: of dims of the cache that are symbols, such as the size of a head.
    """

    def __init__(self, model: Path, sizes: Mapping[str, int] | None = None) -> None:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 3
        for key, value in EXACT.items():
            options.add_session_config_entry(key, value)
        self._session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self._shapes = {i.name: i.shape for i in self._session.get_inputs()}
        self._empty = {
            name: np.zeros(
                [
                    d if isinstance(d, int) else (sizes or {}).get(d, int(j == 0))
                    for j, d in enumerate(shape)
                ],
                "f4",
            )
            for name, shape in self._shapes.items()
            if name.startswith("past")
        }
        self.restart()

    def restart(self) -> None:
        """Forget every token."""
        self._cache, self._done = self._empty, 0

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

    def greedy(self, prompt: list[int], count: int) -> tuple[list[int], Array]:
        """The likeliest tokens after a prompt, and the logits (T, V) of all that were read."""
        ids, found = list(prompt), [self(np.array([prompt]))[0]]
        for _ in range(count - 1):
            ids.append(int(found[-1][-1].argmax()))
            found.append(self(np.array([ids[-1:]]))[0])
        ids.append(int(found[-1][-1].argmax()))
        return ids[len(prompt) :], np.concatenate(found)

    def take(self, other: Steps) -> None:
        """Go on where another graph of the same decoder is."""
        self._cache, self._done = other._cache, other._done
