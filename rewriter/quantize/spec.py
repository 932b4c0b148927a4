"""What is asked for, and what became of each weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Method = Literal["rtn", "kquant"]
Grain = Literal["block", "channel"]
METHODS: tuple[Method, ...] = ("rtn", "kquant")
GRAINS: tuple[Grain, ...] = ("block", "channel")
BITS = (4, 8)


@dataclass(frozen=True, slots=True)
class WeightQuantization:
    """How float weights are quantized.

    Attributes:
        bits: 4 or 8.
        method: ``rtn`` rounds to the nearest of codes around the middle, so that there are no zero
            points; ``kquant`` searches scale and zero point of each block for the least error.
            Both are ONNX Runtime's.
        max_error: largest relative error of a layer (:attr:`WeightError.rms`): a weight of 4 bits
            that exceeds it takes 8, and one of 8 bits stays float.
        grain: ``block``: a scale for 32 values of a column; ``channel``: one for a whole column,
            also for weights that have been in blocks so far.
        embeddings: tables of token embeddings too. One that is also the weight of a quantized head
            always is, so that it stays one table.

    Raises:
        ValueError: there is no such form.
    """

    bits: int = 4
    method: Method = "rtn"
    max_error: float | None = None
    grain: Grain = "block"
    embeddings: bool = False

    def __post_init__(self) -> None:
        if self.bits not in BITS:
            raise ValueError(f"{self.bits} bits: it is 4 or 8")
        if self.method == "kquant" and self.grain == "channel":
            raise ValueError("kquant searches blocks: it has no form with a scale per channel")
        if self.max_error is not None and not 0 < self.max_error < 1:
            raise ValueError(f"an error of {self.max_error:g}: it is between 0 and 1")


@dataclass(frozen=True, slots=True)
class WeightError:
    """One float weight that was to be quantized.

    Attributes:
        weight: its name.
        nodes: that read it.
        bits: of its codes; 0 where it stays as it is.
        block: values that share a scale; 0 where a whole column does.
        method: how it was quantized.
        rms: ``|W' - W|`` over ``|W|``, Frobenius norms, of what it became: the relative error of
            the layer's output where the channels of its input are uncorrelated and equally large;
            with ``measured``, each channel counts by the mean square of its inputs.
        steps: largest ``|w' - w|`` in steps of its block.
        measured: the channels were weighted by inputs of a run.
        rms4: ``rms`` of 4 bits where they were not enough.
        note: why it stays, or what else should be known.
    """

    weight: str
    nodes: tuple[str, ...]
    bits: int = 0
    block: int = 0
    method: str = ""
    rms: float = 0.0
    steps: float = 0.0
    measured: bool = False
    rms4: float | None = None
    note: str = ""
