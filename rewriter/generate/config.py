"""What ``genai_config.json`` says of a folder: when to stop, and names that have to fit."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import index
from pathlib import Path
from typing import Any

from rewriter.errors import BadInput
from rewriter.generate.folder import Folder

NAME = "genai_config.json"
_MANY = 64
"""A name with %d stands for the ones of the layers, counted from 0."""


@dataclass(frozen=True, slots=True)
class Config:
    """What is used of the file.

    Attributes:
        stop: ids that end a text.
        context: how many tokens the model is for, where it says so.
    """

    stop: frozenset[int] = frozenset()
    context: int | None = None


def read_config(folder: Folder) -> Config:
    """What the file says, once its names are known to be those of the graphs.

    Raises:
        BadInput: it is damaged, or names files, inputs or outputs that are not there.
    """
    file = folder.path / NAME
    if not file.is_file():
        return Config()
    try:
        model = json.loads(file.read_text(encoding="utf-8"))["model"]
        decoder = model["decoder"]
        ends = model.get("eos_token_id")
        listed = ends if isinstance(ends, list) else [ends]
        stop = frozenset(index(token) for token in listed if token is not None)
        context = index(model["context_length"]) if "context_length" in model else None
        stages = list(_stages(decoder))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        raise BadInput(f"{file}: is no configuration of onnxruntime-genai; remove it") from None
    for stage in stages:
        _check(folder, file, stage)
    return Config(stop, context)


def _stages(decoder: Mapping[str, Any]) -> Iterator[tuple[str, list[str], list[str]]]:
    """Files with the names of their inputs and outputs."""
    for stage in (s for entry in decoder.get("pipeline", []) for s in entry.values()):
        yield str(stage["filename"]), [*map(str, stage["inputs"])], [*map(str, stage["outputs"])]
    if not decoder.get("pipeline"):
        names = [[str(n) for n in decoder.get(k, {}).values()] for k in ("inputs", "outputs")]
        yield str(decoder["filename"]), names[0], names[1]


def _check(folder: Folder, file: Path, stage: tuple[str, list[str], list[str]]) -> None:
    name, inputs, outputs = stage
    parts = {p.file.name: p for graph in folder.graphs.values() for p in graph.parts}
    parts |= {p.compiled.name: p for p in parts.values() if p.compiled is not None}
    if name not in parts and (folder.path / name).is_file():
        return  # a graph of the runtime's own, such as one that makes masks
    if name not in parts:
        raise BadInput(
            f"{file}: names the model '{name}', and the folder holds {', '.join(parts)}; write the "
            "folder anew"
        )
    for what, told, found in (
        ("input", inputs, parts[name].inputs),
        ("output", outputs, parts[name].outputs),
    ):
        for entry in told:
            names = [entry.replace("%d", str(n)) for n in range(_MANY)]
            if not any(each in found for each in names):
                raise BadInput(
                    f"{file}: names the {what} '{entry}', which {name} does not have; write the "
                    "folder anew"
                )
