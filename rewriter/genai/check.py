"""A configuration is held against the graphs it speaks of; what differs is an error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rewriter.genai.adapt import NOT_ASKED, can_share
from rewriter.genai.graphs import GraphFile, graph_files, taken
from rewriter.genai.helpers import read_helpers
from rewriter.genai.named import differ, file_of, stages_of
from rewriter.genai.names import Interface, filled, interface, names_of


def check(config: Mapping[str, Any], folder: Path) -> None:
    """Every name, size and length of a configuration is that of the graphs in a folder.

    Raises:
        BadInput: naming the key, what it says, and what the graphs say.
    """
    check_graphs(config, [*read_helpers(folder), *graph_files(folder)])


def check_graphs(config: Mapping[str, Any], graphs: Sequence[GraphFile]) -> None:
    """As :func:`check`, of graphs that were read."""
    decoder = config.get("model", {}).get("decoder", {})
    files = {graph.name: graph for graph in graphs}
    if decoder.get("pipeline"):
        read, step = (_chain(config, files, f"run_on_{when}") for when in ("prompt", "token_gen"))
    else:
        read = step = [files[file_of(key, stage, files)] for key, stage in stages_of(decoder)]
    names = names_of(decoder)
    for chain in (read, step):
        _names(decoder, chain, files.values())
        graphs_of = [graph for graph in chain if graph.phase]
        found = interface(graphs_of, *names)
        _sizes(config["model"], found)
        _lengths(config, found, graphs_of, first=chain is read)


def _chain(config: Mapping[str, Any], files: Mapping[str, GraphFile], when: str) -> list[GraphFile]:
    """The graphs that run one after the other; each is fed by the runtime or one before it."""
    chain: list[GraphFile] = []
    for key, stage in stages_of(config["model"]["decoder"]):
        graph = files[file_of(key, stage, files)]
        inputs = {*graph.inputs, *graph.optional}
        for ports, held in (("inputs", inputs), ("outputs", set(graph.outputs))):
            if set(stage.get(ports, ())) != held:
                differ(f"{key}{ports}", sorted(stage.get(ports, ())), sorted(held))
        forwarded = stage.get("output_names_forwarder", {})
        if forwarded != graph.forwards:
            differ(f"{key}output_names_forwarder", forwarded, dict(graph.forwards))
        pad = config["model"].get("pad_token_id", 0)
        if graph.pad not in (None, pad):
            differ("model.pad_token_id", pad, graph.pad)
        if stage.get(when, True):
            chain.append(graph)
    return chain


def _names(
    decoder: Mapping[str, Any], chain: Sequence[GraphFile], graphs: Iterable[GraphFile]
) -> None:
    """What is named exists, and what the graphs take is named."""
    inputs, outputs = names_of(decoder)
    asked, everywhere = taken(chain), {name for graph in graphs for name in graph.inputs}
    made = {name for graph in chain for name in graph.outputs}
    # One more than there can be is as wrong as a number that would fill the memory.
    layers = range(min(int(decoder.get("num_hidden_layers", 0)), len(asked) + len(made) + 1))
    for role, name in inputs.items():
        key, stated = f"model.decoder.inputs.{role}", role in decoder.get("inputs", {})
        for one in sorted(set(_each(name, layers)) - set(asked)):
            if one in everywhere & made:
                # The runtime fills all inputs that it knows, and never looks at the stage's.
                differ(key, one, "a stage that makes it")
            unasked = name.startswith(NOT_ASKED) or not stated or one in everywhere
            if "%d" in name or not unasked:
                differ(key, one, sorted(asked))
    for role, name in outputs.items():
        for one in _each(name, layers):
            if one not in made:
                differ(f"model.decoder.outputs.{role}", one, sorted(made))
    named = {one for name in inputs.values() for one in _each(name, layers)}
    if unnamed := sorted(set(asked) - named):
        differ("model.decoder.inputs", "silent on inputs that nothing fills", unnamed)


def _each(name: str, layers: range) -> list[str]:
    return [filled(name, i) for i in layers] if "%d" in name else [name]


def _sizes(model: Mapping[str, Any], found: Interface) -> None:
    decoder = model["decoder"]
    layers = len(found.pasts)
    if decoder.get("num_hidden_layers") != layers:
        differ("model.decoder.num_hidden_layers", decoder.get("num_hidden_layers"), layers)
    # Layers may differ; the runtime then asks the graph, and takes what is stated for the others.
    for key, axis in (("head_size", 3), ("num_key_value_heads", 1)):
        sizes = {port.shape[axis] for pair in found.pasts.values() for port in pair}
        if decoder.get(key) not in sizes:
            differ(f"model.decoder.{key}", decoder.get(key), sorted(sizes, key=str))
    words = found.logits.shape[-1] if found.logits is not None else None
    if isinstance(words, int) and model.get("vocab_size") != words:
        differ("model.vocab_size", model.get("vocab_size"), words)


def _lengths(
    config: Mapping[str, Any], found: Interface, chain: Sequence[GraphFile], *, first: bool
) -> None:
    model, search = config["model"], config.get("search", {})
    context, longest = model.get("context_length"), search.get("max_length")
    if not context or not longest or longest > context:
        differ("search.max_length", longest, f"at most {context} (model.context_length)")
    rows = found.pasts[0][0].shape[2]
    window = model["decoder"].get("sliding_window")
    fixed = isinstance(rows, int)
    shared = search.get("past_present_share_buffer", False)
    if shared is not fixed and (fixed or not can_share(chain)):
        what = f"caches of {rows} rows" if fixed else "caches that grow"
        differ("search.past_present_share_buffer", shared, what)
    if (window is not None) is not fixed:
        differ("model.decoder.sliding_window", window, f"caches of {rows} rows")
    if window is None:
        return
    if context != rows:
        differ("model.context_length", context, rows)
    tokens = found.step["input_ids"].shape[1]
    if first and tokens != window.get("window_size"):
        differ("model.decoder.sliding_window.window_size", window.get("window_size"), tokens)
    if not first and tokens != 1:
        differ("model.decoder.pipeline", "for one token at a time (run_on_token_gen)", tokens)
    layouts = {graph.layout.alignment for graph in chain if graph.layout is not None}
    alignment = window.get("alignment", "right")
    if layouts != {alignment}:
        differ("model.decoder.sliding_window.alignment", alignment, sorted(layouts))
    for key, must in (("slide_key_value_cache", False), ("slide_inputs", True)):
        if window.get(key, True) is not must:
            differ(f"model.decoder.sliding_window.{key}", window.get(key, True), must)
