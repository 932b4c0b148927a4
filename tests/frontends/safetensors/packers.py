"""Checkpoints that are quantized, packed as the formats are documented, and their float values.

Typed out number by number, with nothing of what reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tests.frontends.safetensors.altered import Array

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Which of eight outputs is in each place of a word, from the low bits (AutoAWQ, Quark)."""


@dataclass
class Matrix:
    """A random quantized matrix: W[k, n] = scales[g(k), n] * (codes[k, n] - zeros[g(k), n]).

    Args:
        inputs: K.
        outputs: N.
        bits: of a code.
        group: inputs of a group.
        seed: of the random numbers.
        lowest: zero point to begin with.
        groups: group of each input; in their order where it is not given.
    """

    inputs: int
    outputs: int
    bits: int
    group: int
    seed: int
    lowest: int = 1
    groups: Array | None = None
    codes: Array = field(init=False)
    zeros: Array = field(init=False)
    scales: Array = field(init=False)

    def __post_init__(self) -> None:
        rng, shape = np.random.default_rng(self.seed), (self.inputs // self.group, self.outputs)
        self.codes = rng.integers(0, 1 << self.bits, (self.inputs, self.outputs))
        self.zeros = rng.integers(self.lowest, (1 << self.bits) - 1, shape).astype(np.float64)
        spread = 2.0 ** (4 - self.bits)
        self.scales = (rng.uniform(0.01, 0.04, shape) * spread).astype(np.float16)
        if self.groups is None:
            self.groups = np.arange(self.inputs) // self.group

    def wide(self) -> Array:
        """W (K, N) in float64, exact."""
        scales, of = self.scales.astype(np.float64), self.groups
        result: Array = scales[of] * (self.codes - self.zeros[of])
        return result

    def values(self) -> Array:
        """W (K, N); exact in float32, as is asserted."""
        result = self.wide()
        assert np.array_equal(result, result.astype(np.float32))
        return result.astype(np.float32)


def words_along_inputs(codes: Array, bits: int) -> Array:
    """int32 (K·bits/32, N): the first input in the low bits."""
    count = 32 // bits
    words = np.zeros((codes.shape[0] // count, codes.shape[1]), np.uint32)
    for k in range(codes.shape[0]):
        words[k // count] |= codes[k].astype(np.uint32) << np.uint32(bits * (k % count))
    return words.view(np.int32)


def words_along_outputs(codes: Array, bits: int, order: tuple[int, ...]) -> Array:
    """int32 (K, N·bits/32), the last word filled with zeros."""
    count = 32 // bits
    rows, outputs = codes.shape
    words = np.zeros((rows, -(-outputs // count)), np.uint32)
    for word in range(words.shape[1]):
        for place, which in enumerate(order):
            if word * count + which < outputs:
                column = codes[:, word * count + which].astype(np.int64) & ((1 << bits) - 1)
                words[:, word] |= column.astype(np.uint32) << np.uint32(bits * place)
    return words.view(np.int32)


def gptq(stem: str, matrix: Matrix, less: int) -> dict[str, Array]:
    """Tensors of a GPTQ module; ``less`` is what zero points are stored less."""
    places = tuple(range(32 // matrix.bits))
    assert matrix.groups is not None
    return {
        f"{stem}.qweight": words_along_inputs(matrix.codes, matrix.bits),
        f"{stem}.qzeros": words_along_outputs(matrix.zeros.astype(int) - less, matrix.bits, places),
        f"{stem}.scales": matrix.scales,
        f"{stem}.g_idx": matrix.groups.astype(np.int32),
    }


def awq(stem: str, matrix: Matrix) -> dict[str, Array]:
    """Tensors of an AWQ module of the version gemm."""
    return {
        f"{stem}.qweight": words_along_outputs(matrix.codes, 4, AWQ_ORDER),
        f"{stem}.qzeros": words_along_outputs(matrix.zeros.astype(int), 4, AWQ_ORDER),
        f"{stem}.scales": matrix.scales,
    }


def quark(stem: str, matrix: Matrix, dtype: str) -> dict[str, Array]:
    """Tensors of a Quark module: zero points are floats, or packed for ``uint4`` and ``int4``."""
    if dtype == "uint2":
        packed = np.zeros((matrix.inputs, -(-matrix.outputs // 4)), np.uint8)
        for n in range(matrix.outputs):
            packed[:, n // 4] |= matrix.codes[:, n].astype(np.uint8) << np.uint8(6 - 2 * (n % 4))
        zeros = matrix.zeros.astype(np.float16)
        assert np.array_equal(zeros, matrix.zeros)
    else:
        less = 8 if dtype == "int4" else 0
        packed = words_along_outputs(matrix.codes - less, 4, AWQ_ORDER)
        zeros = words_along_outputs(matrix.zeros.astype(int) - less, 4, AWQ_ORDER)
    return {
        f"{stem}.weight": packed,
        f"{stem}.weight_scale": matrix.scales,
        f"{stem}.weight_zero_point": zeros,
    }


def _shuffled(inputs: int, group: int) -> Array:
    return np.random.default_rng(5).permutation(np.arange(inputs) // group)


PACKED: dict[str, tuple[str, Callable[[], Matrix]]] = {
    "gptq 2": ("gptq", lambda: Matrix(64, 32, 2, 16, seed=2)),
    "gptq 4": ("gptq", lambda: Matrix(64, 32, 4, 16, seed=4)),
    "gptq 8": ("gptq", lambda: Matrix(64, 32, 8, 16, seed=8)),
    "gptq act order": ("gptq", lambda: Matrix(64, 32, 4, 16, seed=5, groups=_shuffled(64, 16))),
    "awq": ("awq", lambda: Matrix(64, 32, 4, 16, seed=6)),
}
"""Matrices that AutoGPTQ and AutoAWQ packed too (``fixtures/make_packed_fixtures.py``)."""
