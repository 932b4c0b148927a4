"""One mask value: what constants add to the scores of hidden keys becomes a given number.

Exporters hide a key by the lowest float or by -inf, which then takes the whole range that an
activation is quantized to. Any number far below the scores hides as well: a constant that is a
mask and nothing else on its way to a softmax (:mod:`rewriter.passes.mask_flow`) gets the given
one; its other numbers, zeros above all, stay. Used elsewhere too, it is copied. It stays, with a
reason, where rows that are hidden whole are sure to give something else; those of -inf that torch
makes 0 stay 0 (:mod:`rewriter.passes.mask_guard`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from rewriter.passes.mask_flow import Use, Way, filled, follow, sources
from rewriter.passes.mask_guard import Guard, ask_masks
from rewriter.passes.mask_rows import HIDES, hidden_rows
from rewriter.record import MaskChange, MaskKept
from rewriter.tape import names_in

_NUMBERS = 2
"""Different numbers that a mask may hide by: -inf and the lowest float, say."""
_UNDERFLOW = -104.0
"""e to this is 0 in float32."""


@dataclass
class _Found:
    """A constant that hides keys: the numbers, and where each of its uses leads."""

    value: ir.Value
    old: float
    new: float
    ways: dict[Use, Way]

    def good(self) -> list[Way]:
        """The ways on which it is a mask and nothing else."""
        return [way for way in self.ways.values() if way.ends and not way.why]


class MaskValue(InPlacePass):
    """Replaces the numbers that hide keys, in constants of -1e4 and below.

    Args:
        value: what to hide by, from -3e4 (two of them added stay finite in fp16) to -50.

    Attributes:
        changes: what was replaced.
        kept: what was not, and why.
        notes: what a person should know of it.
    """

    def __init__(self, value: float) -> None:
        super().__init__()
        self.changes: list[MaskChange] = []
        self.kept: list[MaskKept] = []
        self.notes: list[str] = []
        self._value = value

    def call(self, model: ir.Model) -> PassResult:
        """Replace them in the main graph, the graphs inside it, and functions."""
        found = [one for value in sources(model) if (one := self._found(value)) is not None]
        noted: list[float] = []
        guards: list[tuple[Way, tuple[Guard, ...]]] = []
        for one in found:
            for way in one.good():
                rows = hidden_rows(model, way, one.old)
                way.why = rows.why
                guards.append((way, rows.guards))
                noted += [one.old] if rows.noted and not rows.why else []
        _settle(found)
        moved: dict[ir.Value, dict[Use, None]] = {}
        for one in found:
            self._tell(one)
            for use, way in one.ways.items():
                if way.ends and not way.why:
                    moved.setdefault(one.value, {})[use] = None
                    for node, at in way.equals:
                        if (asked := node.inputs[at]) is not None:
                            moved.setdefault(asked, {})[node, at] = None
        names = names_in(model.graph).union(*map(names_in, model.functions.values()))
        for value, uses in moved.items():
            _hold(value, self._value, uses, names)
        asking = [guard for way, asked in guards for guard in asked if not way.why]
        ask_masks(model, list(dict.fromkeys(asking)), self._value, names)
        if self.changes:
            self._say(noted)
        return PassResult(model, modified=bool(self.changes))

    def _found(self, value: ir.Value) -> _Found | None:
        """A constant with numbers to replace, where they come to a softmax."""
        tensor = filled(value)
        assert tensor is not None
        array = tensor.numpy().astype(np.float64)
        numbers = np.unique(array[array <= HIDES])
        new = float(_stored(self._value, tensor))
        if not numbers.size or (numbers == new).all():
            return None
        old = float(numbers[0])
        uses = [(use.node, use.idx) for use in value.uses()]
        found = _Found(value, old, new, {use: follow(use, old, new) for use in uses})
        why = "it is above the new one already" if old > new else ""
        if numbers.size > _NUMBERS:
            why = f"{numbers.size} numbers from {old:g} to {numbers[-1]:g} are no mask"
        for way in found.ways.values():
            way.why = way.why or why
        return found if any(way.ends for way in found.ways.values()) else None

    def _tell(self, found: _Found) -> None:
        """Record what becomes of a constant."""
        name = found.value.name or ""
        if good := found.good():
            sites = {node.name or "": None for way in good for node, _ in way.sites}
            self.changes.append(MaskChange(name, found.old, found.new, tuple(sites)))
        kept = [way.why for way in found.ways.values() if way.ends and way.why]
        self.kept += [MaskKept(name, found.old, why) for why in kept[:1]]

    def _say(self, noted: list[float]) -> None:
        new = self._value
        self.notes += [
            f"rows that hide every key, if there are any (of padding, say), get the weights of "
            f"their scores by the mask value {new:g}; {old:g} does not give those"
            for old in dict.fromkeys(noted)
        ]
        if new > _UNDERFLOW:
            self.notes.append(
                f"by the mask value {new:g} a hidden key keeps e^{new:g} of its weight: nothing, "
                "unless scores of a row are far apart; parity shows it"
            )


def _settle(found: list[_Found]) -> None:
    """Give up masks that are asked for their number together with one that keeps it."""
    while True:
        ways = [way for one in found for way in one.ways.values() if way.ends]
        kept = {node for way in ways if way.why for node in way.seen}
        torn = [w for w in ways if not w.why and any(node in kept for node, _ in w.equals)]
        if not torn:
            return
        for way in torn:
            way.why = f"Equal '{way.equals[0][0].name}' asks for it in a mask that keeps it"


def _stored(number: float, tensor: ir.TensorProtocol) -> np.ndarray:
    """A number as the type of a tensor stores it."""
    return np.array(number).astype(tensor.dtype.numpy())


def _hold(value: ir.Value, number: float, uses: Iterable[Use], names: set[str]) -> None:
    """Let some uses of a constant find another number where it hides keys."""
    tensor, node, wanted = filled(value), value.producer(), set(uses)
    assert tensor is not None
    array = tensor.numpy()
    wide = array.astype(np.float64)
    other = np.where((wide <= HIDES) & (wide < number), _stored(number, tensor), array)
    held = value
    if value.is_graph_output() or any((use.node, use.idx) not in wanted for use in value.uses()):
        held = _copy(value, names)
        for user, at in wanted:
            user.replace_input_with(at, held)
        node = held.producer()
    new = ir.Tensor(other.astype(array.dtype), dtype=tensor.dtype, name=held.name)
    if node is None:
        held.const_value = new
        return
    node.attributes.clear()
    node.attributes.add(ir.AttrTensor("value", new))
    held.const_value = None


def _copy(value: ir.Value, names: set[str]) -> ir.Value:
    """The same constant once more, beside it."""
    name, count = f"{value.name}/masked", 0
    while name in names:
        count += 1
        name = f"{value.name}/masked_{count}"
    names.add(name)
    made, graph = value.producer(), value.graph
    if made is None:
        held = ir.Value(
            name=name, type=value.type, shape=value.shape, const_value=value.const_value
        )
        assert isinstance(graph, ir.Graph)
        graph.register_initializer(held)
        return held
    node = ir.Node(made.domain, made.op_type, made.inputs, made.attributes.values(), name=name)
    held = node.outputs[0]
    held.name, held.type, held.shape = name, value.type, value.shape
    assert made.graph is not None
    made.graph.insert_after(made, node)
    return held
