"""What a folder needs for onnxruntime-genai, made when its graphs are written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx_ir as ir

from capabilities import Target
from rewriter.genai.adapt import adapt
from rewriter.genai.check import check_graphs
from rewriter.genai.fitness import other_graphs, unfit
from rewriter.genai.graphs import graph_files
from rewriter.genai.helpers import helper_files, helpers
from rewriter.genai.providers import is_file
from rewriter.genai.stated import NAME, stated
from rewriter.source import Companions


def genai_files(folder: Path, companions: Companions, target: Target) -> Companions:
    """The companions of a model with a configuration that fits the folder, or with none.

    Args:
        folder: the graphs that were written.
        companions: of the model; the configuration is made of ``companions.genai``.
        target: what the graphs were lowered for.

    Raises:
        BadInput: the configuration is no JSON, or says of the graphs what is not so.
    """
    if companions.genai is None:
        return companions
    base, notes = stated(companions.genai.content), companions.genai.notes
    if unknown := other_graphs(base):
        return _as_stated(folder, companions, base, unknown)
    graphs = graph_files(folder)
    if reason := unfit(base, graphs):
        return _without(companions, reason)
    config = adapt(base, target, graphs)
    made = helpers(base, graphs)
    check_graphs(config, [*helper_files(made), *graphs])
    written = {NAME: json.dumps(config, indent=4, ensure_ascii=False).encode()}
    for name, model in made.items():
        written[name] = ir.to_proto(model).SerializeToString(deterministic=True)
    notes = (*companions.notes, *notes, *_notes(base, config, target))
    return Companions({**companions.files, **written}, notes)


def _without(companions: Companions, reason: str) -> Companions:
    note = f"no {NAME} was written: {reason}"
    return Companions(companions.files, (*companions.notes, note))


def _as_stated(
    folder: Path, companions: Companions, base: Mapping[str, Any], unknown: str
) -> Companions:
    """A configuration that speaks of graphs of other kinds stays as it is, if they are there."""
    missing = sorted(name for name in _files(base) if not (folder / name).is_file())
    if missing:
        return _without(companions, f"{unknown}, and {missing[0]} is not among those written")
    assert companions.genai is not None
    note = f"{NAME} was kept as it is and not checked: {unknown}"
    files = {**companions.files, NAME: companions.genai.content}
    return Companions(files, (*companions.notes, note))


def _files(config: Any) -> set[str]:
    """Names of the graphs that a configuration speaks of."""
    if isinstance(config, list):
        return {name for one in config for name in _files(one)}
    if not isinstance(config, dict):
        return set()
    inner = {name for one in config.values() for name in _files(one)}
    name = config.get("filename")
    return inner | {name} if isinstance(name, str) and name.endswith(".onnx") else inner


def _notes(base: Mapping[str, Any], config: Mapping[str, Any], target: Target) -> list[str]:
    notes = [
        f"{NAME} leaves out the option {key}: it names a file of this machine"
        for key, value in target.options.items()
        if is_file(value)
    ]
    decoder = config["model"]["decoder"]
    layers = base.get("model", {}).get("decoder", {}).get("num_hidden_layers")
    if layers not in (None, decoder["num_hidden_layers"]):
        notes.append(
            f"{NAME} has num_hidden_layers {decoder['num_hidden_layers']} for {layers}: the "
            "runtime counts caches with it, and the other layers have none"
        )
    if "sliding_window" in decoder:
        pad = config["model"].get("pad_token_id", 0)
        right = decoder["sliding_window"]["alignment"] == "right"
        where = "begins or ends" if right else "ends"
        notes.append(
            f"onnxruntime-genai takes {pad} (pad_token_id) for padding where a prompt that it "
            f"reads in windows {where} with it; no prompt may"
        )
    return notes
