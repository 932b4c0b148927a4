"""Rewrites ONNX models until an execution provider can run every node, and proves it.

>>> from capabilities import target
>>> from rewriter import lower
>>> report = lower(model, target("qnn", "2.7.0"))  # doctest: +SKIP

This is the public API, together with what :mod:`capabilities` and :mod:`frontends` list in their
``__all__``; everything else may change from one version to the next.

To rewrite a model:
    ``lower`` edits it in place, ``plan`` says what that would do, ``fix_dims`` sets free dims
    first, ``Report`` is what both return, ``Stuck`` what ``lower`` raises where an illegal node
    stays.
Inside other pipelines:
    ``Lower`` is a pass of onnx_ir, ``rule_set`` an onnxscript rule set;
    :class:`rewriter.olive.RewriteForTarget` is a pass of Olive.
To ask why:
    ``explain`` speaks of an op, ``explain_node`` of a node of a model.
To write rules:
    ``lowers`` and ``fuses`` register them, ``Site`` is what a rule reads, ``Tape`` what it builds
    on, ``Refusal`` what it raises.
What goes wrong:
    ``RewriteError`` is the base of every error of ours, ``BadInput`` of those that a person can
    correct.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rewriter.errors import BadInput, RewriteError
    from rewriter.explanation import explain
    from rewriter.interop import Lower
    from rewriter.lowering import Stuck, lower, plan
    from rewriter.node_explanation import explain_node
    from rewriter.passes.fix_dims import fix_dims
    from rewriter.pattern_rules import rule_set
    from rewriter.record import Report
    from rewriter.rule import fuses, lowers
    from rewriter.site import Refusal, Site
    from rewriter.tape import Tape

__version__ = "0.1.0"
__all__ = [
    "BadInput",
    "Lower",
    "Refusal",
    "Report",
    "RewriteError",
    "Site",
    "Stuck",
    "Tape",
    "__version__",
    "explain",
    "explain_node",
    "fix_dims",
    "fuses",
    "lower",
    "lowers",
    "plan",
    "rule_set",
]

_HOMES = {
    "BadInput": "rewriter.errors",
    "Lower": "rewriter.interop",
    "Refusal": "rewriter.site",
    "Report": "rewriter.record",
    "RewriteError": "rewriter.errors",
    "Site": "rewriter.site",
    "Stuck": "rewriter.lowering",
    "Tape": "rewriter.tape",
    "explain": "rewriter.explanation",
    "explain_node": "rewriter.node_explanation",
    "fix_dims": "rewriter.passes.fix_dims",
    "fuses": "rewriter.rule",
    "lower": "rewriter.lowering",
    "lowers": "rewriter.rule",
    "plan": "rewriter.lowering",
    "rule_set": "rewriter.pattern_rules",
}


def __getattr__(name: str) -> Any:
    """Load what is asked for only then: importing the package has to stay cheap."""
    if name not in _HOMES:
        raise AttributeError(f"module 'rewriter' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)
