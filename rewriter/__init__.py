"""Rewrites ONNX models until an execution provider can run every node, and proves it.

>>> from capabilities import target
>>> from rewriter import lower
>>> report = lower(model, target("qnn", "2.7.0"))  # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rewriter.explanation import explain
    from rewriter.interop import Lower
    from rewriter.lowering import Stuck, lower, plan
    from rewriter.pattern_rules import rule_set

__version__ = "0.1.0"
__all__ = ["Lower", "Stuck", "__version__", "explain", "lower", "plan", "rule_set"]

_HOMES = {
    "Lower": "rewriter.interop",
    "Stuck": "rewriter.lowering",
    "explain": "rewriter.explanation",
    "lower": "rewriter.lowering",
    "plan": "rewriter.lowering",
    "rule_set": "rewriter.pattern_rules",
}


def __getattr__(name: str) -> Any:
    """Load what is asked for only then: importing the package has to stay cheap."""
    if name not in _HOMES:
        raise AttributeError(f"module 'rewriter' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)
