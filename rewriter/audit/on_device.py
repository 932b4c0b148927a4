"""Where a device departs from ONNX Runtime's CPU on one and the same graph.

Some values are asked for at a time, of those that the bad one is made of and that are not known to
be right; the first that is beyond the bound of the device takes its place, until all before it are
right. Few at a time, as a device that hands a value out does not fuse the node that makes it with
the next.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import onnx_ir as ir

from rewriter.activations.device import check_steps
from rewriter.audit.seen import entry, maker, part, seen_name, visible
from rewriter.commit import RULE, SOURCE
from rewriter.errors import RuntimeFault
from rewriter.extract import between, leaves
from rewriter.nodes import op_of
from rewriter.output import disk
from rewriter.parity.device import DeviceRun, check_device
from rewriter.parity.domains import Array
from rewriter.parity.feeds import layout
from rewriter.parity.outputs import OutputParity
from rewriter.parity.trial import Outputs, Side, Trial, exact_outputs, read_by
from rewriter.placement import Placement, place

FILES = ("model.onnx", "inputs.npz", "expected.npz", "device.npz")
"""What is written: the part, what it is fed, what ONNX Runtime's CPU and what the device gives."""

_AT_A_TIME = 16
"""Values that one session hands out."""


@dataclass(frozen=True, slots=True)
class Device:
    """What is asked.

    Attributes:
        ep: ``qnn`` or another that :func:`~rewriter.placement.place` knows.
        python: the interpreter whose runtime is used; this one when None.
        folder: a temporary one.
        time_limit: seconds for each run.
    """

    ep: str
    python: Path | None
    folder: Path
    time_limit: float


@dataclass(frozen=True, slots=True)
class Departure:
    """The first value at which a device departs.

    Attributes:
        value: its name.
        node: name of the node that computes it.
        op: of that node.
        rule: that built the node; empty where it is no rule's.
        source: name of the node that the rule replaced.
        parity: the error there, in the whole graph, and what it was held to.
        nodes: names of the nodes between the values that agree and this one.
        agreed: names of those values.
        alone: the error of these nodes alone, fed with what ONNX Runtime computes: within the
            bound, where errors before have only added up.
    """

    value: str
    node: str
    op: str
    rule: str
    source: str
    parity: OutputParity
    nodes: tuple[str, ...]
    agreed: tuple[str, ...]
    alone: OutputParity


@dataclass
class DeviceAudit:
    """A graph on a device and on ONNX Runtime's CPU.

    Attributes:
        runtime: the device's, with versions.
        on_cpu: nodes of the graph that the runtime leaves to the CPU.
        outputs: each output's error, and what it was held to.
        scenarios: what was fed, in words.
        departure: where it begins; ``None`` if the outputs are within their bounds.
        asked: inner values that were compared.
        note: what else must be known of the departure.
    """

    runtime: str
    on_cpu: int
    outputs: tuple[OutputParity, ...]
    scenarios: tuple[str, ...]
    departure: Departure | None = None
    asked: int = 0
    note: str = ""

    @property
    def ok(self) -> bool:
        """Every output is within its bound."""
        return bool(self.outputs) and all(output.ok for output in self.outputs)


@dataclass
class _Known:
    """What is known of values so far."""

    right: set[ir.Value] = field(default_factory=set)
    silent: set[ir.Value] = field(default_factory=set)


def audit_device(side: Side, given: Trial, device: Device, dump: Path | None = None) -> DeviceAudit:
    """Compare a device with ONNX Runtime's CPU, and look for where it departs.

    Args:
        side: the model; its graph is left as it is.
        given: what to feed.
        device: whose runtime is asked.
        dump: an empty folder for the part that shows the departure.

    Raises:
        OutOfResources: the disk is full.
        RuntimeFault: one of the two runtimes fails.
    """
    return _Search(side, given, device).run(dump)


