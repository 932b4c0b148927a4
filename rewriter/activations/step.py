"""From a lowered graph in floats to the same with quantized activations."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import onnx_ir as ir

from capabilities import Target
from rewriter.activations.choose import Choice, activations_of, choose
from rewriter.activations.feeding import Calibration
from rewriter.activations.insert import Insertion
from rewriter.activations.masks import replace_masks, sites_of, value_for
from rewriter.activations.model import QuantizedActivations, Range
from rewriter.activations.ranges import observed
from rewriter.activations.scales import shared_ranges
from rewriter.errors import BadInput
from rewriter.nodes import constant, op_of, opset_of
from rewriter.parity.widen import half_of
from rewriter.passes.unused import remove_unused

_OPSET = 21
"""Of QuantizeLinear with 16 bits, and of DequantizeLinear with 4 bits and blocks."""


def quantize_activations(
    model: ir.Model,
    floats: Path,
    target: Target,
    bits: int,
    given: Calibration,
    *,
    mask_value: float | None = None,
) -> QuantizedActivations:
    """Quantize the activations of a graph in place.

    Args:
        model: lowered for the target.
        floats: the file it was written to.
        target: whose rows say which units it runs.
        bits: 16 or 8.
        given: what to calibrate on.
        mask_value: what hides keys, where a person asked for it; else it is chosen.

    Raises:
        BadInput: the graph cannot have quantized activations.
        RuntimeFault: ONNX Runtime fails.
    """
    _require(model)
    outcome = QuantizedActivations(bits, given.source)
    choice = choose(model, target, bits)
    if not choice.units:
        raise BadInput(
            f"--activations a{bits}: the table has no row of {target} that speaks of quantized "
            "activations for any node of the graph"
        )
    ranges = observed(floats, _names(choice, sites := sites_of(model)), given)
    if mask_value is None and (value := value_for(sites, ranges)) is not None:
        outcome.mask_value = value
        outcome.notes += replace_masks(model, value)
        again = floats.with_name(f"masked-{floats.name}")
        ir.save(model, again)
        ranges = observed(again, _names(choice, []), given)
    found = _ranged(choice, ranges, outcome)
    Insertion(model, choice, found).run()
    remove_unused(model)  # packed weights whose form is another now
    outcome.units = dict(Counter(dtype.bitwidth for dtype in choice.units.values()))
    outcome.weights = dict(Counter(str(form) for form in choice.forms.values()))
    outcome.kept = choice.kept
    if floats_left := sum(map(_float_weight, choice.units)):
        outcome.notes.append(
            f"{floats_left} products keep a stored factor in floats; --quantize makes weights of a "
            "float model integers"
        )
    outcome.floats = choice.floats
    return outcome


def _float_weight(node: ir.Node) -> bool:
    """Whether a product is with a stored matrix of floats."""
    return op_of(node) in {"Gemm", "MatMul"} and any(
        (stored := constant(value)) is not None
        and stored.dtype == ir.DataType.FLOAT
        and len(stored.shape) > 1
        for value in node.inputs
    )


def _require(model: ir.Model) -> None:
    """The graph has the types and the opset that the new nodes need."""
    if (half := half_of(model)) is not None:
        raise BadInput(
            f"--activations: the model computes in {half.name.lower()}; calibrate it in float32"
        )
    opset = opset_of("QuantizeLinear", model.opset_imports)
    if opset < _OPSET:
        raise BadInput(
            f"--activations: the graph is of opset {opset}, and activations of 16 bits need "
            f"{_OPSET}; export it so"
        )


def _names(choice: Choice, sites: list[ir.Node]) -> set[str]:
    """Values whose ranges are needed."""
    read = [value for node in [*choice.units, *sites] for value in activations_of(node)]
    made = [value for node in choice.units for value in node.outputs]
    return {v.name for v in [*read, *made] if v.name and v.dtype == ir.DataType.FLOAT}


def _ranged(
    choice: Choice, ranges: dict[str, Range], outcome: QuantizedActivations
) -> dict[ir.Value, Range]:
    """Ranges of all units; those without one (a value that is not finite) become floats again."""
    while True:
        found = shared_ranges(choice.units, ranges)
        lost = [
            node
            for node in choice.units
            if any(
                value not in found
                for value in [*activations_of(node), *node.outputs]
                if value.dtype == ir.DataType.FLOAT
            )
        ]
        if not lost:
            return found
        for node in lost:
            del choice.units[node]
            choice.forms.pop(node, None)
            outcome.notes.append(f"'{node.name}' stays float: it takes numbers that are not finite")
        lost_names = {node.name for node in lost}
        choice.kept = [kept for kept in choice.kept if kept.node not in lost_names]
