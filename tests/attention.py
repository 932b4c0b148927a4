"""One Attention node for tests: sizes, masks and lengths, its inputs, and the oracles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from capabilities import target
from rewriter.lowering import lower
from rewriter.parity.domains import DOMAINS
from rewriter.record import Report
from tests import ort
from tests.graphs import Builder

F32, F16, I64 = ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.INT64
QNN = target("qnn", "2.7.0", illegal=("Attention",))
STANDARD = target("onnx-standard", illegal=("Attention",))
LOWEST = float(np.finfo(np.float32).min)
CAUSAL = {"is_causal": 1}
DEAD = ((0, 1), (1, None), (2, 4))
"""Hides some keys, and one row whole."""


@dataclass(frozen=True)
class Case:
    """One node: sizes, mask, lengths, and which optional things it has.

    ``mask`` is what it holds: bool, float, int64, or a number for hidden keys (then 0 elsewhere).
    ``hide`` lists (row, key) pairs that are hidden; key None hides the row.
    """

    name: str
    attributes: Mapping[str, Any] = field(default_factory=dict)
    tokens: int = 3
    keys: int = 5
    batch: int = 2
    heads: int = 4
    kv_heads: int = 2
    size: int = 8
    out_size: int = 6
    rank: int = 4
    past: int | None = None
    present: bool = False
    mask: str | float = ""
    mask_shape: tuple[int, ...] = (3, 5)
    hide: tuple[tuple[int, int | None], ...] = ((0, 1), (1, 0), (1, 3), (2, 4))
    constant: bool = False
    nonpad: tuple[int, ...] = ()
    scores: int | None = None
    opset: int = 24
    oracle: str = "ort"

    @property
    def total(self) -> int:
        return self.keys + (self.past or 0)


def mask_of(case: Case, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    seen = np.ones(case.mask_shape, np.bool_)
    rows = np.atleast_2d(seen)
    for row, key in case.hide:
        if row < rows.shape[-2] and (key is None or key < rows.shape[-1]):
            rows[..., row, slice(None) if key is None else key] = False
    if case.mask == "bool":
        return seen
    if case.mask == "float":
        return rng.standard_normal(case.mask_shape).astype(np.float32)
    if case.mask == "int64":
        return rng.integers(-2, 3, case.mask_shape)
    bias = 0.1 * rng.standard_normal(case.mask_shape)
    return np.where(seen, bias, case.mask).astype(np.float32)


def inputs(case: Case, seed: int = 0) -> ort.Arrays:
    rng = np.random.default_rng(seed)

    def rows(count: int, heads: int, size: int) -> np.ndarray[Any, Any]:
        full = case.rank == 4
        shape = (case.batch, heads, count, size) if full else (case.batch, count, heads * size)
        return rng.standard_normal(shape).astype(np.float32)

    found = {
        "Q": rows(case.tokens, case.heads, case.size),
        "K": rows(case.keys, case.kv_heads, case.size),
        "V": rows(case.keys, case.kv_heads, case.out_size),
    }
    if case.mask:
        found["attn_mask"] = mask_of(case, rng)
    if case.past is not None:
        for name, size in (("past_key", case.size), ("past_value", case.out_size)):
            shape = (case.batch, case.kv_heads, case.past, size)
            found[name] = rng.standard_normal(shape).astype(np.float32)
    if case.nonpad:
        found["nonpad_kv_seqlen"] = np.array(case.nonpad)
    return found


def node(case: Case, feeds: ort.Arrays, dtype: ir.DataType = F32, batch: str = "") -> ir.Model:
    """The model of a case; ``batch`` is a name for a batch that is not fixed."""
    b = Builder()
    values: list[ir.Value | None] = []
    order = ("Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen")
    for name in order:
        array = feeds.get(name)
        if array is None:
            values.append(None)
            continue
        floating = array.dtype == np.float32
        if name in {"attn_mask", "nonpad_kv_seqlen"} and case.constant:
            with np.errstate(over="ignore"):
                stored = array.astype(dtype.numpy()) if floating else array
            values.append(b.const(name, stored))
            continue
        shape: list[int | str] = list(array.shape)
        if batch and name != "attn_mask":
            shape[0] = batch
        kind = dtype if floating else ir.DataType.from_numpy(array.dtype)
        values.append(b.input(name, kind, shape))
    while values[-1] is None:
        values.pop()
    heads = {"q_num_heads": case.heads, "kv_num_heads": case.kv_heads} if case.rank == 3 else {}
    mode = {} if case.scores is None else {"qk_matmul_output_mode": case.scores}
    names = ["Y", *(["present_key", "present_value"] if case.present else ["", ""]),
             "" if case.scores is None else "qk"]  # fmt: skip
    while not names[-1]:
        names.pop()
    outputs = b.node("Attention", values, names, **heads, **mode, **case.attributes)
    first: int | str = batch or case.batch
    shapes: dict[str, list[int | str]] = {
        "Y": [first, case.heads, case.tokens, case.out_size]
        if case.rank == 4
        else [first, case.tokens, case.heads * case.out_size],
        "present_key": [first, case.kv_heads, case.total, case.size],
        "present_value": [first, case.kv_heads, case.total, case.out_size],
        "qk": [first, case.heads, case.tokens, case.total],
    }
    return b.model([(v, dtype, shapes[v.name or ""]) for v in outputs if v.name], case.opset)


def reference(model: ir.Model, feeds: ort.Arrays) -> ort.Arrays:
    """Onnx's own reference implementation."""
    proto = ir.to_proto(model)
    given = {v.name: feeds[v.name] for v in model.graph.inputs if v.name}
    evaluator: Any = ReferenceEvaluator(proto)
    return dict(zip([o.name for o in proto.graph.output], evaluator.run(None, given), strict=True))


def written_out(case: Case, feeds: ort.Arrays) -> ort.Arrays:
    """The feeds with a mask of every row and key, which is what ORT takes."""
    mask = feeds["attn_mask"]
    beyond = False if mask.dtype == np.bool_ else -np.inf
    short = [(0, 0)] * (mask.ndim - 1) + [(0, case.total - mask.shape[-1])]
    shape = (case.batch, case.heads, case.tokens, case.total)
    padded = np.pad(mask, short, constant_values=beyond)
    return {**feeds, "attn_mask": np.broadcast_to(padded, shape).copy()}


def raised(feeds: ort.Arrays) -> ort.Arrays:
    """The feeds without the number that hides a row whole.

    softmax(x + c) = softmax(x), but for the rounding of x + c in float32.
    """
    mask = feeds["attn_mask"].astype(np.float64)
    return {**feeds, "attn_mask": (mask - mask.max(axis=-1, keepdims=True)).astype(np.float32)}


def oracle(case: Case, feeds: ort.Arrays) -> ort.Arrays:
    """Outputs by ``case.oracle``: ORT, ORT with the mask written out or raised, the reference."""
    if case.oracle == "reference":
        return reference(node(case, feeds), feeds)
    if case.oracle == "written out":
        feeds = written_out(case, feeds)
    if case.oracle == "raised":
        feeds = raised(feeds)
    return ort.run(node(case, feeds), feeds)


def lowered(case: Case, feeds: ort.Arrays, dtype: ir.DataType = F32) -> tuple[ir.Model, Report]:
    model = node(case, feeds, dtype)
    report = lower(model, QNN)
    assert not report.unknown
    return model, report


def shown(name: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Scores with their bias as parity compares them: hidden keys differ between the oracles."""
    return DOMAINS["Attention"].defined({"qk": "qk_matmul_output"}.get(name, name), array, {})
