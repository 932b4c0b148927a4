"""A configuration for the graphs that were written, from what is known of the model.

What describes the model (tokens, sizes, search) is kept as it was stated, whatever it is; what
describes the graphs and the EP is of this folder. :func:`~rewriter.genai.check` holds the result
against the graphs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from capabilities import Target
from rewriter.genai.graphs import GraphFile, of_phase, taken
from rewriter.genai.helpers import alignment_of, helper_files, helpers
from rewriter.genai.lengths import MASK, POSITIONS
from rewriter.genai.names import Interface, interface, names_of
from rewriter.genai.providers import provider_options
from rewriter.genai.stages import stages

_SEARCH = {
    "do_sample": False,
    "early_stopping": True,
    "length_penalty": 1.0,
    "min_length": 0,
    "num_beams": 1,
    "num_return_sequences": 1,
    "repetition_penalty": 1.0,
    "temperature": 1.0,
    "top_k": 50,
    "top_p": 1.0,
}
"""Greedy, with the runtime's own defaults spelled out for a person who wants to change them."""

NOT_ASKED = "not_an_input."
"""Before the names of inputs that a stage makes, so that the runtime finds and fills none."""


def adapt(base: Mapping[str, Any], target: Target, graphs: Sequence[GraphFile]) -> dict[str, Any]:
    """The configuration of a folder whose graphs can be driven (:func:`~rewriter.genai.unfit`).

    Args:
        base: ``genai_config.json`` as it lay beside the model, or the part of one that a
            checkpoint gives: ``model.type``, ``context_length``, token ids, and of the decoder
            ``hidden_size`` and ``num_attention_heads``.
        target: what the graphs were lowered for.
        graphs: of the folder.
    """
    model, decoder = dict(base.get("model", {})), dict(base.get("model", {}).get("decoder", {}))
    inputs, outputs = names_of(decoder)
    first = of_phase(graphs, graphs[0].phase)
    found = interface(first, inputs, outputs)
    fixed = graphs[0].phase != "model"
    decoder = _facts(decoder, found)
    session = {"log_id": "onnxruntime-genai", **decoder.pop("session_options", {})}
    stated = session.pop("provider_options", [])
    whole = len(graphs) == 1
    options = provider_options(target, stated, growing=whole)
    decoder["session_options"] = {**session, "provider_options": options if whole else []}
    kept = {*decoder.get("inputs", {}), "past_key_names", "past_value_names"}
    kept |= {role for role in inputs if inputs[role] in taken(first)}
    decoder["inputs"] = {role: name for role, name in inputs.items() if role in kept}
    decoder["outputs"] = outputs
    for key in ("sliding_window", "filename"):
        decoder.pop(key, None)
    if whole:
        decoder["filename"] = graphs[0].name
    else:
        model["type"] = "decoder-pipeline"
        decoder["pipeline"] = stages(graphs, helper_files(helpers(base, graphs)), session, options)
    search = {**_SEARCH, "past_present_share_buffer": fixed, **base.get("search", {})}
    if fixed or not can_share(graphs):
        search["past_present_share_buffer"] = fixed
    if fixed:
        rows = int(found.pasts[0][0].shape[2])
        decoder |= _windows(decoder, found, alignment_of(first), rows)
        model["context_length"] = rows
    served = [graph.context for graph in graphs if graph.context]
    context = min([int(model.get("context_length") or search.get("max_length", 0)), *served])
    model["context_length"] = context
    search["max_length"] = min(int(search.get("max_length") or context), context)
    logits = found.logits
    if logits is not None and isinstance(logits.shape[-1], int):
        model.setdefault("vocab_size", logits.shape[-1])
    model["decoder"] = decoder
    return {**base, "model": model, "search": search}


def can_share(graphs: Sequence[GraphFile]) -> bool:
    """Growing caches may just as well be buffers that are longer than what they hold."""
    cached = [graph for graph in graphs if graph.layout is not None]
    return bool(cached) and all(graph.in_place for graph in cached)


def _facts(decoder: dict[str, Any], found: Interface) -> dict[str, Any]:
    """Sizes of the caches, where nobody stated them.

    The runtime counts caches by the number of layers, so that those which share one do not count.
    """
    key, caches = found.pasts[0][0].shape, len(found.pasts)
    sizes = {"head_size": key[3], "num_key_value_heads": key[1], "num_hidden_layers": caches}
    made = {**sizes, **decoder}
    if isinstance(made["num_hidden_layers"], int):
        made["num_hidden_layers"] = min(made["num_hidden_layers"], caches)
    return made


def _windows(
    decoder: Mapping[str, Any], found: Interface, alignment: str, rows: int
) -> dict[str, Any]:
    """How the runtime reads a prompt in windows; a stage makes what it would not make right."""
    window = int(found.step["input_ids"].shape[1])
    made = {MASK: NOT_ASKED + MASK, POSITIONS: NOT_ASKED + POSITIONS}
    return {
        "inputs": {**decoder["inputs"], **made},
        "sliding_window": {
            "window_size": window,
            "pad_value": 0,
            "alignment": alignment,
            "slide_key_value_cache": False,
            "slide_inputs": True,
            # Newer sources give a cache as many rows as the window and this together.
            "cache_slack": rows - window,
        },
    }
