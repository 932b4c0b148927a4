"""What an op's schema says: names of inputs and outputs, attributes with their defaults.

ai.onnx comes from the onnx package, at the model's opset; com.microsoft (and the few ops that
ONNX Runtime registers under ai.onnx) from ``contrib_schemas.json``, read off ORT 1.32, so that
the base package needs no runtime.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import onnx

_OPTION = {
    onnx.defs.OpSchema.FormalParameterOption.Optional: "?",
    onnx.defs.OpSchema.FormalParameterOption.Variadic: "*",
}


@dataclass(frozen=True, slots=True)
class Schema:
    """Names and defaults of one op at one opset.

    Attributes:
        inputs: names in order; the last one repeats if ``variadic``.
        attributes: name to default value, ``None`` where the schema has no default.
        standard: defined by ONNX itself.
        since: the opset this version of the op came with.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    standard: bool
    since: int = 1
    variadic: bool = False
    known: bool = True

    def input_name(self, index: int) -> str:
        """Name of the input at an index (``name_2`` for the third of a variadic one)."""
        return self._name(self.inputs, index)

    def output_name(self, index: int) -> str:
        """Name of the output at an index."""
        return self._name(self.outputs, index)

    @staticmethod
    def _name(names: tuple[str, ...], index: int) -> str:
        if index < len(names):
            return names[index]
        return f"{names[-1]}_{index - len(names) + 1}" if names else f"value_{index}"


UNKNOWN = Schema((), (), {}, standard=False, known=False)


def op_name(domain: str, op_type: str) -> str:
    """``domain::Type``; ops of ai.onnx by type alone."""
    return op_type if domain in {"", "ai.onnx"} else f"{domain}::{op_type}"


def split_op(op: str) -> tuple[str, str]:
    """The domain (empty for ai.onnx) and the type of an op's name."""
    domain, _, op_type = op.rpartition("::")
    return domain, op_type


@cache
def schema_of(op: str, opset: int) -> Schema:
    """The schema of an op at the opset of its domain; :data:`UNKNOWN` if nobody has one."""
    domain, op_type = split_op(op)
    try:
        return _standard(onnx.defs.get_schema(op_type, opset, domain))
    except onnx.defs.SchemaError:
        return _contrib(op)


def _standard(schema: onnx.defs.OpSchema) -> Schema:
    return Schema(
        inputs=tuple(p.name for p in schema.inputs),
        outputs=tuple(p.name for p in schema.outputs),
        attributes={k: _default(a) for k, a in schema.attributes.items()},
        standard=not schema.deprecated,
        since=schema.since_version,
        variadic=any(_OPTION.get(p.option) == "*" for p in schema.inputs),
    )


def _default(attribute: onnx.defs.OpSchema.Attribute) -> Any:
    proto = attribute.default_value
    if not proto.name:
        return None
    value = onnx.helper.get_attribute_value(proto)  # ruff: ignore[banned-api] - onnx_ir keeps it a proto
    return value.decode() if isinstance(value, bytes) else value


@cache
def _contrib_table() -> dict[str, Any]:
    text = (files("rewriter") / "contrib_schemas.json").read_text(encoding="utf-8")
    table: dict[str, Any] = json.loads(text)
    return table


def _contrib(op: str) -> Schema:
    entry = _contrib_table().get(op)
    if entry is None:
        return UNKNOWN
    return Schema(
        inputs=tuple(name.rstrip("?*") for name in entry["inputs"]),
        outputs=tuple(name.rstrip("?*") for name in entry["outputs"]),
        attributes=entry["attributes"],
        standard=False,
        variadic=any(name.endswith("*") for name in entry["inputs"]),
    )
