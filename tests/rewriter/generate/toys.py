"""A decoder of one layer in every cache layout, whole or in parts, and its formula in numpy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from rewriter.cache_layout import CacheLayout
from tests.graphs import Builder

Array = npt.NDArray[Any]
WORDS, HEADS, SIZE, POSITIONS = 24, 2, 8, 40
WIDTH = HEADS * SIZE
F32, I64 = ir.DataType.FLOAT, ir.DataType.INT64
PAST = tuple(f"past_key_values.0.{what}" for what in ("key", "value"))
PRESENT = tuple(f"present.0.{what}" for what in ("key", "value"))

_RNG = np.random.default_rng(8)
WEIGHTS = {
    name: _RNG.standard_normal(shape).astype(np.float32)
    for name, shape in {
        "embed": (WORDS, WIDTH), "position": (POSITIONS, WIDTH), "q": (WIDTH, WIDTH),
        "k": (WIDTH, WIDTH), "v": (WIDTH, WIDTH), "o": (WIDTH, WIDTH), "head": (WIDTH, WORDS),
    }.items()
}  # fmt: skip


def formula(ids: Array) -> Array:
    """Logits (B, T, V) of whole sequences, in double precision."""
    w = {name: array.astype(np.float64) for name, array in WEIGHTS.items()}
    batch, tokens = ids.shape
    x = w["embed"][ids] + w["position"][np.arange(tokens)]
    q, k, v = (
        (x @ w[name]).reshape(batch, tokens, HEADS, SIZE).swapaxes(1, 2) for name in ("q", "k", "v")
    )
    scores = q @ k.swapaxes(2, 3) / WIDTH + np.triu(np.full((tokens, tokens), -np.inf), 1)
    shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
    mixed = (shares / shares.sum(axis=-1, keepdims=True)) @ v
    y = x + mixed.swapaxes(1, 2).reshape(batch, tokens, WIDTH) @ w["o"]
    found: Array = y @ w["head"]
    return found


def greedy(prompt: list[int], count: int) -> list[int]:
    """The likeliest tokens after a prompt, by the formula."""
    ids = list(prompt)
    for _ in range(count):
        ids.append(int(formula(np.array([ids]))[0, -1].argmax()))
    return ids[len(prompt) :]


@dataclass(frozen=True)
class Toy:
    """What to build.

    Attributes:
        alignment: of the cache; ``none`` for a graph without one, of which every call is whole.
        tokens: S; free where None.
        rows: C, where the alignment has it.
        last: logits of the last token only.
        lengths: ``write_indices`` and ``nonpad_kv_seqlen`` instead of a mask (left only).
    """

    alignment: Literal["none", "growing", "left", "right"] = "growing"
    tokens: int | None = None
    rows: int = 16
    batch: int | None = 1
    last: bool = False
    lengths: bool = False
    mask_dtype: ir.DataType = I64
    note: bool = True

    def save(self, folder: Path, name: str, *, parts: bool = False) -> None:
        """Write the graph, or its embedding, layers and head."""
        folder.mkdir(exist_ok=True)
        if not parts:
            b = Builder()
            logits, presents = self._layers(b, self._embedding(b))
            self._write(b, [(self._head(b, logits), self._logits()), *presents], folder / name)
            return
        hidden = (self._batch, self._tokens, WIDTH)
        b = Builder()
        x = self._embedding(b)
        self._write(b, [(x, hidden)], folder / f"{name}-1-embedding", note=False)
        b = Builder()
        y, presents = self._layers(b, b.input("hidden", F32, hidden))
        self._write(b, [(y, hidden), *presents], folder / f"{name}-2-layers")
        b = Builder()
        logits = self._head(b, b.input("mixed", F32, hidden))
        self._write(b, [(logits, self._logits())], folder / f"{name}-3-head", note=False)

    @property
    def _batch(self) -> int | str:
        return self.batch or "batch_size"

    @property
    def _tokens(self) -> int | str:
        return self.tokens or "sequence_length"

    def _logits(self) -> tuple[int | str, ...]:
        return (self._batch, 1 if self.last else self._tokens, WORDS)

    def _embedding(self, b: Builder) -> ir.Value:
        ids = b.input("input_ids", I64, (self._batch, self._tokens))
        places = b.input("position_ids", I64, (self._batch, self._tokens))
        words, where = (b.const(n, WEIGHTS[n]) for n in ("embed", "position"))
        found = b.op("Gather", words, ids, name="words")
        return b.op("Add", found, b.op("Gather", where, places, name="places"), name="hidden")

    def _layers(self, b: Builder, x: ir.Value) -> tuple[ir.Value, list[tuple[ir.Value, Any]]]:
        q, k, v = (self._heads(b, x, name) for name in ("q", "k", "v"))
        seen, presents = [k, v], []
        first = self._first(b) if self.alignment == "left" else None
        if self.alignment != "none":
            pairs = [self._present(b, i, new, first) for i, new in enumerate((k, v))]
            seen = [pair[0] for pair in pairs]
            after = "total_sequence_length" if self.alignment == "growing" else self.rows
            shape = (self._batch, HEADS, after, SIZE)
            presents = [(present, shape) for _, present in pairs]
        turned = b.op("Transpose", seen[0], name="turned", perm=[0, 1, 3, 2])
        scores = b.op("MatMul", q, turned, name="scores")
        scaled = b.op("Div", scores, b.const("scale", np.float32(WIDTH)), name="scaled")
        hidden = b.op("Where", self._sight(b, q, seen[0], first), scaled,
                      b.const("never", np.float32(-1e9)), name="hidden_scores")  # fmt: skip
        shares = b.op("Softmax", hidden, name="shares", axis=-1)
        back = b.op("Transpose", b.op("MatMul", shares, seen[1], name="values"), name="back",
                    perm=[0, 2, 1, 3])  # fmt: skip
        flat = b.op("Reshape", back, b.const("flat", np.array([0, 0, WIDTH])), name="flat_values")
        out = b.op("MatMul", flat, b.const("o", WEIGHTS["o"]), name="out")
        return b.op("Add", x, out, name="mixed"), presents

    def _heads(self, b: Builder, x: ir.Value, name: str) -> ir.Value:
        y = b.op("MatMul", x, b.const(name, WEIGHTS[name]), name=f"{name}_flat")
        shape = b.const(f"{name}_shape", np.array([0, 0, HEADS, SIZE]))
        split = b.op("Reshape", y, shape, name=f"{name}_split")
        return b.op("Transpose", split, name=f"{name}_heads", perm=[0, 2, 1, 3])

    def _present(
        self, b: Builder, i: int, new: ir.Value, first: ir.Value | None
    ) -> tuple[ir.Value, ir.Value]:
        """What queries see, and the cache they leave."""
        before = "past_sequence_length" if self.alignment == "growing" else self.rows
        past = b.input(PAST[i], F32, (self._batch, HEADS, before, SIZE))
        if self.alignment == "left":
            kept = b.op("TensorScatter", past, new, first, name=PRESENT[i], axis=2)
            return kept, kept
        grown = b.op("Concat", past, new, name=f"{PRESENT[i]}/all", axis=2)
        if self.alignment == "growing":
            return grown, b.op("Identity", grown, name=PRESENT[i])
        bounds = [b.const(f"{n}{i}", np.array([v])) for n, v in
                  (("start", -self.rows), ("end", 1 << 30), ("axis", 2))]  # fmt: skip
        return grown, b.op("Slice", grown, *bounds, name=PRESENT[i])

    def _first(self, b: Builder) -> ir.Value:
        """The row of the first new token (B)."""
        if self.lengths:
            return b.input("write_indices", I64, (self._batch,))
        mask = b.input("attention_mask", self.mask_dtype, (self._batch, self.rows))
        ones = b.op("Cast", mask, name="ones", to=7)
        total = b.op("ReduceSum", ones, b.const("columns", np.array([1])), name="total", keepdims=0)
        return b.op("Sub", total, b.const("new", np.array([self.tokens])), name="first")

    def _sight(
        self, b: Builder, query: ir.Value, keys: ir.Value, first: ir.Value | None
    ) -> ir.Value:
        """Which keys (.., S, K) each query sees."""
        if first is not None:
            at = np.arange(self.tokens or 0)[None, None, :, None]
            four = b.op("Reshape", first, b.const("c", np.array([-1, 1, 1, 1])), name="f4")
            places = b.op("Add", four, b.const("at", at), name="query_rows")
            rows = b.const("key_rows", np.arange(self.rows)[None, None, None])
            seen = b.op("LessOrEqual", rows, places, name="seen")
            if not self.lengths:
                return seen
            valid = b.input("nonpad_kv_seqlen", I64, (self._batch,))
            four = b.op("Reshape", valid, b.const("c2", np.array([-1, 1, 1, 1])), name="v4")
            return b.op("And", seen, b.op("Less", rows, four, name="valid"), name="both")
        # row i of n queries sees the first K - n + i + 1 keys: a triangle at the end of K columns
        whole = np.tril(np.ones((POSITIONS * 2, POSITIONS * 2), bool))
        length = b.op("Shape", keys, name="key_count", start=2, end=3)
        every = b.op("Slice", b.const("triangle", whole), b.const("zero", np.array([0])), length,
                     b.const("one", np.array([1])), name="columns_of")  # fmt: skip
        queries = b.op("Shape", query, name="query_count", start=2, end=3)
        start = b.op("Sub", length, queries, name="first_query")
        seen = b.op("Slice", every, start, length, b.const("rows_axis", np.array([0])), name="tri")
        if self.alignment == "none":
            return seen
        columns = "total_sequence_length" if self.alignment == "growing" else (
            self.rows + (self.tokens or 0))  # fmt: skip
        mask = b.input("attention_mask", self.mask_dtype, (self._batch, columns))
        valid = b.op("Unsqueeze", b.op("Cast", mask, name="valid", to=9),
                     b.const("middle", np.array([1, 2])), name="valid4")  # fmt: skip
        return b.op("And", seen, valid, name="both")

    def _head(self, b: Builder, y: ir.Value) -> ir.Value:
        if self.last:
            bounds = [b.const(f"last_{n}", np.array([v])) for n, v in
                      (("start", -1), ("end", 1 << 30), ("axis", 1))]  # fmt: skip
            y = b.op("Slice", y, *bounds, name="last_mixed")
        return b.op("MatMul", y, b.const("head", WEIGHTS["head"]), name="logits")

    def _write(
        self, b: Builder, outputs: list[tuple[ir.Value, Any]], path: Path, *, note: bool = True
    ) -> None:
        model = b.model([(value, F32, shape) for value, shape in outputs], opset=24)
        if note and self.note and self.alignment != "none":
            CacheLayout(self.alignment).note(model)
        ir.save(model, path.with_name(f"{path.name}.onnx"))


def package(folder: Path, *, fixed: bool) -> Path:
    """A decoder in two parts and its embedding, as components of a model that exporters cut so.

    Args:
        folder: where they are written.
        fixed: prefill of 4 tokens and decode; else one graph of each, whose caches grow.
    """
    phases = {"prefill": 4, "decode": 1} if fixed else {"model": None}
    for name, tokens in phases.items():
        Toy("left" if fixed else "growing", tokens).save(folder, name, parts=True)
        phase = f"-{name}" if fixed else ""
        for old, new in (
            ("1-embedding", f"embedding{phase}"),
            ("2-layers", f"text{phase}-1-layers"),
            ("3-head", f"text{phase}-2-head"),
        ):
            file = folder / f"{name}-{old}.onnx"
            edit(file, renamed("hidden", "inputs_embeds"))
            file.rename(folder / f"{new}.onnx")
    return folder


def pair(folder: Path, *, parts: bool = False, **spec: Any) -> Path:
    """Prefill and decode with caches at the left."""
    given = {"alignment": "left", **spec}
    Toy(**given, tokens=4).save(folder, "prefill", parts=parts)
    Toy(**given, tokens=1).save(folder, "decode", parts=parts)
    return folder


def edit(file: Path, change: Callable[[ir.Model], None]) -> None:
    """Change a file."""
    model = ir.load(file)
    change(model)
    ir.save(model, file)


def renamed(old: str, new: str) -> Callable[[ir.Model], None]:
    """Give inputs and outputs of a name another one."""

    def change(model: ir.Model) -> None:
        for value in (*model.graph.inputs, *model.graph.outputs):
            if value.name == old:
                value.name = new

    return change
