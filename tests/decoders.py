"""Small decoders as the onnxruntime-genai model builder writes them.

Attention mask to ``seqlens_k`` and total length, SimplifiedLayerNormalization,
GroupQueryAttention with the rotary embedding inside, SkipSimplifiedLayerNormalization with its
fourth output, SiLU gate, a cache that grows. ``python -m tests.decoders`` writes the fixture;
with a folder, a decoder of real size (1.5 B parameters, 1 GB) that is streamed to it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx_ir as ir

from tests.graphs import Builder

FIXTURE = Path(__file__).parents[1] / "fixtures" / "decoder"
F32, I64 = ir.DataType.FLOAT, ir.DataType.INT64


@dataclass(frozen=True)
class Decoder:
    """What to build; the default is a two-layer decoder with packed 4-bit projections.

    Attributes:
        weights: of the projections, as :meth:`Builder.linear` knows them.
        embedding: ``float`` (Gather), ``blocks`` (GatherBlockQuantized, noise) or ``tied`` (the
            same over the head's weight, which takes ``weights`` = ``noise``).
    """

    weights: str = "int4"
    embedding: str = "float"
    packed: bool = True
    layers: int = 2
    hidden: int = 64
    heads: int = 4
    kv_heads: int = 2
    head_size: int = 16
    ffn: int = 128
    vocabulary: int = 256
    window: int = -1
    rotary: bool = True
    max_positions: int = 128
    opset: int = 22
    seed: int = 0


REAL = Decoder(weights="noise", packed=False, layers=24, hidden=2048, heads=16, kv_heads=4,
               head_size=128, ffn=8192, vocabulary=32000, max_positions=2048)  # fmt: skip
"""About 1.5 B parameters."""


def decoder(spec: Decoder | None = None) -> ir.Model:
    """Build one."""
    return _Build(spec or Decoder()).model()


class _Build:
    def __init__(self, spec: Decoder) -> None:
        self.spec = spec
        self.b = Builder(spec.seed)
        self.presents: list[ir.Value] = []

    def model(self) -> ir.Model:
        b, spec = self.b, self.spec
        ids = b.input("input_ids", I64, ("batch_size", "sequence_length"))
        mask = b.input("attention_mask", I64, ("batch_size", "total_sequence_length"))
        self.lengths = self._lengths(mask)
        self.tables = self._tables()
        skip = self._embedding(ids)
        norm = b.op("SimplifiedLayerNormalization", skip, self._gain("layers.0/norm.weight"),
                    name="layers.0/norm", axis=-1, epsilon=1e-6, stash_type=1)  # fmt: skip
        for layer in range(spec.layers):
            mixed = self._attention(norm, layer)
            norm, skip = self._add_and_norm(skip, mixed, f"layers.{layer}/mlp_norm")
            down = self._mlp(norm, f"layers.{layer}/mlp")
            norm, skip = self._add_and_norm(skip, down, f"layers.{layer}/out_norm")
        if spec.embedding == "tied":
            logits = b.blocks(
                norm, self.head[0], self.head[1], "logits", spec.hidden, spec.vocabulary
            )
        else:
            logits = b.linear(norm, "logits", spec.hidden, spec.vocabulary, spec.weights)
        present = ("batch_size", spec.kv_heads, "total_sequence_length", "kv_cache_dim")
        outputs = [(value, F32, present) for value in self.presents]
        shape = ("batch_size", "sequence_length", spec.vocabulary)
        return b.model([(logits, F32, shape), *outputs], spec.opset)

    def _embedding(self, ids: ir.Value) -> ir.Value:
        b, spec = self.b, self.spec
        rows, width, bytes_ = spec.vocabulary, spec.hidden, ir.DataType.UINT8
        if spec.embedding == "float":
            if spec.weights == "noise":
                stored: ir.TensorProtocol = b.noise((rows, width), spread=8.0)
            else:
                stored = ir.tensor(b.rng.standard_normal((rows, width)).astype(np.float32))
            return b.op("Gather", b.const("embed.weight", stored), ids, name="embed")
        scales = b.const("embed.scales", b.noise((rows, width // 32), spread=width**-0.5))
        if spec.embedding == "tied":
            blocks = b.const("logits.weight_Q4", b.noise((rows, width // 32, 16), bytes_))
            self.head = blocks, scales
            shape = b.const("embed/shape", np.array([rows, width // 2]))
            codes = b.op("Reshape", blocks, shape, name="embed/rows")
        else:
            codes = b.const("embed.weight_Q4", b.noise((rows, width // 2), bytes_))
        return b.op("com.microsoft::GatherBlockQuantized", codes, ids, scales, name="embed",
                    bits=4, block_size=32, gather_axis=0, quantize_axis=1)  # fmt: skip

    def _lengths(self, mask: ir.Value) -> tuple[ir.Value, ir.Value]:
        b = self.b
        axis, one = b.const("mask/axis", np.array([1])), b.const("mask/one", np.array(1))
        total = b.op("ReduceSum", mask, axis, name="mask/sum", keepdims=0)
        last = b.op("Cast", b.op("Sub", total, axis, name="mask/last"), name="seqlens_k", to=6)
        width = b.op("Gather", b.op("Shape", mask, name="mask/shape"), one, name="mask/width")
        return last, b.op("Cast", width, name="total_length", to=6)

    def _tables(self) -> list[ir.Value | None]:
        spec = self.spec
        if not spec.rotary:
            return []
        rates = 10000.0 ** -(np.arange(0, spec.head_size, 2) / spec.head_size)
        angles = np.outer(np.arange(spec.max_positions), rates)
        return [
            self.b.const(name, of(angles).astype(np.float32))
            for name, of in (("cos_cache", np.cos), ("sin_cache", np.sin))
        ]

    def _gain(self, name: str) -> ir.Value:
        gain = 1 + 0.1 * self.b.rng.standard_normal(self.spec.hidden)
        return self.b.const(name, gain.astype(np.float32))

    def _add_and_norm(self, skip: ir.Value, x: ir.Value, name: str) -> tuple[ir.Value, ir.Value]:
        outputs = self.b.node(
            "com.microsoft::SkipSimplifiedLayerNormalization",
            [skip, x, self._gain(f"{name}.weight")],
            [name, "", "", f"{name}/sum"],
            epsilon=1e-6,
        )
        return outputs[0], outputs[3]

    def _mlp(self, x: ir.Value, name: str) -> ir.Value:
        b, spec = self.b, self.spec
        gate = b.linear(x, f"{name}/gate", spec.hidden, spec.ffn, spec.weights)
        up = b.linear(x, f"{name}/up", spec.hidden, spec.ffn, spec.weights)
        silu = b.op("Mul", gate, b.op("Sigmoid", gate, name=f"{name}/sigmoid"), name=f"{name}/silu")
        both = b.op("Mul", silu, up, name=f"{name}/product")
        return b.linear(both, f"{name}/down", spec.ffn, spec.hidden, spec.weights)

    def _attention(self, x: ir.Value, layer: int) -> ir.Value:
        b, spec, name = self.b, self.spec, f"layers.{layer}/attn"
        query, cache = spec.heads * spec.head_size, spec.kv_heads * spec.head_size
        widths = (("qkv", query + 2 * cache),) if spec.packed else (
            ("q", query), ("k", cache), ("v", cache))  # fmt: skip
        qkv: list[ir.Value | None] = [
            b.linear(x, f"{name}/{part}", spec.hidden, width, spec.weights)
            for part, width in widths
        ]
        past = [
            b.input(f"past_key_values.{layer}.{part}", F32,
                    ("batch_size", spec.kv_heads, "past_sequence_length", "kv_cache_dim"))
            for part in ("key", "value")
        ]  # fmt: skip
        mixed, *presents = b.node(
            "com.microsoft::GroupQueryAttention",
            [*qkv, *[None] * (3 - len(qkv)), *past, *self.lengths, *self.tables],
            [f"{name}/mixed", f"present.{layer}.key", f"present.{layer}.value"],
            num_heads=spec.heads,
            kv_num_heads=spec.kv_heads,
            scale=float(spec.head_size) ** -0.5,
            local_window_size=spec.window,
            do_rotary=int(spec.rotary),
        )
        self.presents += presents
        return b.linear(mixed, f"{name}/o", query, spec.hidden, spec.weights)


def main() -> None:
    """Write the fixture, or a decoder of real size to a folder."""
    if sys.argv[1:]:
        spec = replace(REAL, embedding=(*sys.argv[2:], "float")[0])
        ir.save(decoder(spec), Path(sys.argv[1]) / "model.onnx", external_data="model.onnx.data")
        return
    FIXTURE.mkdir(parents=True, exist_ok=True)
    ir.save(decoder(), FIXTURE / "model.onnx", external_data="model.onnx.data")
    (FIXTURE / "config.json").write_text('{"model_type": "a made-up decoder"}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
