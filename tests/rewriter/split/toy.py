"""A small transformer in plain ops, whose names say nothing of what is where."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from tests.graphs import Builder

F32, I64 = ir.DataType.FLOAT, ir.DataType.INT64
TOKENS, PAST, WIDTH, VOCABULARY = 2, 5, 8, 16


@dataclass(frozen=True)
class Toy:
    """What to build.

    Attributes:
        layers: how many.
        sharing: layers at the end that read the cache of the last layer before them, which each
            of them computes again.
        per_layer: every layer adds a projection of the embedding of its own.
        embedded: the model is given embedded tokens.
        head: there is a final norm and a product with the embedding's table.
        parallel: attention and MLP read the same norm.
        pooled: the head is another norm of the same shape, as of BERT's language models.
        cross: every layer also looks at what an encoder has found.
        branches: the activation is a branch, which reads what is computed around it.
    """

    layers: int = 4
    sharing: int = 0
    per_layer: bool = False
    embedded: bool = False
    head: bool = True
    parallel: bool = False
    pooled: bool = False
    cross: bool = False
    branches: bool = False


def toy(spec: Toy | None = None) -> ir.Model:
    """Build one."""
    return _Build(spec or Toy()).model()


def saved(folder: Path, spec: Toy | None = None) -> Path:
    """One on disk, its weights in a file beside it."""
    path = folder / "model.onnx"
    ir.save(toy(spec), path, external_data="model.onnx.data", size_threshold_bytes=64)
    return path


class _Build:
    def __init__(self, spec: Toy) -> None:
        self.spec = spec
        self.b = Builder(3)
        self.count = 0
        self.outputs: list[tuple[ir.Value, ir.DataType, tuple[int, ...]]] = []

    def op(self, op: str, *inputs: ir.Value, shape: tuple[int, ...], dtype: ir.DataType = F32,
           **attributes: Any) -> ir.Value:  # fmt: skip
        self.count += 1
        value = self.b.op(op, *inputs, name=f"v{self.count}", **attributes)
        value.type, value.shape = ir.TensorType(dtype), ir.Shape(shape)
        return value

    def weight(self, *shape: int) -> ir.Value:
        self.count += 1
        array = self.b.rng.standard_normal(shape) / np.sqrt(shape[0])
        return self.b.const(f"w{self.count}", array.astype(np.float32))

    def model(self) -> ir.Model:
        b, spec, x_shape = self.b, self.spec, (1, TOKENS, WIDTH)
        self.table = self.weight(VOCABULARY, WIDTH)
        if spec.embedded:
            x = b.input("given", F32, x_shape)
        else:
            ids = b.input("tokens", I64, (1, TOKENS))
            x = self.op("Gather", self.table, ids, shape=x_shape)
            x = self.op("Mul", x, b.const("scale", np.float32(2)), shape=x_shape)
        seen = b.input("seen", I64, (1, PAST + TOKENS))
        places = b.input("places", I64, (1, TOKENS))
        hidden = self.op("Cast", seen, shape=(1, PAST + TOKENS), dtype=ir.DataType.BOOL, to=9)
        zero, masked = b.const("zero", np.float32(0)), b.const("masked", np.float32(-100))
        if spec.cross:
            self.found = b.input("found", F32, (1, PAST, WIDTH))
        self.any = self.op("ReduceMax", hidden, shape=(), dtype=ir.DataType.BOOL, keepdims=0)
        self.mask = self.op("Where", hidden, zero, masked, shape=(1, PAST + TOKENS))
        self.turn = self.op("Gather", self.weight(64, WIDTH), places, shape=x_shape)
        own: list[ir.Value] = []
        if spec.per_layer:
            both = self.op("MatMul", x, self.weight(WIDTH, WIDTH * spec.layers),
                           shape=(1, TOKENS, WIDTH * spec.layers))  # fmt: skip
            sizes = b.const("sizes", np.full(spec.layers, WIDTH))
            names = [f"part{i}" for i in range(spec.layers)]
            own = list(b.node("Split", [both, sizes], names, axis=-1))
            for value in own:
                value.type, value.shape = ir.TensorType(F32), ir.Shape(x_shape)
        for layer in range(spec.layers):
            x = self.layer(x, layer)
            if own:
                x = self.op("Add", x, own[layer], shape=x_shape)
        if spec.head:
            x = self.norm(x)
            if spec.pooled:
                x = self.norm(self.op("MatMul", x, self.weight(WIDTH, WIDTH), shape=x_shape))
            turned = self.op("Transpose", self.table, shape=(WIDTH, VOCABULARY))
            x = self.op("MatMul", x, turned, shape=(1, TOKENS, VOCABULARY))
        width = VOCABULARY if spec.head else WIDTH
        return b.model([(x, F32, (1, TOKENS, width)), *self.outputs])

    def norm(self, x: ir.Value) -> ir.Value:
        gain = self.weight(WIDTH)
        return self.op("SimplifiedLayerNormalization", x, gain, shape=(1, TOKENS, WIDTH), axis=-1)

    def layer(self, x: ir.Value, layer: int) -> ir.Value:
        shape = (1, TOKENS, WIDTH)
        read = self.norm(x)
        mixed = self.attention(read, layer)
        if self.spec.parallel:
            both = self.op("Add", mixed, self.mlp(read), shape=shape)
            return self.op("Add", x, both, shape=shape)
        x = self.op("Add", x, mixed, shape=shape)
        if self.spec.cross:
            x = self.op("Add", x, self.crossed(self.norm(x)), shape=shape)
        return self.op("Add", x, self.mlp(self.norm(x)), shape=shape)

    def mlp(self, x: ir.Value) -> ir.Value:
        wide = self.op("MatMul", x, self.weight(WIDTH, 16), shape=(1, TOKENS, 16))
        if self.spec.branches:
            then, other = self.branch("Relu", wide), self.branch("Tanh", wide)
            wide = self.op(
                "If", self.any, shape=(1, TOKENS, 16), then_branch=then, else_branch=other
            )
        else:
            wide = self.op("Relu", wide, shape=(1, TOKENS, 16))
        return self.op("MatMul", wide, self.weight(16, WIDTH), shape=(1, TOKENS, WIDTH))

    def crossed(self, x: ir.Value) -> ir.Value:
        rows, scores = (1, PAST, WIDTH), (1, TOKENS, PAST)
        key = self.op("MatMul", self.found, self.weight(WIDTH, WIDTH), shape=rows)
        value = self.op("MatMul", self.found, self.weight(WIDTH, WIDTH), shape=rows)
        turned = self.op("Transpose", key, shape=(1, WIDTH, PAST), perm=[0, 2, 1])
        seen = self.op("Softmax", self.op("MatMul", x, turned, shape=scores), shape=scores)
        return self.op("MatMul", seen, value, shape=(1, TOKENS, WIDTH))

    def branch(self, op: str, x: ir.Value) -> ir.Graph:
        self.count += 1
        node = ir.Node("", op, [x], num_outputs=1, name=f"inner{self.count}")
        node.outputs[0].name = f"inner{self.count}"
        return ir.Graph([], node.outputs, nodes=[node], name=f"branch{self.count}")

    def attention(self, x: ir.Value, layer: int) -> ir.Value:
        shape, rows = (1, TOKENS, WIDTH), (1, PAST + TOKENS, WIDTH)
        query = self.op("MatMul", x, self.weight(WIDTH, WIDTH), shape=shape)
        query = self.op("Mul", query, self.turn, shape=shape)
        if layer < self.spec.layers - self.spec.sharing:
            key = self.op("MatMul", x, self.weight(WIDTH, WIDTH), shape=shape)
            value = self.op("MatMul", x, self.weight(WIDTH, WIDTH), shape=shape)
            new = [self.op("Mul", key, self.turn, shape=shape), value]
            old = [self.b.input(f"m{layer}{part}", F32, (1, PAST, WIDTH)) for part in "ab"]
            self.shared = list(zip(old, new, strict=True))
        kept = [self.op("Concat", *pair, shape=rows, axis=1) for pair in self.shared]
        if layer < self.spec.layers - self.spec.sharing:
            self.outputs += [(value, F32, rows) for value in kept]
        turned = self.op("Transpose", kept[0], shape=(1, WIDTH, PAST + TOKENS), perm=[0, 2, 1])
        scores = (1, TOKENS, PAST + TOKENS)
        found = self.op("MatMul", query, turned, shape=scores)
        found = self.op("Softmax", self.op("Add", found, self.mask, shape=scores), shape=scores)
        mixed = self.op("MatMul", found, kept[1], shape=shape)
        return self.op("MatMul", mixed, self.weight(WIDTH, WIDTH), shape=shape)
