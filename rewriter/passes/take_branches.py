"""An If whose condition is a constant becomes the branch that it takes.

With fixed dims the condition often folds: LongRoPE exporters choose one of two rotary tables by
the total length, and only one of them is ever read. The branch keeps its order; its results get
the names of the If's outputs, its other values and weights theirs, made unique.
"""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from rewriter.graphs import graphs_of
from rewriter.nodes import constant
from rewriter.tape import Workspace, names_in


class TakeBranches(InPlacePass):
    """Takes constant branches; ``notes`` says which."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[str] = []

    def call(self, model: ir.Model) -> PassResult:
        """Go through every graph; what a branch brings along is gone through in the next call."""
        names: set[str] = set()
        for graph in list(graphs_of(model)):
            for node in [node for node in graph if node.op_type == "If"]:
                taken = _taken(node)
                if taken is not None:
                    names = names or names_in(model.graph)
                    self.notes.append(
                        f"If '{node.name}' always takes its {taken.name} with these dims; the "
                        "other one is gone"
                    )
                    _inline(graph, node, taken.as_graph(), Workspace(graph, names))
        return PassResult(model, modified=bool(self.notes))


def _taken(node: ir.Node) -> ir.Attr | None:
    """The branch of an If with a constant condition."""
    if node.domain not in {"", "ai.onnx"}:
        return None
    condition = constant(node.inputs[0])
    if condition is None or condition.size != 1:
        return None
    return node.attributes["then_branch" if condition.numpy().item() else "else_branch"]


def _names(graph: ir.Graph) -> set[str | None]:
    """Names of the values of a graph itself."""
    made = {value.name for node in graph for value in node.outputs}
    return made | {value.name for value in graph.inputs} | set(graph.initializers)


def _inline(graph: ir.Graph, node: ir.Node, branch: ir.Graph, space: Workspace) -> None:
    """The nodes and weights of a branch in the place of its If."""
    results, nodes = list(branch.outputs), list(branch)
    weights = list(branch.initializers.values())
    branch.outputs.clear()
    branch.initializers.clear()
    branch.remove(nodes)
    own = {value for inner in nodes for value in inner.outputs}
    around = _names(graph)
    for value in (*weights, *own):
        if value.name in around:
            value.name = space.unique(value.name or "")
    graph.insert_before(node, nodes)
    for value in weights:
        graph.register_initializer(value)
    for old, new in zip(node.outputs, results, strict=True):
        if new not in own:  # from around the If, a weight, or a result for the second time
            identity = ir.Node("", "Identity", [new], num_outputs=1)
            identity.name = space.unique(f"{node.name}/Identity")
            graph.insert_before(node, identity)
            result = identity.outputs[0]
            result.type, result.shape = new.type, new.shape
            new = result
        own.discard(new)
        name, old.name = old.name, None
        new.name = name
        new.type, new.shape = new.type or old.type, new.shape or old.shape
        old.replace_all_uses_with(new, replace_graph_outputs=True)
    graph.remove(node, safe=True)
