"""Whether the parts of a model fit together and make up the whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import onnx_ir as ir

from rewriter.errors import RewriteError
from rewriter.split.flow import captured
from rewriter.split.parts import Part
from rewriter.wellformed import faults as graph_faults


def check(parts: Sequence[Part], model: ir.Model) -> None:
    """Check the interfaces of parts.

    Args:
        parts: in the order they run.
        model: the whole.

    Raises:
        RewriteError: they do not fit; the message says what.
    """
    problem = next(faults(parts, model), None)
    if problem is not None:
        raise RewriteError(f"the model was split wrong: {problem}")


def faults(parts: Sequence[Part], model: ir.Model) -> Iterator[str]:
    """A sentence for everything in which parts do not fit together."""
    wanted = _forms(model.graph.outputs)
    known = _forms(model.graph.inputs)
    handed: set[str] = set()
    read: set[str] = set()
    for number, part in enumerate(parts, 1):
        here = f"part {number} ({part.name})"
        for problem in (*graph_faults(part.model), *_own(part.model, model)):
            yield f"{here}: {problem}"
        for name, form in _forms(part.model.graph.inputs).items():
            read.add(name)
            if name not in known:
                yield f"{here} reads '{name}', which is no input of the model nor of a part before"
            elif known[name] != form:
                yield f"{here} reads '{name}' as {form}; it is {known[name]}"
        for name, form in _forms(part.model.graph.outputs).items():
            if name in known:
                yield f"{here} computes '{name}', which is there already"
            if wanted.get(name, form) != form:
                yield f"{here} computes '{name}' as {form}; in the model it is {wanted[name]}"
            known[name] = form
            handed.add(name)
    for name in sorted(wanted.keys() - handed):
        yield f"no part computes the output '{name}'"
    for name in sorted(handed - wanted.keys() - read):
        yield f"no part reads '{name}', which is no output of the model"


def _own(part: ir.Model, model: ir.Model) -> Iterator[str]:
    """What is wrong with a part by itself."""
    used = {v for node in part.graph for v in [*node.inputs, *captured(node)]}
    for value in part.graph.inputs:
        if value not in used and value not in part.graph.outputs:
            yield f"no node reads the input '{value.name}'"
    if (part.opset_imports, part.ir_version) != (model.opset_imports, model.ir_version):
        yield f"its versions {part.opset_imports} are not those of the model"


def _forms(values: Iterable[ir.Value]) -> dict[str, str]:
    """Type and shape of values, by name."""
    return {str(v.name): f"{v.dtype} {v.shape}".lower() for v in values}
