"""What the numbers of this machine's processor say nothing of.

OpenVINO's CPU plugin multiplies 8-bit codes by the instruction that the processor has. One with
VNNI or AMX adds the products in 32 bits; any other adds pairs of them in 16, which saturate.
Measured on an AVX2 processor: weights of int8 by activations of uint8 are off by up to all of the
largest value on 2024.6 to 2026.4, and right on a processor with VNNI.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from capabilities import Facts

SATURATES = "this processor saturates products of 8 bits"
"""The note of a record that says nothing for that reason."""
_BYTES = frozenset({"int8", "uint8"})
_OF_CODES = frozenset({"ConvInteger", "MatMulInteger", "com.microsoft::MatMulIntegerToFloat"})


def multiplies_codes(facts: Facts) -> bool:
    """Whether a unit multiplies 8-bit codes by 8-bit codes."""
    if facts.op == "DequantizeLinear":
        stored = facts.inputs["x"]
        return stored.const and stored.dtype in _BYTES and facts.activations in _BYTES
    return facts.op in _OF_CODES


@cache
def saturates() -> bool:
    """Whether the processor adds products of 8-bit codes in 16 bits, as far as Linux tells."""
    try:
        said = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return "vnni" not in said and "amx_int8" not in said
