"""Where float weights are multiplied or looked up, and the quantized op in the place of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from rewriter.commit import RULE, SOURCE
from rewriter.nodes import op_of
from rewriter.quantize.kernels import BLOCK
from rewriter.quantize.matrices import Matrix, dequantized_matrix, float_matrix
from rewriter.quantize.written import Form as Stored
from rewriter.rules.parts.products import conv_around, gemm_around
from rewriter.rules.parts.shorthand import reshaped
from rewriter.site import Refusal, Site
from rewriter.tape import Tape, Workspace, names_in

_WEIGHTS = {"MatMul": 1, "Gemm": 1, "Conv": 1, "Gather": 0}
"""Ops that read a float weight, and which input it is."""
_IDS = ("input_ids",)
_EXPERTS = 1024
"""Most columns of a router; what a head chooses of more are tokens."""
_SCORES = frozenset({
    "Add", "Cast", "Div", "Identity", "Mul", "Reshape", "Sigmoid", "Softmax", "Squeeze", "Sub",
    "Unsqueeze",
})  # fmt: skip
"""Ops between a router's logits and the choice."""


@dataclass(frozen=True, slots=True)
class Place:
    """A node that reads a float weight.

    Attributes:
        node: it.
        matrix: the weight; of a table, its rows are the columns here.
        table: its rows are looked up.
    """

    node: ir.Node
    matrix: Matrix
    table: bool

    def flaw(self) -> str:
        """Why there is no quantized form of it; empty if there is."""
        if self.matrix.dtype not in {ir.DataType.FLOAT, ir.DataType.FLOAT16}:
            return f"computes in {self.matrix.dtype.name.lower()}"
        if self.matrix.k < BLOCK:
            return f"sums over {self.matrix.k} values only"
        if self.table and self.matrix.k % BLOCK:
            return f"rows of {self.matrix.k} do not fill blocks of {BLOCK}"
        if not self.table and self.matrix.n <= _EXPERTS and _chooses(self.node.outputs[0]):
            return "it chooses experts, and a small error chooses others"
        return ""


def places(model: ir.Model, *, again: bool) -> Iterator[Place]:
    """Every node that reads a matrix of floats.

    Args:
        model: with dtypes and shapes known.
        again: weights that are quantized in blocks count too, as the floats they mean.
    """
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        if again and (quantized := dequantized_matrix(node)) is not None:
            yield Place(node, quantized, table=False)
        if node.domain or node.op_type not in _WEIGHTS:
            continue
        at = _WEIGHTS[node.op_type]
        given = node.inputs[at] if at < len(node.inputs) else None
        table = node.op_type == "Gather"
        transposed = node.attributes.get("transB") if node.op_type == "Gemm" else None
        rows = table or node.op_type == "Conv" or bool(transposed and transposed.as_int())
        matrix = float_matrix(given, rows=rows)
        if matrix is not None and (not table or _of_tokens(node, matrix)):
            yield Place(node, matrix, table)


def _chooses(scores: ir.Value) -> bool:
    """Whether TopK, or an op of experts, chooses by what a product gives."""
    waiting, seen = [scores], {scores}
    while waiting:
        for node, at in waiting.pop().uses():
            op = op_of(node)
            if op == "TopK" or (op in {"com.microsoft::MoE", "com.microsoft::QMoE"} and at == 1):
                return True
            if op in _SCORES and node.outputs[0] not in seen:
                seen.add(node.outputs[0])
                waiting.append(node.outputs[0])
    return False


def _of_tokens(node: ir.Node, matrix: Matrix) -> bool:
    """A table of embeddings: rows as they are stored, by the ids that the graph is fed."""
    axis = node.attributes.get("axis")
    ids = node.inputs[1]
    return (
        matrix.rows
        and (axis is None or axis.as_int() == 0)
        and ids is not None
        and ids.is_graph_input()
        and ids.name in _IDS
    )


class Editor:
    """Puts quantized ops in the place of others, sharing what they read.

    Args:
        model: is edited.
    """

    def __init__(self, model: ir.Model) -> None:
        self._model = model
        self._space = Workspace(model.graph, names_in(model.graph))
        model.graph.opset_imports.setdefault("com.microsoft", 1)

    def replace(self, place: Place, form: Stored) -> None:
        """Put the quantized op there.

        Raises:
            Refusal: there is none, with the reason; then the node is as it was.
        """
        node = place.node
        assert node.graph is not None
        if flaw := place.flaw():
            raise Refusal(flaw)
        imports = self._model.opset_imports
        tape, site = Tape(self._space, place.matrix.name, imports), Site(node, imports)
        try:
            output = self._built(tape, site, place, form)
        except Refusal:
            tape.discard()
            raise
        for value in tape.constants:
            self._model.graph.register_initializer(value)
        for new in tape.nodes:
            new.metadata_props.update(node.metadata_props)
            new.metadata_props[RULE] = "quantize"
            new.metadata_props.setdefault(SOURCE, node.name or op_of(node))
        ir.convenience.replace_nodes_and_values(
            node.graph, node, [node], tape.nodes, [node.outputs[0]], [output]
        )
        tape.keep()

    def _built(self, op: Tape, site: Site, place: Place, form: Stored) -> ir.Value:
        if place.table:
            return _looked_up(op, site, place.matrix, form)
        kind = op_of(site.node)
        if kind == "Gemm":
            site.ignore("B", "transB")
            return gemm_around(op, site, lambda a: _product(op, a, place.matrix, form))
        if kind == "Conv":
            return conv_around(op, site, lambda a: _product(op, a, place.matrix, form))
        a = site.input("A")
        site.require(site.rank(a, "A") > 1, "the activation is a vector")
        y = _product(op, a, place.matrix, form)
        bias = site.optional("bias") if kind != "MatMul" else None
        return y if bias is None else op.Add(y, bias)


def _stored(op: Tape, matrix: Matrix, form: Stored) -> list[ir.Value]:
    """Codes, scales and zero points, once for all that read them."""
    parts = {"codes": form.codes, "scales": form.scales, "zero_points": form.points}
    return [
        op.weight(("quantized", matrix.value, matrix.dtype, part), tensor, part)
        for part, tensor in parts.items()
        if tensor is not None
    ]


def _product(op: Tape, a: ir.Value, matrix: Matrix, form: Stored) -> ir.Value:
    sizes = {"K": matrix.k, "N": matrix.n, "bits": form.bits, "block_size": form.block}
    return op.ms("MatMulNBits", a, *_stored(op, matrix, form), **sizes)


def _looked_up(op: Tape, site: Site, matrix: Matrix, form: Stored) -> ir.Value:
    """GatherBlockQuantized on the same codes, seen as rows of bytes."""
    codes, *rest = _stored(op, matrix, form)
    flat = reshaped(op, codes, [matrix.n, matrix.k * form.bits // 8], "rows")
    kinds = {"gather_axis": 0, "quantize_axis": 1, "bits": form.bits, "block_size": form.block}
    return op.ms("GatherBlockQuantized", flat, site.input("indices"), *rest, **kinds)
