"""What the command was asked to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from capabilities import Target
from rewriter.quantize.spec import WeightQuantization

LEVELS = ("none", "sites", "model", "device")
"""Levels of parity, each with the ones before it."""
MASK_VALUES = (-3e4, -50.0)
"""Range of a mask value: two added in fp16 stay finite, and e^-50 is no weight beside a 1."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command was asked to do.

    Attributes:
        model: the file to read.
        target: what to rewrite it for.
        output: the folder to write; ``None`` writes nothing.
        overwrite: replace a folder that holds something.
        dims: values of dims.
        disable: rules not to use.
        allow_stuck: keep what could be done.
        parity: one of :data:`LEVELS`.
        place: ask the real runtime where nodes run.
        runtime: an interpreter whose runtime is asked instead of this one's.
        static: ``prefill``, ``decode`` or ``both``: graphs with a cache of fixed size; empty for
            one graph with the dims as given.
        seq: new tokens of the graph that reads prompts; 0 for a default.
        max_seq_len: rows of the cache; 0 for a default.
        split: into how many parts of layers a graph is cut; 0 for one whole file.
        compile: make what an NPU loads, for :attr:`target`'s SoC.
        budget: minutes that comparing and placing may take together.
        seed: of all random inputs.
        mask_value: what is added to the score of a hidden key; ``None`` leaves what the model has.
        quantize: how float weights become integers; ``None`` leaves them as they are.
        activations: bits that activations are quantized to, 8 or 16; 0 leaves them floats.
        calibrate: on what their ranges are measured, see :mod:`rewriter.activations.prompts`.
        drawn: keep where each node runs, for a picture of the graph.
    """

    model: Path
    target: Target
    output: Path | None
    overwrite: bool = False
    dims: Mapping[str, int] = field(default_factory=dict)
    disable: Sequence[str] = ()
    allow_stuck: bool = False
    parity: str = "model"
    place: bool = True
    runtime: Path | None = None
    static: str = ""
    seq: int = 0
    max_seq_len: int = 0
    split: int | Literal["auto"] = 0
    compile: bool = False
    budget: float = 10.0
    seed: int = 0
    mask_value: float | None = None
    quantize: WeightQuantization | None = None
    activations: Literal[0, 8, 16] = 0
    calibrate: str = "auto"
    drawn: bool = False
