"""The work of a run grows as the model does: counted in calls, never in time."""

from __future__ import annotations

import cProfile
import pstats
from collections.abc import Callable

import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.lowering import lower, plan
from rewriter.passes.fix_dims import fix_dims
from rewriter.rule import Registry, lowers
from rewriter.site import Site
from rewriter.tape import Tape
from tests import toys
from tests.decoders import Decoder, decoder
from tests.graphs import Builder

_MORE = 4


def _layers(count: int) -> ir.Model:
    model = decoder(Decoder(layers=count, packed=False))
    fix_dims(model, {"batch": 1, "seq": 1, "past": 8})
    return model


def _chain(count: int) -> ir.Model:
    return toys.chain(["Relu", "com.microsoft::FastGelu"] * count, shape=(1, 4, 8), opset=17)


def _calls(work: Callable[[], object]) -> int:
    profile = cProfile.Profile()
    profile.runcall(work)
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]  # not in typeshed


def _linear(make: Callable[[int], ir.Model], do: Callable[[ir.Model], object], size: int) -> None:
    do(make(1))  # what is done once for all runs
    small, large = (make(count) for count in (size, _MORE * size))
    few, many = _calls(lambda: do(small)), _calls(lambda: do(large))
    assert many < 1.1 * _MORE * few


@pytest.mark.parametrize("ep", ["qnn@2.7.0", "onnx-standard", "openvino@2024.6.0"])
def test_layers(ep: str) -> None:
    to = target(ep)
    _linear(_layers, lambda model: lower(model, to, allow_stuck=True), 2)


@pytest.mark.parametrize("do", [lower, plan])
def test_a_long_chain(do: Callable[..., object]) -> None:
    to = target("onnx-standard")
    _linear(_chain, lambda model: do(model, to), 60)


def test_refused_sites_that_need_a_newer_opset() -> None:
    rules = Registry()

    @lowers("Relu", emits=("Gelu",), opset=20, into=rules)
    def refused(_op: Tape, site: Site) -> ir.Value:
        site.refuse("never")

    @lowers("com.microsoft::FastGelu", emits=("Tanh",), into=rules)
    def taken(op: Tape, site: Site) -> ir.Value:
        site.ignore("bias")
        return op.Tanh(site.input("X"))

    to = toys.target("Relu | any | illegal", "com.microsoft::FastGelu | any | illegal")
    _linear(_chain, lambda model: lower(model, to, rules=rules, allow_stuck=True), 60)


def test_sums_of_a_value_with_itself_before_a_cosine() -> None:
    """The ways through x + x double with every sum; each value is looked at once."""

    def doubled(count: int) -> ir.Model:
        b = Builder()
        value = b.input("x", ir.DataType.FLOAT, (1, 4))
        for i in range(count):
            value = b.op("Add", value, value, name=f"v{i}")
        return b.model([(b.op("Cos", value, name="y"), ir.DataType.FLOAT, (1, 4))], 20)

    to = toys.target("Cos | of positions | illegal")
    _linear(doubled, lambda model: lower(model, to, allow_stuck=True), 16)
