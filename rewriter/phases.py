"""Which graphs a run writes: one, or those that a device needs for a decoder with a fixed cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from rewriter.errors import BadInput
from rewriter.facts import op_of
from rewriter.passes.dim_fit import rotary_rows
from rewriter.passes.dim_names import places_and_roles, resolve
from rewriter.settings import Settings
from rewriter.source import CONTEXT

PHASES = ("prefill", "decode")
_SIZES = frozenset({"seq", "past", "total", "max"})
"""Roles of the dims that a phase sets."""
_PROMPT, _CACHE = 64, 1024
"""New tokens of a prompt, and rows of a cache, where nobody asks for other numbers."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One graph.

    Attributes:
        name: ``model``, ``prefill`` or ``decode``.
        dims: values by the names that ``--dim`` takes.
    """

    name: str
    dims: Mapping[str, int]

    @property
    def file(self) -> str:
        """Name of its file."""
        return f"{self.name}.onnx"


def phases(settings: Settings, model: ir.Model, *, built: bool) -> tuple[list[Phase], list[str]]:
    """The graphs to write, and what a person should know of sizes nobody asked for.

    A graph built from a checkpoint gets both phases where the target runs fixed shapes only and
    no dim says which.

    Args:
        settings: what was asked.
        model: as it was read.
        built: it was made from a checkpoint.

    Raises:
        BadInput: the sizes do not fit, or the model keeps no cache that can be a buffer.
    """
    asked, given = settings.static, _given(settings, model)
    sized = next((symbol for symbol, role in given.items() if role in _SIZES), "")
    if not asked and built and settings.target.static_only and not sized:
        asked = "both"
    if settings.seq and asked not in {"prefill", "both"}:
        raise BadInput(
            f"--seq {settings.seq}: is a size of the graph that reads prompts, and none is made "
            "here; ask for it with --static prefill or both"
        )
    trained = model.metadata_props.get(CONTEXT)
    if trained is not None and settings.max_seq_len > int(trained):
        raise BadInput(
            f"--max-seq-len {settings.max_seq_len}: the model was trained for {trained} positions; "
            "ask for no more"
        )
    if not asked:
        return [Phase("model", settings.dims)], []
    _require_buffers(model)
    if sized:
        raise BadInput(
            f"--dim {sized}: --static sets it, by --seq and --max-seq-len; give those instead"
        )
    positions = rotary_rows(model) or (_CACHE, "")
    rows = settings.max_seq_len or min(int(trained or positions[0]), _CACHE)
    prompt = settings.seq or min(_PROMPT, rows)
    if prompt > rows and asked != "decode":
        raise BadInput(
            f"--seq {prompt} does not fit into a cache of {rows} rows; raise --max-seq-len"
        )
    chosen = PHASES if asked == "both" else (asked,)
    batch = {} if "batch" in given.values() else {"batch": 1}
    found = [
        Phase(
            name,
            {
                **batch,
                "seq": prompt if name == "prefill" else 1,
                "past": rows,
                "total": rows,
                **settings.dims,
            },
        )
        for name in chosen
    ]
    return found, _notes(settings, chosen, prompt, rows)


def _given(settings: Settings, model: ir.Model) -> dict[str, str]:
    """Symbols that were given values, with their roles."""
    places, roles = places_and_roles(model)
    return {name: roles.get(name, "") for name in resolve(model, settings.dims, places, roles)}


def _notes(settings: Settings, chosen: tuple[str, ...], prompt: int, rows: int) -> list[str]:
    notes = []
    if "prefill" in chosen and not settings.seq:
        notes.append(f"a prompt is read {prompt} tokens at a time; --seq asks for another number")
    if not settings.max_seq_len:
        notes.append(f"the cache has {rows} rows; --max-seq-len asks for another number")
    return notes


def _require_buffers(model: ir.Model) -> None:
    """Every cache has to be one that GroupQueryAttention writes into.

    Raises:
        BadInput: there is none, or one of another kind.
    """
    roles = set(places_and_roles(model)[1].values())
    if not {"seq", "past"} <= roles:
        raise BadInput(
            "--static: the model has no inputs for new tokens and past keys and values; it is "
            "for decoders with a cache"
        )
    for value in model.graph.inputs:
        if not (value.name or "").startswith("past_key_values."):
            continue
        other = next(
            (n for n, _ in value.uses() if op_of(n) != "com.microsoft::GroupQueryAttention"), None
        )
        if other is not None:
            raise BadInput(
                f"--static: the cache '{value.name}' is read by {op_of(other)} '{other.name}', "
                "so it grows; only GroupQueryAttention writes into a buffer, fix dims with --dim"
            )
