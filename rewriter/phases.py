"""Which graphs a run writes: one, or those that a device needs for a decoder with a fixed cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from rewriter.cache_layout import Alignment
from rewriter.errors import BadInput
from rewriter.passes.added_mask import MASK
from rewriter.passes.caches import NoCache
from rewriter.passes.dim_fit import rotary_rows, windows
from rewriter.passes.dim_names import places_and_roles, resolve
from rewriter.passes.hidden_rows import fixed_alignment
from rewriter.roles import role_of
from rewriter.settings import Settings
from rewriter.source import CONTEXT

PHASES = ("prefill", "decode")
_SIZES = frozenset({"seq", "past", "total", "max"})
"""Roles of the dims that a phase sets."""
_ALIGNED: Mapping[Alignment, str] = {
    "left": "caches are aligned left: buffers that fill up from their first row on",
    "right": "caches are aligned right: the newest rows come last, and the attention mask has a "
    "column for every row and every new token, 0 for those in front that are not filled",
}
"""What a person who drives the graphs has to know of their caches."""
_PROMPT, _CACHE = 64, 1024
"""New tokens of a prompt, and rows of a cache, where nobody asks for other numbers."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One graph.

    Attributes:
        name: ``model``, ``prefill`` or ``decode``.
        dims: values by the names that ``--dim`` takes.
        alignment: where its caches hold their tokens, if they have a fixed size.
    """

    name: str
    dims: Mapping[str, int]
    alignment: Alignment | None = None

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
        BadInput: the sizes do not fit, or the model has no cache that can have a fixed size.
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
    alignment = _alignment(model)
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
    found = [
        Phase(name, _dims(settings, model, alignment, seq, rows), alignment)
        for name, seq in (("prefill", prompt), ("decode", 1))
        if name in chosen
    ]
    for phase in found:
        _check_windows(model, phase)
    notes = [*_notes(settings, chosen, prompt, rows), _ALIGNED[alignment]]
    if alignment == "right" and all(value.name != MASK for value in model.graph.inputs):
        notes.append(f"the model has no mask for rows that are not filled: it gets {MASK} as input")
    return found, notes


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


def _dims(
    settings: Settings, model: ir.Model, alignment: Alignment, seq: int, rows: int
) -> dict[str, int]:
    """Sizes of one phase, by role; the mask of a buffer that moves has new columns behind it."""
    batch = {} if "batch" in _given(settings, model).values() else {"batch": 1}
    total = rows + seq if alignment == "right" else rows
    sizes = {"seq": seq, "past": rows, "total": total, "max": rows}
    known = set(places_and_roles(model)[1].values())
    sizes = {role: size for role, size in sizes.items() if role in known}
    return {**batch, **sizes, **settings.dims}


def _check_windows(model: ir.Model, phase: Phase) -> None:
    """The cache of a window takes several tokens of one sequence only, in ONNX Runtime as well."""
    roles = places_and_roles(model)[1]
    batch = max(size for name, size in phase.dims.items() if roles.get(name, name) == "batch")
    held = next(iter(windows(model)), "")
    if held and batch > 1 and phase.dims["seq"] > 1:
        raise BadInput(
            f"--static: the cache '{held}' holds a window, and takes several tokens of one "
            "sequence only; --dim batch=1, or --static decode"
        )


def _alignment(model: ir.Model) -> Alignment:
    """Where caches of a fixed size would hold their tokens.

    Raises:
        BadInput: there are none, or they cannot have a fixed size.
    """
    roles = set(places_and_roles(model)[1].values())
    if "seq" not in roles or not roles & {"past", "max"}:
        if role_of(model) == "decoder":
            raise BadInput(
                "--static: the tokens or the cache of this model have a fixed size already; "
                "rewrite it without --static"
            )
        raise BadInput(
            "--static: the model has no inputs for new tokens and past keys and values; it is "
            "for decoders with a cache"
        )
    try:
        return fixed_alignment(model)
    except NoCache as why:
        raise BadInput(f"--static: {why}; --dim fixes dims for calls of one size") from None
