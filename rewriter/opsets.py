"""Raising the version of ai.onnx, only where it changes the meaning of no node."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import onnx
import onnx_ir as ir


class NotRaisable(ValueError):
    """Some node means something else at the higher opset; the message names it."""


def raised(nodes: Iterable[ir.Node], opset: int, wanted: int) -> int:
    """The opset to use for nodes that are at ``opset`` when something needs ``wanted``.

    Raises:
        NotRaisable: an op changed between the two in more than the types it takes.
    """
    if opset >= wanted:
        return opset
    for node in nodes:
        if node.domain in {"", "ai.onnx"} and not _same_meaning(node.op_type, opset, wanted):
            raise NotRaisable(
                f"needs opset {wanted}, but {node.op_type} '{node.name}' means something else "
                f"there than at {opset}"
            )
    return wanted


@cache
def _same_meaning(op_type: str, opset: int, wanted: int) -> bool:
    try:
        old = onnx.defs.get_schema(op_type, opset, "")
        new = onnx.defs.get_schema(op_type, wanted, "")
    except onnx.defs.SchemaError:
        return True  # not an op of the standard: ORT registers it at every opset
    if new.deprecated != old.deprecated:
        return False
    same_inputs = [(p.name, p.option) for p in old.inputs] == [
        (p.name, p.option) for p in new.inputs
    ]
    return same_inputs and _attributes(old) == _attributes(new)


def _attributes(schema: onnx.defs.OpSchema) -> dict[str, bytes]:
    return {k: a.default_value.SerializeToString() for k, a in schema.attributes.items()}
