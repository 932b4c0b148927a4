"""Names that a configuration gives to inputs and outputs of graphs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rewriter.genai.graphs import GraphFile, Port, given, taken

INPUTS = {
    "input_ids": "input_ids",
    "attention_mask": "attention_mask",
    "position_ids": "position_ids",
    "past_key_names": "past_key_values.%d.key",
    "past_value_names": "past_key_values.%d.value",
}
OUTPUTS = {
    "logits": "logits",
    "present_key_names": "present.%d.key",
    "present_value_names": "present.%d.value",
}
"""What onnxruntime-genai assumes where a configuration says nothing (``src/config.h``)."""

_STEP = ("input_ids", "attention_mask", "position_ids")


@dataclass(frozen=True, slots=True)
class Interface:
    """How the graphs of one phase are driven.

    Attributes:
        step: inputs of a step, by what the runtime calls them (``input_ids``, ...).
        logits: the output.
        pasts: caches by their number, key and value of each.
        presents: the same of the outputs.
        crossing: presents that a later part reads.
        others: inputs and outputs that have no such role.
    """

    step: Mapping[str, Port]
    logits: Port | None
    pasts: Mapping[int, tuple[Port, Port]]
    presents: Mapping[int, tuple[Port, Port]]
    crossing: tuple[str, ...]
    others: tuple[str, ...]


def interface(
    graphs: Sequence[GraphFile], inputs: Mapping[str, str], outputs: Mapping[str, str]
) -> Interface:
    """Find the roles of what the parts of a phase take and give.

    Args:
        graphs: of the phase, in order.
        inputs: names, as ``decoder.inputs`` gives them.
        outputs: as ``decoder.outputs`` does.
    """
    needed, made = taken(graphs), given(graphs)
    step = {role: needed[inputs[role]] for role in _STEP if inputs.get(role) in needed}
    pasts = _numbered(needed, inputs["past_key_names"], inputs["past_value_names"])
    all_made = {name: port for graph in graphs for name, port in graph.outputs.items()}
    presents = _numbered(all_made, outputs["present_key_names"], outputs["present_value_names"])
    known = {inputs[role] for role in step} | {outputs["logits"]}
    for kind in ("past_key_names", "past_value_names"):
        known |= {filled(inputs[kind], i) for i in pasts}
    for kind in ("present_key_names", "present_value_names"):
        known |= {filled(outputs[kind], i) for i in presents}
    others = tuple(name for name in (*needed, *made) if name not in known)
    crossing = tuple(name for name in all_made if name in known and name not in made)
    return Interface(step, made.get(outputs["logits"]), pasts, presents, crossing, others)


def names_of(decoder: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Names of inputs and outputs that a configuration states or implies."""
    return {**INPUTS, **decoder.get("inputs", {})}, {**OUTPUTS, **decoder.get("outputs", {})}


def filled(template: str, number: int) -> str:
    """A name made of a template such as ``present.%d.key``."""
    return template.replace("%d", str(number), 1)


def _numbered(ports: Mapping[str, Port], key: str, value: str) -> dict[int, tuple[Port, Port]]:
    both = sorted(numbers(ports, key) & numbers(ports, value))
    return {i: (ports[filled(key, i)], ports[filled(value, i)]) for i in both}


def numbers(names: Iterable[str], template: str) -> set[int]:
    """The numbers with which a template gives one of some names."""
    front, _, back = template.partition("%d")
    pattern = re.compile(f"{re.escape(front)}(\\d+){re.escape(back)}")
    return {int(match[1]) for name in names if (match := pattern.fullmatch(name))}
