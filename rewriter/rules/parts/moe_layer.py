"""The experts of a MoE or QMoE in ops: all of them on every token, or those that are chosen."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import onnx_ir as ir

from rewriter.nodes import dims_of
from rewriter.rules.parts.expert_activation import Activation
from rewriter.rules.parts.experts import DenseExperts, Linear
from rewriter.rules.parts.moe_inputs import hidden_size
from rewriter.rules.parts.routing import routing, slots
from rewriter.rules.parts.shorthand import in_shape, reshaped
from rewriter.site import Site
from rewriter.tape import Tape

_TIES = (
    "routers: of equal logits the expert of the larger index comes first, as in ONNX Runtime; "
    "no TopK of the target is asked"
)


class Stored(Linear, Protocol):
    """The product with the weights of all experts, or with those of chosen ones."""

    def of(self, op: Tape, x: ir.Value, experts: ir.Value) -> ir.Value:
        """The same of the experts (S,) alone, in their order."""
        ...


@dataclass(frozen=True, slots=True)
class Layer:
    """A MoE or QMoE as its node says it.

    Attributes:
        count: experts.
        inner: channels of one between its products.
        activation: between the products.
        first: W1; two of them where gates and values are products of their own.
        second: W2.
        bias: makes that of W2, (count, H), if there is one.
        normalize: the weights of a token's experts add up to 1.
        mixing: the weights themselves, if they are not made of the logits.
    """

    count: int
    inner: int
    activation: Activation
    first: tuple[Stored, ...]
    second: Stored
    bias: Callable[[], ir.Value] | None
    normalize: bool
    mixing: ir.Value | None = None


def every_expert(op: Tape, site: Site, layer: Layer) -> ir.Value:
    """All experts on every token."""
    logits, x = _checked(op, site, layer)
    weights = routing(op, logits, site.integer("k"), normalize=layer.normalize, mixing=layer.mixing)
    experts = DenseExperts(
        layer.count, layer.inner, layer.first, layer.activation, layer.second, layer.bias
    )
    outer, hidden = (dims_of(x) or ())[:-1], hidden_size(site)
    if len(outer) == 2 and outer[0] == 1:  # it has the shape of a product already
        return experts(op, x, weights)
    tokens = -1 if None in outer else math.prod(d for d in outer if d is not None)
    y = experts(op, reshaped(op, x, (1, tokens, hidden), "tokens"), weights)
    if outer.count(None) > 1:
        return op.Reshape(y, op.Shape(x))
    return reshaped(op, y, [*(-1 if d is None else d for d in outer), hidden], "as_given")


def chosen_experts(op: Tape, site: Site, layer: Layer, *, spared: int) -> ir.Value:
    """The experts that the tokens go to, their weights gathered at run time.

    Args:
        op: the tape.
        site: the node.
        layer: what it says.
        spared: experts for each one gathered from which on it pays.

    Raises:
        Refusal: the tokens take too many of the experts.
    """
    logits, x = _checked(op, site, layer)
    dims, k = site.shape(x, "input"), site.integer("k")
    tokens = math.prod(dims[:-1])
    size = tokens * k
    site.require(
        size * spared <= layer.count,
        f"{tokens} token(s) take {size} of {layer.count} experts: gathering their weights pays "
        f"from one of {spared} on",
    )
    weights = routing(op, logits, k, normalize=layer.normalize, mixing=layer.mixing)
    experts, shares = slots(op, logits, k, weights)
    chosen = DenseExperts(
        size,
        layer.inner,
        tuple(partial(linear.of, experts=experts) for linear in layer.first),
        layer.activation,
        partial(layer.second.of, experts=experts),
    )
    y = chosen(op, in_shape(op, x, (1, tokens, dims[-1])), shares)
    if layer.bias is not None:
        y = op.Add(y, op.MatMul(weights, layer.bias()))
    return in_shape(op, y, dims)


def _checked(op: Tape, site: Site, layer: Layer) -> tuple[ir.Value, ir.Value]:
    """Logits and input, of shapes that fit; how many tokens there are may be open."""
    x, logits, k = site.input("input"), site.input("router_probs"), site.integer("k")
    sparse = site.integer("use_sparse_mixer")
    site.require(sparse == 0, "use_sparse_mixer=1 routes differently on CPU and CUDA")
    rank = site.rank(x, "input")
    site.require(rank in {2, 3}, f"input has rank {rank}")
    *outer, _ = dims_of(x) or ()
    tokens = None if None in outer else math.prod(d for d in outer if d is not None)
    first, *rest = dims_of(logits) or (None,)
    fits = rest == [layer.count] and (tokens is None or first in {tokens, None})
    made = f"the others make it ({'tokens' if tokens is None else tokens}, {layer.count})"
    site.require(fits, f"router_probs has shape {logits.shape}, {made}")
    site.require(0 < k <= layer.count, f"k={k} of {layer.count} experts")
    if k < layer.count:
        op.note(_TIES)
    return logits, x
