"""Exact integer layouts: every value comes back, in the order the specifications give."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewriter import packing


@given(st.sampled_from([2, 4, 8]), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_packing_loses_nothing(bits: int, count: int, seed: int) -> None:
    codes = np.random.default_rng(seed).integers(0, 1 << bits, (3, count)).astype(np.uint8)
    packed = packing.pack_bits(codes, bits)
    assert packed.shape == (3, -(-count * bits // 8))
    assert np.array_equal(packing.unpack_bits(packed, bits, count), codes)


def test_low_bits_come_first() -> None:
    assert packing.pack_bits(np.array([1, 2], np.uint8), 4).tolist() == [0x21]
    assert packing.pack_bits(np.array([0, 1, 2, 3], np.uint8), 2).tolist() == [0b11100100]


@pytest.mark.parametrize("dtype", [ir.DataType.INT4, ir.DataType.UINT4, ir.DataType.INT8])
def test_integers_as_onnx_stores_them(dtype: ir.DataType) -> None:
    low = 0 if dtype == ir.DataType.UINT4 else -8
    values = np.arange(low, low + 16).reshape(2, 8)
    tensor = packing.integers(values, dtype)
    assert tensor.dtype == dtype
    assert np.array_equal(tensor.numpy().astype(np.int64), values)
    assert tensor.nbytes == (8 if dtype.bitwidth == 4 else 16)


@pytest.mark.parametrize("bits", [4, 8])
def test_matrix_and_blocks_are_the_same_codes(bits: int) -> None:
    codes = np.random.default_rng(0).integers(0, 1 << bits, (64, 5)).astype(np.uint8)
    blocks = packing.matrix_to_blocks(codes, 32, bits)
    assert blocks.shape == (5, 2, 32 * bits // 8)
    assert np.array_equal(packing.blocks_to_matrix(blocks, 64, bits), codes)


def test_signed_codes_move_up_to_the_middle() -> None:
    matrix = np.full((32, 1), -8, np.int8)
    assert set(packing.unpack_bits(packing.matrix_to_blocks(matrix, 32, 4), 4, 32).flat) == {0}


@pytest.mark.parametrize("n", [2, 5, 6, 600])
@pytest.mark.parametrize("dtype", [ir.DataType.INT4, ir.DataType.UINT4, ir.DataType.UINT8])
def test_a_weight_transposed_without_unpacking_it_is_the_same(n: int, dtype: ir.DataType) -> None:
    bits, middle = dtype.bitwidth, 8 if dtype.is_signed() else 0
    codes = np.random.default_rng(n).integers(0, 1 << bits, (64, n)).astype(np.uint8)
    blocks = packing.matrix_to_blocks(codes, 32, bits)
    transposed = packing.matrix_of_blocks(blocks, 64, dtype)
    expected = packing.integers(codes.astype(np.int16) - middle, dtype)
    assert transposed.tobytes() == expected.tobytes()
    assert transposed.dtype == dtype
    assert transposed.shape == (64, n)


@pytest.mark.parametrize("dtype", [ir.DataType.INT4, ir.DataType.INT8])
def test_codes_move_by_half_without_unpacking_them(dtype: ir.DataType) -> None:
    half = 1 << (dtype.bitwidth - 1)
    codes = np.arange(2 * half, dtype=np.uint8).reshape(2, half)
    moved = packing.moved_by_half(packing.pack_bits(codes, dtype.bitwidth), dtype, codes.shape)
    assert np.array_equal(moved.numpy().astype(np.int64), codes.astype(np.int64) - half)
