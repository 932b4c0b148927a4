"""Read-back of every quantized form on the installed HTP, after our rules chose how to store it.

Other versions are in tests/sweeps/test_readback.py.
"""

from __future__ import annotations

from pathlib import Path

from capabilities import target
from rewriter.runtime.versions import installed
from tests.htp import needs_qnn
from tests.readback import Stored, behind_dequantize, misread, packed, refused

pytestmark = needs_qnn

MATMUL = list(behind_dequantize("MatMul"))
OTHERS = [form for op in ("Gemm", "Conv", "Gather") for form in behind_dequantize(op)
          if form.point in {"", "any"}]  # fmt: skip
PACKED = [form for op in ("MatMulNBits", "GatherBlockQuantized") for form in packed(op)]


def test_with_float_activations(tmp_path: Path) -> None:
    qnn = target("qnn", installed("qnn") or "")
    assert misread([*MATMUL, *OTHERS, *PACKED], qnn, tmp_path) == {}


def test_with_activations_of_16_bits(tmp_path: Path) -> None:
    qnn = target("qnn", installed("qnn") or "")
    forms = [form for form in OTHERS if form.op != "Gather"]
    assert misread([*MATMUL, *forms], qnn, tmp_path, activations=16) == {}


def test_with_activations_of_8_bits(tmp_path: Path) -> None:
    """Blocks around the middle have no exact form there, and are named (2.6 and later)."""
    qnn = target("qnn", installed("qnn") or "")
    forms = [form for op in ("MatMul", "Gemm", "Conv") for form in behind_dequantize(op)]
    left = refused(forms, qnn, 8)
    assert left == {form for form in forms if _blocks_around_the_middle(form)}
    rest = [form for form in forms if form not in left]
    assert misread(rest, qnn, tmp_path, activations=8) == {}


def _blocks_around_the_middle(form: Stored) -> bool:
    signed = form.kind.startswith("int")
    return form.grain == "blocked" and form.point in ({"", "zero"} if signed else {"middle"})
