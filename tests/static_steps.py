"""Drives graphs with a cache of fixed size by hand, and what they were made of token by token."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Row = Sequence[int]


def session(path: Path) -> Any:
    """A session on ONNX Runtime's CPU that computes what the file says."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def run(model: Any, feeds: dict[str, Array]) -> dict[str, Array]:
    """Outputs by name; inputs that the model does not have are left out."""
    names = {value.name for value in model.get_inputs()}
    found = model.run(None, {k: v for k, v in feeds.items() if k in names})
    return {o.name: array for o, array in zip(model.get_outputs(), found, strict=True)}


def token_by_token(path: Path, row: Row) -> Array:
    """Logits (tokens, V) of one sequence by a model whose cache grows."""
    model = session(path)
    cache = {
        v.name: np.zeros(
            (1, v.shape[1], 0, v.shape[3] if isinstance(v.shape[3], int) else 16), "f4"
        )
        for v in model.get_inputs()
        if v.name.startswith("past")
    }
    logits = []
    for done, token in enumerate(row):
        found = run(model, {
            "input_ids": np.array([[token]]),
            "attention_mask": np.ones((1, done + 1), np.int64),
            "position_ids": np.array([[done]]),
            **cache,
        })  # fmt: skip
        logits.append(found.pop("logits")[0, 0])
        cache = _fed_back(found)
    return np.stack(logits)


class Right:
    """A pair of graphs whose caches hold the newest rows last; pads are in front."""

    def __init__(self, folder: Path) -> None:
        self.prefill, self.decode = (session(folder / f"{n}.onnx") for n in ("prefill", "decode"))
        shapes = {v.name: v.shape for v in self.prefill.get_inputs()}
        self.seq = shapes["input_ids"][1]
        self.cache = {n: np.zeros(s, "f4") for n, s in shapes.items() if n.startswith("past")}
        self.rows = next(iter(self.cache.values())).shape[2]

    def __call__(self, prompts: Sequence[Row], then: Sequence[Row]) -> list[Array]:
        """Logits of each row's prompt and of the tokens after it."""
        chunks = -(-max(map(len, prompts)) // self.seq)
        width = chunks * self.seq
        ids = np.array([[0] * (width - len(row)) + list(row) for row in prompts])
        found = []
        for chunk in range(chunks):
            part = ids[:, chunk * self.seq : (chunk + 1) * self.seq]
            end = [len(row) - width + (chunk + 1) * self.seq for row in prompts]
            found.append(self.step(self.prefill, part, np.array(end)))
        read = np.concatenate(found, axis=1)
        logits = [[read[b, width - len(row) :]] for b, row in enumerate(prompts)]
        for step, tokens in enumerate(zip(*then, strict=True)):
            end = [len(row) + step + 1 for row in prompts]
            one = self.step(self.decode, np.array(tokens)[:, None], np.array(end))
            for b, row in enumerate(logits):
                row.append(one[b])
        return [np.concatenate(row) for row in logits]

    def step(self, model: Any, ids: Array, end: Array) -> Array:
        """One call; ``end`` tokens of each row are known after it (less than 1 if all are pads)."""
        width = self.rows + ids.shape[1]
        column = np.arange(width)[None]
        places = end[:, None] - ids.shape[1] + np.arange(ids.shape[1])[None]
        outputs = run(model, {
            "input_ids": ids,
            "attention_mask": (column >= width - end[:, None]).astype(np.int64),
            "position_ids": np.maximum(places, 0),
            **self.cache,
        })  # fmt: skip
        logits: Array = outputs.pop("logits")
        self.cache = _fed_back(outputs)
        return logits


class Left:
    """A pair of graphs that write at ``total - S``; pads are behind and written over."""

    def __init__(self, folder: Path) -> None:
        self.prefill, self.decode = (session(folder / f"{n}.onnx") for n in ("prefill", "decode"))
        shapes = {v.name: v.shape for v in self.prefill.get_inputs()}
        self.seq = shapes["input_ids"][1]
        self.cache = {n: np.zeros(s, "f4") for n, s in shapes.items() if n.startswith("past")}
        self.rows = next(iter(self.cache.values())).shape[2]

    def __call__(self, prompts: Sequence[Row], then: Sequence[Row]) -> list[Array]:
        """Logits of each row's prompt and of the tokens after it."""
        last = self.rows - self.seq
        logits: list[dict[int, Array]] = [{} for _ in prompts]
        for first in range(0, max(map(len, prompts)), self.seq):
            starts = [min(first, len(row), last) for row in prompts]
            padded = [[*row, *[0] * self.seq] for row in prompts]
            ids = np.array([row[s : s + self.seq] for row, s in zip(padded, starts, strict=True)])
            found = self.step(self.prefill, ids, np.array(starts))
            for b, start in enumerate(starts):
                logits[b] |= {start + i: found[b, i] for i in range(self.seq)}
        for step, tokens in enumerate(zip(*then, strict=True)):
            starts = [len(row) + step for row in prompts]
            one = self.step(self.decode, np.array(tokens)[:, None], np.array(starts))
            for b, start in enumerate(starts):
                logits[b][start] = one[b, 0]
        counts = [len(row) + len(more) for row, more in zip(prompts, then, strict=True)]
        return [np.stack([row[i] for i in range(n)]) for row, n in zip(logits, counts, strict=True)]

    def step(self, model: Any, ids: Array, starts: Array) -> Array:
        """One call that writes at ``starts``."""
        ones = np.arange(self.rows)[None] < starts[:, None] + ids.shape[1]
        outputs = run(model, {
            "input_ids": ids,
            "attention_mask": ones.astype(np.int64),
            "position_ids": starts[:, None] + np.arange(ids.shape[1])[None],
            **self.cache,
        })  # fmt: skip
        logits: Array = outputs.pop("logits")
        self.cache = _fed_back(outputs)
        return logits


def _fed_back(outputs: dict[str, Array]) -> dict[str, Array]:
    return {name.replace("present", "past_key_values"): array for name, array in outputs.items()}
