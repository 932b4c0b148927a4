"""The order in which GPTQ quantized the inputs of a weight."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from frontends.safetensors.header import Stored
from rewriter.errors import BadInput


def order_of(name: str, stored: Stored, inputs: int, group: int) -> npt.NDArray[np.intp] | None:
    """Inputs group after group; ``None`` where they are so already.

    Args:
        name: of the tensor.
        stored: int32 (inputs,), the group of each input.
        inputs: of the weight.
        group: inputs of one group.

    Raises:
        BadInput: groups are not all of that size.
    """
    groups: npt.NDArray[np.int32] = np.empty(0, np.int32)
    if stored.dtype == "I32":
        groups = stored.rows().reshape(-1).view(np.int32)
    wanted = np.arange(inputs) // group
    if np.array_equal(groups, wanted):
        return None
    order = np.argsort(groups, kind="stable")
    if not np.array_equal(groups[order], wanted):
        raise BadInput(
            f"{stored.path}: the tensor '{name}' does not put {group} of {inputs} inputs into each "
            "group; give a checkpoint whose groups are of one size"
        )
    return order
