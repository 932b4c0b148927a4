"""A compiled context against the graph it was made of: the same interface, the same bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from rewriter.compiling.model import Differs, NotCompiled
from rewriter.runtime.child import Arrays


def require_same_interface(source: ir.Model, context: ir.Model, name: str) -> None:
    """The same inputs and outputs: names, order, dtypes and shapes.

    Raises:
        NotCompiled: one of them changed.
    """
    for kind in ("inputs", "outputs"):
        before, after = (_interface(getattr(m.graph, kind)) for m in (source, context))
        if before == after:
            continue
        lost = [text for text in before if text not in after]
        new = [text for text in after if text not in before]
        raise NotCompiled(
            f"{name}: the compiler changed the {kind}: {', '.join(lost) or 'their order'} "
            f"{'became ' + ', '.join(new) if new else 'is gone'}"
        )


def _interface(values: Sequence[ir.Value]) -> list[str]:
    return [f"{v.name} {v.dtype}{list(v.shape) if v.shape is not None else ''}" for v in values]


def require_evidence(expected: Sequence[Arrays], name: str) -> None:
    """Outputs that a comparison can rest on: finite numbers, and not only zeros.

    Raises:
        Differs: they are not.
    """
    for number, outputs in enumerate(expected):
        for output, array in outputs.items():
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise Differs(f"{name}: '{output}' is not finite before compiling (feed {number})")
        if not any(array.any() for array in outputs.values()):
            raise Differs(f"{name}: every output is 0 before compiling (feed {number})")


def require_same_outputs(expected: Sequence[Arrays], found: Sequence[Arrays], name: str) -> None:
    """The same outputs, bit for bit.

    Raises:
        Differs: names the output, and says by how much.
    """
    for number, (before, after) in enumerate(zip(expected, found, strict=True)):
        for output, array in before.items():
            if (how := _difference(array, after[output])) is not None:
                raise Differs(
                    f"{name}: loaded again in a fresh process, '{output}' differs from the "
                    f"uncompiled session: {how} (feed {number})"
                )


def _difference(before: npt.NDArray[Any], after: npt.NDArray[Any]) -> str | None:
    if (before.dtype, before.shape) != (after.dtype, after.shape):
        return f"{before.dtype}{list(before.shape)} became {after.dtype}{list(after.shape)}"
    if before.tobytes() == after.tobytes():
        return None
    if before.dtype.kind not in "fiub":
        return "its elements are others"
    exact, other = before.astype(np.float64), after.astype(np.float64)
    count = int((exact != other).sum())
    largest = float(np.nanmax(np.abs(exact - other), initial=0))
    return f"{count:,} of {before.size:,} elements, at most by {largest:.3g}"
