"""Quantizing the weights of a model in place, each into the fewest bits that its error allows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from rewriter.passes.unused import remove_unused
from rewriter.quantize.kernels import Codes, Quantizers, by_channel
from rewriter.quantize.matrices import Floats
from rewriter.quantize.places import Editor, Place, places
from rewriter.quantize.spec import BITS, WeightError, WeightQuantization
from rewriter.quantize.written import Form, Quantize, Weights
from rewriter.shapes import forget_symbols, infer_model
from rewriter.site import Refusal

Importance = Mapping[str, npt.NDArray[np.float64]]
"""By the name of a node: how much each channel of its input counts, (K,)."""


def quantize_weights(
    model: ir.Model,
    spec: WeightQuantization,
    folder: Path,
    importance: Importance | None = None,
) -> list[WeightError]:
    """Replace products of float weights by MatMulNBits, and tables by GatherBlockQuantized.

    One weight is in memory at a time, and of a stored one only a strip of it.

    Args:
        model: edited in place; its new weights lie in files of the folder.
        spec: how.
        folder: that lives as long as the model.
        importance: the mean square of each channel of a node's input, where it was measured.

    Returns:
        A line for each weight that could be meant, also of those that stay.

    Raises:
        RuntimeFault: onnxruntime is not installed, or fails.
        OutOfResources: the disk is full.
    """
    infer_model(model)
    weights: dict[tuple[ir.Value, bool, ir.DataType], list[Place]] = {}
    for place in places(model, again=spec.grain == "channel"):
        matrix = place.matrix
        weights.setdefault((matrix.value, matrix.rows, matrix.dtype), []).append(place)
    with ExitStack() as stack:
        run = _Run(model, spec, folder, importance or {}, stack)
        found = [run.quantized(readers) for readers in weights.values()]
    remove_unused(model)
    forget_symbols(model)
    return found


class _Run:
    """Quantizes one weight after the other."""

    def __init__(
        self,
        model: ir.Model,
        spec: WeightQuantization,
        folder: Path,
        importance: Importance,
        stack: ExitStack,
    ) -> None:
        self._spec, self._importance = spec, importance
        self._weights = stack.enter_context(Weights(folder))
        self._stack, self._kernels = stack, None
        self._editor = Editor(model)

    _kernels: Quantizers | None

    def quantized(self, readers: list[Place]) -> WeightError:
        """Quantize a weight for all that read it."""
        matrix = readers[0].matrix
        names = tuple(place.node.name or "" for place in readers)
        told = WeightError(matrix.name, names)
        products = [place for place in readers if not place.table]
        if not products and not self._spec.embeddings:
            return replace(told, note="it is looked up only, and embeddings were not asked for")
        flaws = [flaw for place in products or readers if (flaw := place.flaw())]
        if flaws:
            return replace(told, note=flaws[0])
        channels = self._channels(readers)
        form, rms4 = self._form(readers[0], channels)
        told = replace(told, rms=form.rms, rms4=rms4, measured=channels is not None)
        if not math.isfinite(form.rms):
            self._weights.forget(form)
            return replace(told, note="it holds numbers that are not finite")
        if not self._allowed(form):
            self._weights.forget(form)
            return replace(told, note=f"{form.bits} bits are off by more than was allowed")
        return self._placed(readers, form, told)

    def _placed(self, readers: list[Place], form: Form, told: WeightError) -> WeightError:
        kept: list[str] = []
        self._weights.flush()
        for place in readers:
            try:
                self._editor.replace(place, form)
            except Refusal as refusal:
                kept.append(f"'{place.node.name}' keeps the floats: {refusal}")
        if len(kept) == len(readers):
            return replace(told, rms=0.0, rms4=None, note=kept[0])
        return replace(
            told,
            bits=form.bits,
            block=0 if self._spec.grain == "channel" else form.block,
            method="rtn" if self._spec.grain == "channel" else self._spec.method,
            steps=form.steps,
            note="; ".join(kept),
        )

    def _form(
        self, place: Place, channels: npt.NDArray[np.float64] | None
    ) -> tuple[Form, float | None]:
        """The fewest bits from those asked for on, and the error of 4 where they were too few."""
        rms4 = None
        for bits in BITS:
            if bits < self._spec.bits:
                continue
            form = self._weights.made(place.matrix, bits, self._quantize(), channels)
            if self._allowed(form) or bits == BITS[-1]:
                return form, rms4
            rms4 = form.rms
            self._weights.forget(form)
        raise AssertionError(self._spec.bits)

    def _allowed(self, form: Form) -> bool:
        most = self._spec.max_error
        return most is None or form.rms <= most

    def _channels(self, readers: list[Place]) -> npt.NDArray[np.float64] | None:
        """How much each row of a weight counts: the mean of its readers, where all are known."""
        products = [place for place in readers if not place.table]
        known = [self._importance.get(place.node.name or "") for place in products]
        found = [one for one in known if one is not None]
        if not found or len(found) < len(products):
            return None
        mean: npt.NDArray[np.float64] = np.mean(found, axis=0)
        return mean

    def _quantize(self) -> Quantize:
        if self._spec.grain == "channel":
            return by_channel
        if self._kernels is None:
            self._kernels = self._stack.enter_context(Quantizers())
        kernels, method = self._kernels, self._spec.method

        def quantize(columns: Floats, bits: int) -> Codes:
            return kernels.quantized(columns, method, bits)

        return quantize
