"""Small decoders whose caches grow, as exporters other than onnxruntime-genai's write them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from tests.graphs import Builder

F32, I64, BOOL = ir.DataType.FLOAT, ir.DataType.INT64, ir.DataType.BOOL
HEADS, KV_HEADS, SIZE, VOCABULARY, POSITIONS = 4, 2, 8, 48, 64
HIDDEN = HEADS * SIZE


@dataclass(frozen=True)
class Growing:
    """What to build.

    Attributes:
        attention: ``written`` (Concat, MatMul, Softmax), ``attention`` (ai.onnx, past and present),
            ``behind`` (Concat, then ai.onnx Attention without a past) or ``multi_head``.
        mask: ``bool`` or ``float`` into an Attention, ``padding`` or ``bias`` into multi_head;
            ``none`` for a causal attention and no input for a mask.
        hides: what a float mask, or a score selected by the mask, becomes.
        selects: a written-out attention selects a score (Where) and adds no mask.
        masked: the mask reaches the second layer; ``False`` leaves it causal only.
        causal: Attention has ``is_causal``, and the mask holds the padding only.
        positions: ``given`` (position_ids), ``summed`` (of the mask) or ``counted`` (from the
            length of the cache).
        compares: what the causal mask holds the keys against: ``rows``, or ``positions``.
        window: keys that a query sees, itself among them; 0 for all.
        layers: how many.
    """

    attention: str = "written"
    mask: str = "float"
    hides: float = -np.inf
    selects: bool = False
    masked: bool = True
    causal: bool = False
    positions: str = "given"
    compares: str = "rows"
    window: int = 0
    layers: int = 2
    opset: int = 23
    seed: int = 0


def growing(spec: Growing) -> ir.Model:
    """Build one."""
    return _Build(spec).model()


class _Build:
    def __init__(self, spec: Growing) -> None:
        self.spec, self.b = spec, Builder(spec.seed)
        self.presents: list[ir.Value] = []
        self.added: dict[ir.Value, ir.Value] = {}
        self.heads = KV_HEADS if spec.attention == "multi_head" else HEADS

    def model(self) -> ir.Model:
        b, spec = self.b, self.spec
        self.ids = b.input("input_ids", I64, ("batch", "seq"))
        masked = spec.mask != "none"
        if masked:
            self.mask = b.input("attention_mask", I64, ("batch", "past + seq"))
        self.pasts = [
            [
                b.input(f"past_key_values.{layer}.{part}", F32, ("batch", KV_HEADS, "past", SIZE))
                for part in ("key", "value")
            ]
            for layer in range(spec.layers)
        ]
        self.tokens = self._dim(self.ids, 1, "tokens")
        embedded = b.op("Gather", self._weight("embed", VOCABULARY, HIDDEN), self.ids, name="words")
        table = self._weight("places", POSITIONS, HIDDEN)
        self.positions = self._positions()
        where = b.op("Gather", table, self.positions, name="where")
        x = b.op("Add", embedded, where, name="x")
        seen, unpadded = self._seen() if masked else (x, x)
        for layer in range(spec.layers):
            last = layer == spec.layers - 1
            x = self._layer(x, layer, seen if spec.masked or not last else unpadded)
        logits = b.linear(self._norm(x, "final"), "logits", HIDDEN, VOCABULARY, "fp32")
        present = ("batch", KV_HEADS, "past + seq", SIZE)
        outputs = [(value, F32, present) for value in self.presents]
        return b.model([(logits, F32, ("batch", "seq", VOCABULARY)), *outputs], spec.opset)

    # -- what the mask and the lengths say -------------------------------------------------------

    def _positions(self) -> ir.Value:
        b, spec = self.b, self.spec
        if spec.positions == "given":
            return b.input("position_ids", I64, ("batch", "seq"))
        if spec.positions == "counted":
            start = self._dim(self.pasts[0][0], 2, "start")
            end = b.op("Add", start, self.tokens, name="end")
            return self._between(start, end, "counted")
        summed = b.op("CumSum", self.mask, b.const("axis1", np.array(1)), name="summed")
        places = b.op("Max", b.op("Sub", summed, self._int(1), name="less"), self._int(0), name="p")
        first = b.op("Neg", self._one(self.tokens, "tokens1"), name="first")
        end = b.const("far", np.array([np.iinfo(np.int64).max]))
        return b.op("Slice", places, first, end, b.const("one1", np.array([1])), name="summed_last")

    def _seen(self) -> tuple[ir.Value, ir.Value]:
        """Bool masks (B, 1, S, T) of what is seen, and the same without the padding."""
        b = self.b
        total = self._dim(self.mask, 1, "total")
        keys = self._between(self._int(0), total, "keys")
        start = b.op("Sub", total, self.tokens, name="first_row")
        rows = b.op("Unsqueeze", self._between(start, total, "rows"),
                    b.const("axis_1", np.array([1])), name="column")  # fmt: skip
        causal = b.op("LessOrEqual", keys, rows, name="causal")
        if self.spec.window:
            oldest = b.op("Sub", rows, self._int(self.spec.window), name="oldest")
            near = b.op("Greater", keys, oldest, name="near")
            causal = b.op("And", causal, near, name="in_window")
        real = b.op("Cast", self.mask, name="real", to=ir.DataType.BOOL.value)
        padding = b.op("Unsqueeze", real, b.const("axes", np.array([1, 2])), name="padding")
        if self.spec.causal:
            every = b.op("GreaterOrEqual", keys, self._int(0), name="every")
            whole = b.op("Or", causal, every, name="whole")
            return b.op("And", whole, padding, name="seen"), whole
        if self.spec.compares == "positions":
            axes = b.const("axes13", np.array([1, 3]))
            column = b.op("Unsqueeze", self.positions, axes, name="position_column")
            known = b.op("LessOrEqual", keys, column, name="known")
            return b.op("And", known, padding, name="seen"), known
        causal4 = b.op("Unsqueeze", causal, b.const("axes01", np.array([0, 1])), name="causal4")
        return b.op("And", causal4, padding, name="seen"), causal4

    def _added(self, seen: ir.Value) -> ir.Value:
        """The same as numbers to add."""
        if seen not in self.added:
            numbers = [
                self.b.const(f"{seen.name}/{name}", np.array(number, np.float32))
                for name, number in (("zero", 0.0), ("hidden", self.spec.hides))
            ]
            self.added[seen] = self.b.op("Where", seen, *numbers, name=f"{seen.name}/added")
        return self.added[seen]

    # -- layers ----------------------------------------------------------------------------------

    def _layer(self, x: ir.Value, layer: int, seen: ir.Value) -> ir.Value:
        b, name = self.b, f"layers.{layer}"
        normed = self._norm(x, f"{name}/in")
        q, k, v = (
            b.linear(normed, f"{name}/{part}", HIDDEN, heads * SIZE, "fp32")
            for part, heads in (("q", self.heads), ("k", KV_HEADS), ("v", KV_HEADS))
        )
        kind = {
            "written": self._written,
            "attention": self._attention,
            "behind": self._behind,
            "multi_head": self._multi_head,
        }[self.spec.attention]
        mixed = kind(q, k, v, layer, seen)
        out = b.linear(mixed, f"{name}/o", self.heads * SIZE, HIDDEN, "fp32")
        x = b.op("Add", x, out, name=f"{name}/mid")
        up = b.linear(self._norm(x, f"{name}/out"), f"{name}/up", HIDDEN, HIDDEN, "fp32")
        act = b.op("Mul", up, b.op("Sigmoid", up, name=f"{name}/gate"), name=f"{name}/act")
        down = b.linear(act, f"{name}/down", HIDDEN, HIDDEN, "fp32")
        return b.op("Add", x, down, name=f"{name}/x")

    def _joined(self, k: ir.Value, v: ir.Value, layer: int) -> list[ir.Value]:
        """Caches with the new rows behind them, which are the presents."""
        found = []
        for past, new, part in zip(self.pasts[layer], (k, v), ("key", "value"), strict=True):
            rows = self._heads(new, KV_HEADS, f"layers.{layer}/{part}_heads")
            found.append(self.b.op("Concat", past, rows, name=f"present.{layer}.{part}", axis=2))
        self.presents += found
        return found

    def _written(
        self, q: ir.Value, k: ir.Value, v: ir.Value, layer: int, seen: ir.Value
    ) -> ir.Value:
        b, spec, name = self.b, self.spec, f"layers.{layer}"
        keys, values = (self._repeat(x) for x in self._joined(k, v, layer))
        turned = b.op("Transpose", keys, name=f"{name}/turned", perm=[0, 1, 3, 2])
        products = b.op("MatMul", self._heads(q, HEADS, f"{name}/q_heads"), turned,
                        name=f"{name}/products")  # fmt: skip
        scale = b.const(f"{name}/scale", np.array(SIZE**-0.5, np.float32))
        scores = b.op("Mul", products, scale, name=f"{name}/scores")
        if spec.selects:
            number = b.const(f"{name}/hidden", np.array(spec.hides, np.float32))
            masked = b.op("Where", seen, scores, number, name=f"{name}/masked")
        else:
            masked = b.op("Add", scores, self._added(seen), name=f"{name}/masked")
        weights = b.op("Softmax", masked, name=f"{name}/weights", axis=-1)
        return self._flat(b.op("MatMul", weights, values, name=f"{name}/mixed"), name)

    def _behind(
        self, q: ir.Value, k: ir.Value, v: ir.Value, layer: int, seen: ir.Value
    ) -> ir.Value:
        b, name = self.b, f"layers.{layer}"
        heads = self._heads(q, HEADS, f"{name}/q_heads")
        given = seen if self.spec.mask == "bool" else self._added(seen)
        mixed = b.op("Attention", heads, *self._joined(k, v, layer), given, name=f"{name}/mixed",
                     is_causal=int(self.spec.causal))  # fmt: skip
        return self._flat(mixed, name)

    def _attention(
        self, q: ir.Value, k: ir.Value, v: ir.Value, layer: int, seen: ir.Value
    ) -> ir.Value:
        spec, name = self.spec, f"layers.{layer}"
        given: ir.Value | None = None
        if spec.mask != "none":
            given = seen if spec.mask == "bool" else self._added(seen)
        if not spec.masked and layer == spec.layers - 1:
            given = None
        mixed, *presents = self.b.node(
            "Attention",
            [q, k, v, given, *self.pasts[layer]],
            [f"{name}/mixed", f"present.{layer}.key", f"present.{layer}.value"],
            q_num_heads=HEADS,
            kv_num_heads=KV_HEADS,
            is_causal=int(spec.causal or given is None),
        )
        self.presents += presents
        return mixed

    def _multi_head(
        self, q: ir.Value, k: ir.Value, v: ir.Value, layer: int, seen: ir.Value
    ) -> ir.Value:
        """Query, key and value have the same heads here."""
        b, spec, name = self.b, self.spec, f"layers.{layer}"
        padding = bias = None
        if spec.mask == "padding":
            padding = b.op("Cast", self.mask, name=f"{name}/padding", to=6)
        elif spec.mask == "bias":
            bias = self._added(seen)
        mixed, *presents = b.node(
            "com.microsoft::MultiHeadAttention",
            [q, k, v, None, padding, bias, *self.pasts[layer]],
            [f"{name}/mixed", f"present.{layer}.key", f"present.{layer}.value"],
            num_heads=KV_HEADS,
            unidirectional=int(bias is None),
        )
        self.presents += presents
        return mixed

    # -- small things ----------------------------------------------------------------------------

    def _heads(self, x: ir.Value, heads: int, name: str) -> ir.Value:
        b = self.b
        shape = b.const(f"{name}/shape", np.array([0, 0, heads, SIZE]))
        split = b.op("Reshape", x, shape, name=f"{name}/split")
        return b.op("Transpose", split, name=name, perm=[0, 2, 1, 3])

    def _repeat(self, x: ir.Value) -> ir.Value:
        b, name = self.b, x.name or ""
        apart = b.op("Unsqueeze", x, b.const(f"{name}/axis", np.array([2])), name=f"{name}/apart")
        groups = b.const(f"{name}/groups", np.array([1, 1, HEADS // KV_HEADS, 1, 1]))
        wide = b.op("Expand", apart, groups, name=f"{name}/wide")
        shape = b.const(f"{name}/together", np.array([0, HEADS, -1, SIZE]))
        return b.op("Reshape", wide, shape, name=f"{name}/repeated")

    def _flat(self, x: ir.Value, name: str) -> ir.Value:
        b = self.b
        turned = b.op("Transpose", x, name=f"{name}/tokens", perm=[0, 2, 1, 3])
        shape = b.const(f"{name}/flat", np.array([0, 0, HIDDEN]))
        return b.op("Reshape", turned, shape, name=f"{name}/joined")

    def _norm(self, x: ir.Value, name: str) -> ir.Value:
        gain = 1 + 0.1 * self.b.rng.standard_normal(HIDDEN)
        scale = self.b.const(f"{name}.weight", gain.astype(np.float32))
        return self.b.op("LayerNormalization", x, scale, name=f"{name}/norm", axis=-1)

    def _weight(self, name: str, rows: int, width: int) -> ir.Value:
        return self.b.const(name, self.b.rng.standard_normal((rows, width)).astype(np.float32))

    def _dim(self, value: ir.Value, axis: int, name: str) -> ir.Value:
        shape = self.b.op("Shape", value, name=f"{name}/shape")
        return self.b.op("Gather", shape, self.b.const(f"{name}/at", np.array(axis)), name=name)

    def _between(self, start: ir.Value, end: ir.Value, name: str) -> ir.Value:
        return self.b.op("Range", start, end, self._int(1), name=name)

    def _int(self, number: int) -> ir.Value:
        name = f"number{number}"
        known = next((v for v in self.b.initializers if v.name == name), None)
        return known or self.b.const(name, np.array(number))

    def _one(self, value: ir.Value, name: str) -> ir.Value:
        return self.b.op("Unsqueeze", value, self.b.const(f"{name}/axis", np.array([0])), name=name)
