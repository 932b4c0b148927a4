"""The stages of a ``decoder-pipeline``: one for each graph, and for what it is fed with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rewriter.genai.graphs import GraphFile, of_phase
from rewriter.genai.helpers import CACHES, LENGTHS


def stages(
    graphs: Sequence[GraphFile],
    helpers: Sequence[GraphFile],
    session: Mapping[str, Any],
    options: Sequence[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """The list ``pipeline``: the order in which things run, and when.

    Args:
        graphs: of all phases, in order.
        helpers: what feeds them (:func:`~rewriter.genai.helpers.helpers`).
        session: options of the sessions of the graphs; helpers have the decoder's.
        options: provider options of them.
    """
    listed: dict[str, Any] = {}
    given = {helper.name: helper for helper in helpers}
    if LENGTHS in given:
        listed["lengths"] = _stage(given[LENGTHS], "model")
    caches = given.get(CACHES)
    for phase in dict.fromkeys(graph.phase for graph in graphs):
        chain = of_phase(graphs, phase)
        for graph in chain:
            if caches is not None and set(caches.forwards.values()) & set(graph.inputs):
                listed[f"{graph.stage}-caches"] = _stage(caches, phase)
            own = {**session, "provider_options": [dict(option) for option in options]}
            listed[graph.stage] = {**_stage(graph, phase), "session_options": own}
        if phase == "prefill" and len(chain) > 1 and chain[-1].layout is None:
            listed[chain[-1].stage]["is_lm_head"] = True  # it runs for the last window alone
    return [listed]


def _stage(graph: GraphFile, phase: str) -> dict[str, Any]:
    forwards = {"output_names_forwarder": dict(graph.forwards)} if graph.forwards else {}
    return {
        "filename": graph.name,
        "inputs": [*graph.inputs, *graph.optional],
        "outputs": [*graph.outputs],
        **forwards,
        "run_on_prompt": phase != "decode",
        "run_on_token_gen": phase != "prefill",
    }
