"""A small graph that hands the cache of one part to another.

Layers that share a cache may come to lie in different parts, and the later one reads what the
earlier one wrote (``present.N.key``). onnxruntime-genai gives its caches to nobody but as the
inputs it knows (``past_key_values.N.key``); since those of a fixed size are written in place, that
input holds the new rows too, as soon as the earlier part has run. A stage copies it, and
``output_names_forwarder`` gives the copy the name that the later part wants.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from rewriter.genai.graphs import Port

COPY = "/copy"
"""After the name of a present: its copy."""

_OPSET = 18


def copies_graph(names: Mapping[str, str], ports: Mapping[str, Port]) -> ir.Model:
    """The graph.

    Args:
        names: what is copied (past) by what it is given on as (present).
        ports: of what is copied.
    """
    graph = ir.Graph([], [], nodes=[], opset_imports={"": _OPSET}, name="caches")
    for made, given in names.items():
        port = ports[given]
        dtype = ir.TensorType(port.dtype or ir.DataType.FLOAT)
        value = ir.Value(name=given, type=dtype, shape=ir.Shape(port.shape))
        graph.inputs.append(value)
        node = ir.node("Identity", [value], name=f"{made}/Identity")
        graph.append(node)
        copy = node.outputs[0]
        copy.name, copy.type, copy.shape = made + COPY, dtype, ir.Shape(port.shape)
        graph.outputs.append(copy)
    return ir.Model(graph, ir_version=10, producer_name="rewrite")
