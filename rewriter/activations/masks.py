"""What hides a key, chosen so that it takes little of the range that scores are quantized to."""

from __future__ import annotations

import math
from collections.abc import Mapping

import onnx_ir as ir

from rewriter.activations.model import Range
from rewriter.nodes import constant, dims_of
from rewriter.passes.mask_value import MaskValue
from rewriter.settings import MASK_VALUES

_STEP = math.log(2**17)
"""A weight of e to minus this is half a step of a softmax in 16 bits."""


def sites_of(model: ir.Model) -> list[ir.Node]:
    """Nodes where a constant that hides keys meets scores; the model stays as it is."""
    trial = MaskValue(MASK_VALUES[1])
    copy = model.clone()
    trial(copy)
    names = {name for change in trial.changes for name in change.sites}
    return [node for node in model.graph if node.name in names]


def value_for(sites: list[ir.Node], ranges: Mapping[str, Range]) -> float | None:
    """The mask value that changes no softmax of these scores by a step; ``None`` if unknown.

    Scores that are ``width`` apart and ``keys`` many hidden ones leave the weight of a row's
    largest score above ``1 - keys·e^(width + value)``.
    """
    wanted = MASK_VALUES[1]
    for node in sites:
        scores = [v for v in node.inputs if v is not None and v.name in ranges]
        scores = [v for v in scores if constant(v) is None and not _is_mask(v, ranges)]
        if not scores:
            return None
        for value in scores:
            keys = (dims_of(value) or (1,))[-1] or 1
            width = ranges[value.name or ""].width
            wanted = min(wanted, -math.ceil(width + math.log(keys) + _STEP))
    return max(wanted, MASK_VALUES[0]) if sites else None


def _is_mask(value: ir.Value, ranges: Mapping[str, Range]) -> bool:
    """Whether it is what hides, and not what is hidden: it reaches further than scores do."""
    return ranges[value.name or ""].low <= MASK_VALUES[0] / 3


def replace_masks(model: ir.Model, value: float) -> list[str]:
    """Replace the constants; what a person should know of those that stay."""
    masks = MaskValue(value)
    masks(model)
    return [f"'{kept.value}' keeps {kept.old:g}: {kept.why}" for kept in masks.kept]
