"""Parity of sites: each kind of site that a rule took, original node against replacement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir

from rewriter.errors import RuntimeFault
from rewriter.facts import constant, op_of, opset_of, static_dims
from rewriter.parity.compare import BadReference, Error, compare
from rewriter.parity.domains import DOMAINS, Array
from rewriter.parity.feeds import Feeds, random_array
from rewriter.parity.settings import EXACT, SITE_FACTOR, drop_accuracy_level
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
    """

    rule: str
    signature: str
    count: int
    error: Error | None
    tolerance: float
    ok: bool
    note: str = ""


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
    feeds = [_feeds(before, seed + i) for i in range(_SEEDS)]
    dtype = before.graph.outputs[0].dtype or ir.DataType.FLOAT
    tolerance = site.tolerance * SITE_FACTOR.get(dtype.name.lower(), 1.0)
    try:
        outputs = [
            _run(model, side, feeds, folder, time_limit)
            for side, model in (("before", before), ("after", after))
        ]
        error = Error.worst(
            [
                compare(
                    _defined(before, name, reference, feed),
                    _defined(before, name, replaced[name], feed),
                )
                for expected, replaced, feed in zip(*outputs, feeds, strict=True)
                for name, reference in expected.items()
            ]
        )
    except (BadReference, RuntimeFault) as fault:
        return SiteParity(
            site.rule, site.signature, count, None, tolerance, ok=False, note=str(fault)
        )
    ok = error.max_rel <= tolerance
    return SiteParity(site.rule, site.signature, count, error, tolerance, ok)


def _run(
    model: ir.Model, side: str, feeds: list[Feeds], folder: Path, time_limit: float
) -> list[dict[str, Array]]:
    drop_accuracy_level(model)
    path = folder / f"{side}.onnx"
    ir.save(model, path, external_data=f"{side}.data")
    names = {value.name for value in model.graph.inputs}
    given = [{k: v for k, v in feed.items() if k in names} for feed in feeds]
    return child.run(child.Job(path, config=EXACT, feeds=given), time_limit=time_limit).outputs


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
            if (stored := constant(value)) is not None and stored.size <= 1
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
