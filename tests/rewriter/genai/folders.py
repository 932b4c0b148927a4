"""Folders of graphs that have an interface and no nodes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx_ir as ir

from rewriter.cache_layout import Alignment, CacheLayout
from rewriter.genai.base import genai_base
from rewriter.source import CONTEXT

Shape = tuple[int | str, ...]
LAYERS = 3
F32, I64 = ir.DataType.FLOAT, ir.DataType.INT64


def caches(kind: str, rows: int | str, heads: int = 2, size: int = 8) -> dict[str, Shape]:
    """Keys and values of all layers."""
    names = (f"{kind}.{i}.{what}" for i in range(LAYERS) for what in ("key", "value"))
    return {name: (1 if isinstance(rows, int) else "batch", heads, rows, size) for name in names}


def growing(**more: Shape) -> tuple[dict[str, Shape], dict[str, Shape]]:
    """Inputs and outputs of a graph of any length."""
    inputs: dict[str, Shape] = {"input_ids": ("batch", "sequence")}
    inputs |= {"attention_mask": ("batch", "total"), "position_ids": ("batch", "sequence")}
    inputs |= caches("past_key_values", "past") | more
    return inputs, {"logits": ("batch", "sequence", 7), **caches("present", "total")}


def fixed(new: int, rows: int, columns: int) -> tuple[dict[str, Shape], dict[str, Shape]]:
    """The same of a graph of fixed sizes; the mask has so many columns."""
    inputs: dict[str, Shape] = {"input_ids": (1, new), "attention_mask": (1, columns)}
    inputs |= {"position_ids": (1, new), **caches("past_key_values", rows)}
    return inputs, {"logits": (1, new, 7), **caches("present", rows)}


def save(
    path: Path,
    ports: tuple[Mapping[str, Shape], Mapping[str, Shape]],
    layout: CacheLayout | None = None,
    context: int | None = None,
) -> None:
    """Write a graph."""
    graph = ir.Graph(_values(ports[0]), _values(ports[1]), nodes=[], opset_imports={"": 24})
    model = ir.Model(graph, ir_version=10)
    if layout is not None:
        layout.note(model)
    if context is not None:
        model.metadata_props[CONTEXT] = str(context)
    ir.save(model, path)


def pair(folder: Path, *, window: int = 4, rows: int = 16, alignment: Alignment = "left") -> Path:
    """A folder of prefill and decode."""
    for phase, new in (("prefill", window), ("decode", 1)):
        columns = rows + (new if alignment == "right" else 0)
        save(folder / f"{phase}.onnx", fixed(new, rows, columns), CacheLayout(alignment))
    return folder


def parts(folder: Path, window: int = 4, rows: int = 16) -> Path:
    """The same, each cut into embedding, layers and head."""
    for phase, new in (("prefill", window), ("decode", 1)):
        inputs, outputs = fixed(new, rows, rows)
        hidden: Shape = (1, new, 32)
        rest = {name: shape for name, shape in inputs.items() if name != "input_ids"}
        made = {name: shape for name, shape in outputs.items() if name != "logits"}
        cut = CacheLayout("left")
        save(folder / f"{phase}-1-embedding.onnx", ({"input_ids": (1, new)}, {"h0": hidden}))
        save(
            folder / f"{phase}-2-layers.onnx", ({"h0": hidden, **rest}, {"h1": hidden, **made}), cut
        )
        save(folder / f"{phase}-3-head.onnx", ({"h1": hidden}, {"logits": (1, new, 7)}))
    return folder


def base(**model: Any) -> dict[str, Any]:
    """What a checkpoint gives."""
    sizes = {"context_length": 64, "hidden_size": 48, "num_attention_heads": 6}
    made: dict[str, Any] = json.loads(genai_base("qwen2", **sizes, bos=1, ends=[3, 4], pad=5))
    made["model"] |= model
    return made


def _values(shapes: Mapping[str, Sequence[int | str]]) -> list[ir.Value]:
    return [
        ir.Value(
            name=name,
            shape=ir.Shape(shape),
            type=ir.TensorType(I64 if name.endswith(("_ids", "_mask")) else F32),
        )
        for name, shape in shapes.items()
    ]