class _Search:
    def __init__(self, side: Side, given: Trial, device: Device) -> None:
        self._model, self._given, self._device = side.model, given, device
        self._quantized = any(op_of(node) == "QuantizeLinear" for node in side.model.graph)
        self._visible = visible(side.model)
        self._known = _Known()

    def run(self, dump: Path | None) -> DeviceAudit:
        ends = list(self._model.graph.outputs)
        outputs, placed, _ = self._compared(part(self._model, ends), self._given)
        scenarios = tuple(str(scenario) for scenario in self._given.scenarios)
        found = DeviceAudit(placed.runtime, placed.on_cpu, outputs, scenarios)
        wrong = {one.name: one for one in outputs if one.error is not None and not one.ok}
        first = next((value for value in self._in_order(ends) if value.name in wrong), None)
        if first is not None and first.producer() is not None:
            value, parity = self._narrowed(first, wrong[first.name or ""], found)
            found.departure = self._departure(value, parity, dump)
        return found

    def _in_order(self, values: Collection[ir.Value]) -> list[ir.Value]:
        return [v for node in self._model.graph for v in node.outputs if v in values]

    def _narrowed(
        self, bad: ir.Value, parity: OutputParity, found: DeviceAudit
    ) -> tuple[ir.Value, OutputParity]:
        """The first value beyond its bound whose sources are within theirs."""
        known = self._known
        while above := self._above(bad):
            asked = _spread(above)
            judged, _, _ = self._compared(part(self._model, [*asked, bad]), self._given)
            by_name = {one.name: one for one in judged}
            found.asked += len(asked)
            wrong = [v for v in asked if _wrong(by_name[seen_name(v)])]
            if wrong:
                bad, parity = wrong[0], by_name[seen_name(wrong[0])]
            elif not _wrong(by_name[seen_name(bad)]):
                found.note = (
                    f"'{bad.name}' is right when values before it are handed out too: the device "
                    "fuses the nodes between"
                )
                break
            good = [v for v in asked if v not in wrong and by_name[seen_name(v)].ok]
            known.right.update(good)
            known.silent.update(v for v in asked if v not in wrong and v not in good)
        return bad, parity

    def _above(self, bad: ir.Value) -> list[ir.Value]:
        """Values that the bad one is made of, up to those that are right, and not looked at yet."""
        found, waiting, seen = set[ir.Value](), [bad], {bad}
        while waiting:
            node = waiting.pop().producer()
            for value in node.inputs if node is not None else ():
                if value is not None and value not in seen and value not in self._known.right:
                    seen.add(value)
                    found.add(value)
                    waiting.append(value)
        return [v for v in self._visible if v in found and v not in self._known.silent]

    def _departure(self, bad: ir.Value, parity: OutputParity, dump: Path | None) -> Departure:
        right = {entry(value): value for value in self._known.right}
        ends = leaves([bad], right) & {*right, *self._model.graph.inputs}
        begins = {value: right.get(value, value) for value in ends}
        model = part(self._model, [bad], set(begins))
        alone = self._alone(model, begins, dump)
        node = maker(bad)
        within = between([bad], {*begins, *self._model.graph.inputs})
        return Departure(
            bad.name or "",
            node.name or "",
            op_of(node),
            node.metadata_props.get(RULE, ""),
            node.metadata_props.get(SOURCE, ""),
            parity,
            tuple(one.name or "" for one in self._model.graph if one in within),
            tuple(sorted(value.name or "" for value in begins.values())),
            alone,
        )

    def _alone(
        self, model: ir.Model, begins: Mapping[ir.Value, ir.Value], dump: Path | None
    ) -> OutputParity:
        """The part between on what ONNX Runtime computes for the values before it."""
        inner = [value for value in begins.values() if value.producer() is not None]
        values: Outputs = [{} for _ in self._given.feeds]
        if inner:
            asked = part(self._model, inner)
            values = self._exact(self._saved(asked), self._given)
        feeds = tuple(
            {
                start.name or "": _of_type(one[seen_name(value)], start)
                if value in inner
                else feed[value.name or ""]
                for start, value in begins.items()
                if value in inner or value.name in feed
            }
            for one, feed in zip(values, self._given.feeds, strict=True)
        )
        whole = self._given.sizes
        sizes = replace(whole, shapes=layout(model, part_of=whole).shapes)
        given = replace(self._given, sizes=sizes, feeds=feeds)
        judged, placed, exact = self._compared(model, given)
        if dump is not None:
            self._dump(model, feeds[0], exact[0], placed.outputs[0], dump)
        return judged[0]

    def _dump(
        self,
        model: ir.Model,
        feed: Mapping[str, Array],
        exact: Mapping[str, Array],
        device: Mapping[str, Array],
        folder: Path,
    ) -> None:
        data = f"{FILES[0]}.data"
        with disk(folder):
            ir.save(model, folder / FILES[0], external_data=data, size_threshold_bytes=1 << 20)
            for name, arrays in zip(FILES[1:], (feed, exact, device), strict=True):
                np.savez(folder / name, **arrays)  # type: ignore[arg-type]  # numpy's stub takes keywords for allow_pickle

    def _saved(self, model: ir.Model) -> Side:
        file = self._device.folder / "device.onnx"
        with disk(file.parent):
            ir.save(model, file, external_data=f"{file.name}.data")
        return Side(ir.load(file), file)

    def _exact(self, side: Side, given: Trial) -> Outputs:
        file, limit = self._device.folder / "exact.onnx", self._device.time_limit
        return exact_outputs(side, given, file, limit)

    def _compared(
        self, model: ir.Model, given: Trial
    ) -> tuple[tuple[OutputParity, ...], Placement, Outputs]:
        """Every output of a model on the device, judged, and what ONNX Runtime computes."""
        device, side = self._device, self._saved(model)
        placed = place(
            side.file,
            ep=device.ep,
            options={},
            python=device.python,
            time_limit=device.time_limit,
            feeds=read_by(model, given),
        )
        if not placed.outputs:
            raise RuntimeFault("error", f"{placed.runtime} does not run the model: {placed.note}")
        exact = self._exact(side, given)
        run = DeviceRun(side, given, exact, placed.outputs, device.ep)
        if self._quantized:
            return tuple(one.output for one in check_steps(run, ())), placed, exact
        return check_device(run, device.folder, device.time_limit), placed, exact


def _wrong(parity: OutputParity) -> bool:
    return parity.error is not None and not parity.ok


def _spread(values: Sequence[ir.Value]) -> list[ir.Value]:
    """Some of many, at equal distances, the last among them."""
    count = min(len(values), _AT_A_TIME)
    return [values[len(values) * (at + 1) // count - 1] for at in range(count)]


def _of_type(array: Array, value: ir.Value) -> Array:
    dtype = value.dtype
    return array if dtype is None else array.astype(dtype.numpy())
