"""QuantizeLinear and DequantizeLinear around the units of a graph; everything else stays.

Each value gets one pair behind its producer, and one more where a unit wants other bits. Inputs
and outputs of the graph keep name, type and shape: those pairs stand at the boundary.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from rewriter.activations import weights
from rewriter.activations.choose import Choice, activations_of, is_weight, moves_numbers
from rewriter.activations.model import Range
from rewriter.activations.scales import Scale, scale_of
from rewriter.nodes import constant, op_of
from rewriter.tape import Workspace, names_in

_CONSTANTS_STAY = {
    "Clip": (1, 2),
    "MatMul": (0, 1),
    "Pad": (2,),
    "RotaryEmbedding": (1, 2),
    "com.microsoft::MatMulNBits": (2,),
}
"""Float constants that an op reads as they are, by its inputs: limits, tables, float weights."""


class Insertion:
    """Rewrites one graph.

    Args:
        model: edited in place.
        choice: what to quantize.
        ranges: of every activation of the units.
    """

    def __init__(self, model: ir.Model, choice: Choice, ranges: Mapping[ir.Value, Range]) -> None:
        self._graph = model.graph
        self._choice = choice
        self._ranges = ranges
        self._space = Workspace(model.graph, names_in(model.graph))
        self._read: dict[tuple[ir.Value, ir.DataType], ir.Value] = {}
        self._base: dict[ir.Value, ir.DataType] = {}
        self._made: set[ir.Node] = set()
        self._constants: dict[object, ir.Value] = {}

    def run(self) -> None:
        """Put the pairs in, then give weights their forms."""
        nodes = list(self._graph)
        for node in nodes:
            if node in self._choice.units:
                self._unit(node, self._choice.units[node])
        for node in nodes:
            if node in self._choice.units:
                self._behind(node)
        for node, form in self._choice.forms.items():
            self._weight(node, form)
        self._graph.sort()

    def _unit(self, node: ir.Node, dtype: ir.DataType) -> None:
        for output in node.outputs:
            if output.dtype == ir.DataType.FLOAT:
                self._base[output] = dtype
        activations = set(activations_of(node))
        for at, value in enumerate(node.inputs):
            if value is None or value.dtype != ir.DataType.FLOAT:
                continue
            if value in activations:
                node.replace_input_with(at, self._dequantized(value, dtype))
            elif not is_weight(value) and at not in _CONSTANTS_STAY.get(op_of(node), ()):
                stored = self._constant(value, self._scale_of_constant(node, value, dtype))
                node.replace_input_with(at, stored)

    def _behind(self, node: ir.Node) -> None:
        """What else reads the outputs of a unit reads them quantized too, outputs of the graph."""
        for output in node.outputs:
            if output not in self._base or not (output.uses() or output.is_graph_output()):
                continue
            read = self._dequantized(output, self._base[output])
            for user, at in [(use.node, use.idx) for use in output.uses()]:
                if user not in self._made:
                    user.replace_input_with(at, read)
            if output.is_graph_output():
                self._as_output(output, read)

    def _as_output(self, output: ir.Value, read: ir.Value) -> None:
        """The dequantized value is the output of the graph, by the name that it has."""
        name = output.name or ""
        output.name = self._space.unique(f"{name}/computed")
        read.name = name
        for index, value in enumerate(self._graph.outputs):
            if value is output:
                self._graph.outputs[index] = read

    def _dequantized(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        """A value as a unit of that type reads it."""
        if (value, dtype) in self._read:
            return self._read[value, dtype]
        base = self._base.setdefault(value, dtype)
        source = value if base is dtype else self._dequantized(value, base)
        scale = scale_of(self._ranges[value], dtype)
        stem = value.name if base is dtype else f"{value.name}/{dtype.name.lower()}"
        step, zero = self._numbers(scale)
        codes = self._node("QuantizeLinear", [source, step, zero], dtype, value, stem)
        read = self._node("DequantizeLinear", [codes, step, zero], ir.DataType.FLOAT, value, stem)
        self._read[value, dtype] = read
        return read

    def _node(
        self,
        op: str,
        inputs: list[ir.Value],
        dtype: ir.DataType,
        like: ir.Value,
        stem: str | None,
    ) -> ir.Value:
        """A node whose output has the shape of another value, behind what it reads."""
        name = self._space.unique(f"{stem}/{op}")
        node = ir.Node("", op, inputs, name=name)
        node.metadata_props.update(_origin(like))
        output = node.outputs[0]
        output.name, output.type, output.shape = name, ir.TensorType(dtype), like.shape
        producer = inputs[0].producer()
        if producer is None:
            self._graph.insert_before(self._graph[0], node)
        else:
            self._graph.insert_after(producer, node)
        self._made.add(node)
        return output

    def _numbers(self, scale: Scale) -> tuple[ir.Value, ir.Value]:
        kind = scale.dtype.name.lower()
        step = self._stored(("step", scale.step), ir.tensor(np.float32(scale.step)), "scale")
        zero = self._stored(
            ("zero", scale.zero, kind),
            ir.tensor(np.array(scale.zero, scale.dtype.numpy())),
            f"zero_point_{kind}",
        )
        return step, zero

    def _stored(self, key: object, tensor: ir.TensorProtocol, name: str) -> ir.Value:
        """A constant that is stored once for a key."""
        known = self._space.constants
        if key not in known:
            name = self._space.unique(f"quantized/{name}")
            tensor.name = name
            value = ir.Value(
                name=name,
                type=ir.TensorType(tensor.dtype),
                shape=ir.Shape(tensor.shape.numpy()),
                const_value=tensor,
            )
            self._graph.register_initializer(value)
            known[key] = value
        return known[key]

    def _scale_of_constant(self, node: ir.Node, value: ir.Value, dtype: ir.DataType) -> Scale:
        """Its own; that of what it becomes where a node gives numbers as they are."""
        if moves_numbers(node):
            return scale_of(self._ranges[node.outputs[0]], dtype)
        stored = constant(value)
        assert stored is not None
        array = stored.numpy()
        return scale_of(Range(float(array.min()), float(array.max())), dtype)

    def _constant(self, value: ir.Value, scale: Scale) -> ir.Value:
        """A float constant in integers of the type of the activations it meets."""
        key = ("constant", value, scale)
        if key in self._constants:
            return self._constants[key]
        stored = constant(value)
        assert stored is not None
        array = stored.numpy().astype(np.float64)
        limits = np.iinfo(scale.dtype.numpy())
        codes = np.clip(np.rint(array / scale.step) + scale.zero, limits.min, limits.max)
        tensor = ir.tensor(codes.astype(scale.dtype.numpy()))
        kept = self._stored(key, tensor, f"{value.name}")
        step, zero = self._numbers(scale)
        inputs = [kept, step, zero]
        read = self._node("DequantizeLinear", inputs, ir.DataType.FLOAT, value, value.name)
        self._constants[key] = read
        return read

    def _weight(self, node: ir.Node, form: weights.WeightForm) -> None:
        """MatMul(A, DequantizeLinear(codes, scales, zeros)) in the place of a MatMulNBits."""
        name = node.name or "MatMulNBits"
        b, scale = node.inputs[1], node.inputs[2]
        codes = self._stored(("codes", b, form.grain), weights.codes(node, form), f"{name}/codes")
        scales = self._stored(
            ("scales", scale, form.grain), weights.scales(node, form), f"{name}/scales"
        )
        zeros = self._stored(
            ("zeros", form.dtype, form.shape), weights.zero_points(form), f"{name}/zero_points"
        )
        blocked = form.grain == "block"
        attributes = [ir.AttrInt64("axis", 0 if blocked else 1)]
        attributes += [ir.AttrInt64("block_size", form.block)] if blocked else []
        weight = ir.Node(
            "",
            "DequantizeLinear",
            [codes, scales, zeros],
            attributes,
            name=self._space.unique(f"{name}/DequantizeLinear"),
        )
        product = ir.Node(
            "",
            "MatMul",
            [node.inputs[0], weight.outputs[0]],
            name=self._space.unique(f"{name}/MatMul"),
        )
        old, new = node.outputs[0], product.outputs[0]
        read = weight.outputs[0]
        read.name, read.type = weight.name, ir.TensorType(ir.DataType.FLOAT)
        read.shape = ir.Shape((form.k, form.n))
        for made in (weight, product):
            made.metadata_props.update(node.metadata_props)
        new.type, new.shape, new.name = old.type, old.shape, product.name
        self._graph.insert_after(node, [weight, product])
        ir.convenience.replace_all_uses_with(old, new)
        self._graph.remove(node, safe=True)


def _origin(value: ir.Value) -> dict[str, str]:
    """Where the node that computes a value came from."""
    made = value.producer()
    return {} if made is None else dict(made.metadata_props)
