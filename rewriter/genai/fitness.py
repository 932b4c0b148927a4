"""Whether onnxruntime-genai can drive a folder at all; where it cannot, why not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rewriter.genai.graphs import GraphFile, of_phase
from rewriter.genai.names import Interface, interface, names_of

_OTHER_MODELS = ("encoder", "vision", "speech", "embedding", "mtp")


def other_graphs(base: Mapping[str, Any]) -> str:
    """What a configuration speaks of besides a decoder of one graph; nothing if it does not."""
    model = base.get("model", {})
    if others := [key for key in _OTHER_MODELS if key in model]:
        return f"it speaks of more graphs than a decoder ({', '.join(others)})"
    if "pipeline" in model.get("decoder", {}):
        return "it speaks of stages of a pipeline that are not known here"
    return ""


def unfit(base: Mapping[str, Any], graphs: Sequence[GraphFile]) -> str:
    """Why no configuration can be made; nothing if one can.

    Args:
        base: what is known of the model, as :func:`~rewriter.genai.adapt` takes it.
        graphs: of the folder.
    """
    model = base.get("model", {})
    names = names_of(model.get("decoder", {}))
    phases = {graph.phase for graph in graphs}
    if phases == {"model"}:
        return _any_length(interface(graphs, *names), graphs)
    if phases == {"prefill", "decode"}:
        read, step = (of_phase(graphs, phase) for phase in ("prefill", "decode"))
        return _fixed(interface(read, *names), interface(step, *names), read)
    return "the runtime needs one graph of any length, or one to read prompts and one to decode"


def _any_length(found: Interface, graphs: Sequence[GraphFile]) -> str:
    if reason := _roles(found):
        return reason
    if found.crossing:
        return (
            f"a part reads the cache of another ({found.crossing[0]}), and the runtime gives it to "
            "no other stage; split into fewer parts, or not at all"
        )
    pasts = [port.shape[2] for pair in found.pasts.values() for port in pair]
    lengths = [port.shape[1] for port in found.step.values()]
    if any(isinstance(size, int) for size in (*pasts, *lengths)):
        return "the runtime takes prompts and caches of any length, and the graph has fixed sizes"
    if any(graph.layout and graph.layout.alignment != "growing" for graph in graphs):
        return "the graph's caches do not grow, and their length is not fixed"
    return ""


def _fixed(read: Interface, step: Interface, graphs: Sequence[GraphFile]) -> str:
    """Why prompts cannot be read in windows and decoded with these two."""
    if reason := _roles(read) or _roles(step):
        return reason
    if read.pasts != step.pasts:
        return "prefill and decode have caches of different shapes"
    shapes = [port.shape for found in (read, step) for port in found.step.values()]
    rows = {port.shape[2] for pair in read.pasts.values() for port in pair}
    if any(not isinstance(d, int) for shape in shapes for d in shape) or len(rows) != 1:
        return "the runtime needs caches of one fixed length and steps of a fixed number of tokens"
    if any(shape[0] != 1 for shape in shapes):
        return "the runtime reads prompts in windows for a batch of 1 only"
    window, length = read.step["input_ids"].shape[1], next(iter(rows))
    if not isinstance(window, int) or not isinstance(length, int) or length % window:
        return (
            f"the runtime reads prompts in whole windows, and {length} rows of the cache are no "
            f"multiple of {window} tokens; choose --max-seq-len and --seq so that they are"
        )
    if window < 2:
        return "the runtime reads prompts in windows of 2 tokens at least (--seq)"
    if step.step["input_ids"].shape[1] != 1:
        return "the graph that decodes takes more than one token at a time"
    return _layout(read, step, graphs)


def _layout(read: Interface, step: Interface, graphs: Sequence[GraphFile]) -> str:
    layouts = [graph.layout for graph in graphs if graph.layout is not None]
    if any(layout.windows for layout in layouts):
        return "caches that keep only the newest tokens allow no padding, and the runtime pads"
    kinds = {layout.alignment for layout in layouts}
    if kinds not in ({"left"}, {"right"}):
        return "the graphs do not say how their caches are laid out"
    if "attention_mask" not in read.step or "attention_mask" not in step.step:
        return "nothing tells the graph how many tokens there are (attention_mask)"
    for found in (read, step):
        new, rows = found.step["input_ids"].shape[1], found.pasts[0][0].shape[2]
        wanted = int(rows) + (int(new) if kinds == {"right"} else 0)
        columns = found.step["attention_mask"].shape[1]
        if columns != wanted:
            return f"the attention mask has {columns} columns, where the caches call for {wanted}"
    return ""


def _roles(found: Interface) -> str:
    if "input_ids" not in found.step or found.logits is None:
        return "the graph has no tokens as input, or no logits as output"
    if not found.pasts or found.pasts.keys() != found.presents.keys():
        return "the graph has no caches that go in and come out"
    if found.others:
        return (
            "the graph has other inputs or outputs than tokens, mask, positions, logits and "
            f"caches: {', '.join(found.others)}"
        )
    if list(found.pasts) != list(range(len(found.pasts))):
        return f"the runtime counts caches from 0 without a gap, and those are {[*found.pasts]}"
    return ""
