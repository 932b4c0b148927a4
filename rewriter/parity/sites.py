"""Parity of sites: each kind of site that a rule took, original node against replacement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx_ir as ir

from rewriter.errors import BadInput, RuntimeFault
from rewriter.extract import leaves
from rewriter.nodes import constant, op_of, opset_of, static_dims
from rewriter.parity.compare import BadReference, Error, compare_runs
from rewriter.parity.domains import DOMAINS, Array
from rewriter.parity.feeds import Feeds, random_array
from rewriter.parity.nudge import nudged
from rewriter.parity.outputs import InHalf, in_half
from rewriter.parity.settings import EXACT, NUDGE_FACTOR, SITE_FACTOR, drop_accuracy_level
from rewriter.parity.trial import Outputs
from rewriter.parity.widen import NotWidenable, half_of, widened, widened_array
from rewriter.record import Fired
from rewriter.runtime import child
from rewriter.schemas import schema_of

_SEEDS = 3


@dataclass(frozen=True, slots=True)
class SiteParity:
    """One kind of site: how far the replacement is from the original.

    Attributes:
        rule: the rule that fired.
        signature: what is common to the sites of this kind.
        count: how many there are.
        error: largest over outputs and seeds; ``None`` if it could not be computed.
        tolerance: of ``error.max_rel``.
        ok: within the tolerance.
        note: why there is no error, or what is odd.
        half: of a site in half precision, the same in its type; ``error`` is in float32 then.
    """

    rule: str
    signature: str
    count: int
    error: Error | None
    tolerance: float
    ok: bool
    note: str = ""
    half: InHalf | None = None


def check_sites(
    fired: Sequence[Fired], folder: Path, seed: int, *, time_limit: float = 600
) -> list[SiteParity]:
    """Run both sides of every kind of site on ORT CPU.

    Args:
        fired: the sites of a run.
        folder: a temporary one, for the small models.
        seed: of the random inputs.
        time_limit: seconds for each side.
    """
    counts = Counter(site.signature for site in fired)
    return [
        _check(site, counts[site.signature], folder, seed, time_limit)
        for site in fired
        if site.before is not None and site.after is not None
    ]


def _check(site: Fired, count: int, folder: Path, seed: int, time_limit: float) -> SiteParity:
    before, after = site.before, site.after
    assert before is not None
    assert after is not None
    pair = _Pair(before, after, seed, folder, time_limit)
    half, odd = half_of(before), ""
    try:
        if half is not None:
            try:
                error, tolerance, judged = pair.in_float32(site.tolerance, half)
                ok = error.max_rel <= tolerance and judged.ok
                parity = SiteParity(site.rule, site.signature, count, error, tolerance, ok)
                return replace(parity, half=judged)
            except (NotWidenable, RuntimeFault) as fault:
                odd = f"compared in {half.name.lower()} only: it does not run in float32: {fault}"
        tolerance = site.tolerance * SITE_FACTOR.get(pair.dtype.name.lower(), 1.0)
        error = pair.error(pair.run(before), pair.run(after))
    except (BadReference, RuntimeFault) as fault:
        return SiteParity(
            site.rule, site.signature, count, None, site.tolerance, ok=False, note=str(fault)
        )
    ok = error.max_rel <= tolerance
    return SiteParity(site.rule, site.signature, count, error, tolerance, ok, odd)


class _Pair:
    """Both sides of a site, and what they are fed."""

    def __init__(
        self, before: ir.Model, after: ir.Model, seed: int, folder: Path, time_limit: float
    ) -> None:
        self._before, self._after = before, after
        self._folder, self._time = folder, time_limit
        self._feeds = [_feeds(before, seed + i) for i in range(_SEEDS)]
        self.dtype = before.graph.outputs[0].dtype or ir.DataType.FLOAT

    def run(self, model: ir.Model, *, wide: bool = False) -> Outputs:
        """Outputs of one side for every feed; ``wide`` if it has been widened."""
        drop_accuracy_level(model)
        path = self._folder / "site.onnx"
        ir.save(model, path, external_data="site.data")
        names = {value.name for value in model.graph.inputs}
        feeds = [
            {k: widened_array(v) if wide else v for k, v in feed.items() if k in names}
            for feed in self._feeds
        ]
        return child.run(child.Job(path, config=EXACT, feeds=feeds), time_limit=self._time).outputs

    def error(self, expected: Outputs, actual: Outputs) -> Error:
        """The largest over outputs and feeds."""
        outputs = self._before.graph.outputs
        return Error.worst([self._error_of(value, expected, actual) for value in outputs])

    def _error_of(self, value: ir.Value, expected: Outputs, actual: Outputs) -> Error:
        name = value.name or ""
        pairs = [
            (
                _defined(self._before, name, one[name], feed),
                _defined(self._before, name, other[name], feed),
            )
            for one, other, feed in zip(expected, actual, self._feeds, strict=True)
        ]
        return compare_runs(pairs, lambda: not leaves([value], ()))

    def in_float32(self, least: float, half: ir.DataType) -> tuple[Error, float, InHalf]:
        """Compare a site of halves in float32, and both sides in their type with that.

        Args:
            least: the rule's tolerance.
            half: the type.

        Returns:
            The error in float32, its tolerance (which leaves room for constants that the
            rule had to round), and the verdict in the type.
        """
        before, after = widened(self._before), widened(self._after)
        expected, actual = self.run(before, wide=True), self.run(after, wide=True)
        error, tolerance = self.error(expected, actual), least
        if error.max_rel > least:
            moved = nudged(self._after, self._before)
            if moved is not None:
                cost = self.error(actual, self.run(moved, wide=True))
                tolerance = max(least, NUDGE_FACTOR * cost.max_rel)
        original, result, note = None, None, ""
        try:
            original = self.error(expected, self.run(self._before))
            result = self.error(expected, self.run(self._after))
        except (BadInput, RuntimeFault) as fault:
            note = f"does not run in {half.name.lower()}: {fault}"
        coarse = least * SITE_FACTOR[half.name.lower()]
        judged = in_half(half, original, result, coarse, lambda e: e.max_rel, note)
        return error, tolerance, judged


def _named_inputs(model: ir.Model) -> dict[str, tuple[str, ir.Value]]:
    """Schema names of the root's inputs: name to (value's name, value)."""
    root = list(model.graph)[-1]
    if root.op_type == "Identity":
        return {}
    op = op_of(root)
    schema = schema_of(op, opset_of(op, model.opset_imports))
    return {
        schema.input_name(i): (value.name or "", value)
        for i, value in enumerate(root.inputs)
        if value is not None
    }


def _feeds(model: ir.Model, seed: int) -> Feeds:
    rng = np.random.default_rng(seed)
    feeds: Feeds = {}
    for value in model.graph.inputs:
        shape = tuple(d if isinstance(d, int) else 2 for d in value.shape or ())
        feeds[value.name or ""] = random_array(rng, value.dtype or ir.DataType.FLOAT, shape)
    domain = DOMAINS.get(op_of(list(model.graph)[-1]))
    if domain is not None:
        named = _named_inputs(model)
        shapes = {
            name: feeds[given].shape if given in feeds else static_dims(value)
            for name, (given, value) in named.items()
        }
        known = {name: feeds[given] for name, (given, _) in named.items() if given in feeds}
        known |= {
            name: np.asarray(stored.numpy())
            for name, (_, value) in named.items()
            if (stored := constant(value)) is not None
            and (stored.size <= 1 or name == "query_seqlens")
        }
        known |= _integers(model)
        for name, array in domain.draw(shapes, known, seed).items():
            key, value = named[name]
            feeds[key] = array.astype((value.dtype or ir.DataType.FLOAT).numpy())
    return feeds


def _defined(model: ir.Model, name: str, array: Array, feed: Feeds) -> Array:
    root = list(model.graph)[-1]
    domain = DOMAINS.get(op_of(root))
    if domain is None:
        return array
    op = op_of(root)
    schema = schema_of(op, opset_of(op, model.opset_imports))
    index = next(i for i, value in enumerate(root.outputs) if value.name == name)
    named = {key: feed[value] for key, (value, _) in _named_inputs(model).items() if value in feed}
    return domain.defined(schema.output_name(index), array, named | _integers(model))


def _integers(model: ir.Model) -> Feeds:
    """Integer attributes that the root was given, other than 0."""
    attributes = list(model.graph)[-1].attributes.values()
    return {
        attribute.name: np.array(attribute.as_int())
        for attribute in attributes
        if attribute.type == ir.AttributeType.INT and attribute.as_int()
    }
