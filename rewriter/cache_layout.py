"""How the caches of a written graph are laid out, noted in its metadata for whoever drives it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import onnx_ir as ir

from rewriter.errors import BadInput

Alignment = Literal["growing", "left", "right"]

_KEY = "rewriter.cache"


@dataclass(frozen=True, slots=True)
class CacheLayout:
    """What a driver has to know of the caches of one graph.

    Attributes:
        alignment: where a cache of C rows holds its tokens, S being the new ones of a step.
            ``growing``: present has C + S rows, all of them valid.
            ``left``: present has C rows; new tokens go to rows ``total - S`` to ``total - 1``,
            where ``total`` counts the ones of the attention mask; rows after them are unspecified.
            ``right``: present has C rows; new tokens go to the last S rows and what was before
            moves up; the attention mask has C + S columns and a 0 for every row not yet filled.
        windows: caches that keep only the newest tokens, by the name of the input, with the
            tokens that a query sees (``sliding_window_cache`` of GroupQueryAttention).
    """

    alignment: Alignment
    windows: Mapping[str, int] = field(default_factory=dict)

    def note(self, model: ir.Model) -> None:
        """Store it with a model."""
        model.metadata_props[_KEY] = json.dumps(
            {"alignment": self.alignment, "windows": dict(self.windows)}, sort_keys=True
        )


def forget(model: ir.Model) -> None:
    """Remove what is stored with a model, as with a part of one that holds no caches."""
    model.metadata_props.pop(_KEY, None)


def cache_layout(model: ir.Model, name: str) -> CacheLayout | None:
    """The layout that a model was written with; nothing if it has no caches.

    Args:
        model: as it was read.
        name: of its file, for the error.

    Raises:
        BadInput: what is stored is not of ours.
    """
    stored = model.metadata_props.get(_KEY)
    if stored is None:
        return None
    try:
        found = json.loads(stored)
    except (ValueError, RecursionError):
        found = None
    match found:
        case {"alignment": "growing" | "left" | "right" as alignment, "windows": dict(windows)}:
            if all(type(rows) is int for rows in windows.values()):
                return CacheLayout(alignment, windows)
    raise BadInput(f"{name}: the metadata entry '{_KEY}' is damaged; write the folder anew")
