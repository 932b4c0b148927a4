"""Graphs compiled offline, so that a device only loads them (``--compile [--soc ID]``).

Prefill and decode are compiled one by one, each with a binary of its own, although ONNX Runtime
can make two graphs share one (``ep.share_ep_contexts``), which saves half of the bytes. Of such a
pair nothing can be proven here: loaded again in a fresh process, onnxruntime-qnn 2.7.0 kills the
process (SIGSEGV) and 2.4.0 refuses it, in emulation. What is not proven is not written.
"""

from rewriter.compiling.check import Context, check_context, is_context
from rewriter.compiling.compiler import compile_graph
from rewriter.compiling.model import Compiled, Differs, NotCompiled
from rewriter.compiling.settings import Chosen, choose, require_compiler

__all__ = [
    "Chosen",
    "Compiled",
    "Context",
    "Differs",
    "NotCompiled",
    "check_context",
    "choose",
    "compile_graph",
    "is_context",
    "require_compiler",
]
