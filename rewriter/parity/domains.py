"""What the inputs of an op may be, and which rows of its outputs it defines.

Sites of ops that are not listed get random inputs, and all their outputs are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Domain:
    """Legal inputs and defined outputs of one op.

    Attributes:
        draw: values of the inputs that are not free, by the schema's name, for one of several
            seeds; given the shapes of all inputs and the constants among them.
        defined: the part of an output (by the schema's name) that the op defines.
    """

    draw: Callable[[Mapping[str, tuple[int, ...]], Mapping[str, Array], int], dict[str, Array]]
    defined: Callable[[str, Array, Mapping[str, Array]], Array]


def _draw_lengths(
    shapes: Mapping[str, tuple[int, ...]], constants: Mapping[str, Array], seed: int
) -> dict[str, Array]:
    """``seqlens_k``: the fewest valid rows, all of them, and something between, by turns."""
    tokens = shapes["query"][1]
    total = int(constants["total_sequence_length"].reshape(-1)[0])
    if total == tokens:
        last = tokens - 1
    else:
        rows = max(total, shapes.get("past_key", (0, 0, 0, 0))[2])
        choices = [rows - 1, tokens - 1, (rows + tokens) // 2 - 1]
        last = choices[seed % len(choices)]
    return {"seqlens_k": np.full(shapes["seqlens_k"], last, np.int32)}


def _valid_rows(name: str, array: Array, feeds: Mapping[str, Array]) -> Array:
    if name not in {"present_key", "present_value"}:
        return array
    return array[:, :, : int(feeds["seqlens_k"].min()) + 1]


def _draw_positions(
    shapes: Mapping[str, tuple[int, ...]], _constants: Mapping[str, Array], seed: int
) -> dict[str, Array]:
    """``position_ids`` within the table, its last row included; one number is the first token's."""
    if "position_ids" not in shapes:
        return {}
    wanted, rows = shapes["position_ids"], shapes["cos_cache"][0]
    x = shapes.get("input") or shapes["X"]
    last = rows - (x[-2] if len(wanted) < 2 else 1)
    positions = np.array(np.random.default_rng(seed).integers(0, last + 1, wanted))
    positions.reshape(-1)[:1] = last if seed % 2 else 0
    return {"position_ids": positions}


def _everything(_name: str, array: Array, _feeds: Mapping[str, Array]) -> Array:
    return array


DOMAINS: dict[str, Domain] = {
    "RotaryEmbedding": Domain(_draw_positions, _everything),
    "com.microsoft::GroupQueryAttention": Domain(_draw_lengths, _valid_rows),
    "com.microsoft::RotaryEmbedding": Domain(_draw_positions, _everything),
}
