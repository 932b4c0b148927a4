"""Writes ``rewriter/contrib_schemas.json`` from the schemas of the installed ONNX Runtime.

Run it by hand (``python -m tests.rewriter.make_contrib_schemas``) when a new release adds ops;
``test_schemas.py`` compares the file with the installed runtime.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx

TARGET = Path(__file__).parents[2] / "rewriter" / "contrib_schemas.json"
_MARK = {"Single": "", "Optional": "?", "Variadic": "*"}


def _parameters(formal: Any) -> list[str]:
    return [p.name + _MARK[str(p.option).rpartition(".")[2]] for p in formal]


def _default(attribute: Any) -> Any:
    raw = attribute._default_value
    if not raw:
        return None
    proto = onnx.AttributeProto()
    proto.ParseFromString(raw)
    return {1: proto.f, 2: proto.i, 3: proto.s.decode(), 7: list(proto.ints)}.get(proto.type)


def schemas() -> dict[str, Any]:
    """Inputs, outputs and attributes with defaults of every op that ONNX itself does not know."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    standard = {(s.domain, s.name) for s in onnx.defs.get_all_schemas_with_history()}
    found: dict[str, Any] = {}
    for schema in state.get_all_operator_schema():
        wanted = schema.domain == "com.microsoft" or schema.name == "SimplifiedLayerNormalization"
        if not wanted or (schema.domain, schema.name) in standard:
            continue
        name = f"{schema.domain}::{schema.name}" if schema.domain else schema.name
        found[name] = {
            "inputs": _parameters(schema.inputs),
            "outputs": _parameters(schema.outputs),
            "attributes": {k: _default(a) for k, a in sorted(schema.attributes.items())},
        }
    return dict(sorted(found.items()))


def main() -> None:
    """Write the file."""
    lines = [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in schemas().items()]
    TARGET.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
