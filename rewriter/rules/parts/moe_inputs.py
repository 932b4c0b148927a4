"""What MoE and QMoE have in common, read off a node: activation, layout of W1, biases, shapes.

The schema's texts (ORT 1.32 contrib docs) define more than ORT's CPU kernels run: fusion 0 and 2
of swiglu, geglu and relu2 are CUDA's, and follow from the formulas written there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy.typing as npt
import onnx_ir as ir

from rewriter.nodes import dims_of
from rewriter.rules.parts.expert_activation import GATED, PLAIN, Activation
from rewriter.rules.parts.expert_arrangement import Arrangement, Order
from rewriter.site import Site
from rewriter.tape import Tape

SIDE_BY_SIDE = Arrangement(None)


def activation(site: Site) -> Activation:
    """The activation, or a refusal of what the schema does not define."""
    kind, fusion = str(site.attribute("activation_type")), site.integer("swiglu_fusion")
    site.require(kind in GATED | PLAIN, f"activation_type={kind} is not known")
    separate = site.optional("fc3_experts_weights") is not None
    if kind == "swiglu":
        site.require(fusion in {0, 1, 2}, f"swiglu_fusion={fusion} is not known")
        site.require(
            separate is (fusion == 0),
            "swiglu_fusion=0 takes the values from fc3, 1 and 2 take them from fc1: "
            + ("fc3 is given" if separate else "fc3 is missing"),
        )
        after = site.integer("swiglu_limit_after_activation")
        alpha, beta = site.number("activation_alpha"), site.number("activation_beta")
        return Activation(kind, alpha, beta, site.attribute("swiglu_limit"), bool(after))
    site.ignore("activation_alpha", "activation_beta", "swiglu_limit")
    after = site.integer("swiglu_limit_after_activation")
    site.require(after == 0, "swiglu_limit_after_activation is for swiglu alone")
    site.require(not separate, f"fc3 beside activation_type={kind} is not defined")
    wanted = {1, 2} if kind == "geglu" else {0}
    site.require(fusion in wanted, f"swiglu_fusion={fusion} is not defined for {kind}")
    return Activation(kind)


def order(site: Site, act: Activation) -> Callable[[Any], list[Any]]:
    """How the rows of fc1 hold gates and values."""
    layouts = {0: Order.plain, 1: Order.interleaved, 2: Order.halves}
    return layouts[site.integer("swiglu_fusion")] if act.gated else Order.plain


def bias(site: Site, name: str, rows: int, experts: int) -> npt.NDArray[Any] | None:
    """A stored bias (E, rows)."""
    given = site.optional(name)
    if given is None:
        return None
    stored = site.constant(given, name)
    require_shape(site, name, stored.shape, (experts, rows))
    return stored


def second_bias(op: Tape, site: Site, rows: int, experts: int) -> Callable[[], ir.Value] | None:
    """What makes the bias of fc2; zeros add nothing."""
    stored = bias(site, "fc2_experts_bias", rows, experts)
    if stored is None or not stored.any():
        return None
    return lambda: op.const(stored, site.input("input").dtype, name="second_bias")


def require_shape(site: Site, name: str, shape: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    """Refuse an input whose shape is not what the others make it."""
    site.require(shape == wanted, f"{name} has shape {shape}, the others make it {wanted}")


def hidden_size(site: Site) -> int:
    """The last dim of the input, which has to be fixed."""
    x = site.input("input")
    size = (dims_of(x) or (None,))[-1]
    if size is None:
        site.refuse(f"the last dim of input is not fixed: {x.shape}")
    return size
