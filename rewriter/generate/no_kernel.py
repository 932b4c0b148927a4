"""Which node it is that ONNX Runtime's CPU has no kernel for, where no session can be created."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir

from capabilities import target
from rewriter.generate.graph import Part
from rewriter.lowering import plan
from rewriter.runtime.versions import installed


def no_kernel(part: Part, said: str, python: Path | None) -> str:
    """A sentence with the node that does not run there, and what to do; nothing if none is known.

    Args:
        part: of which ONNX Runtime created no session.
        said: by it, which may name an op, but neither a form nor a way out.
        python: the interpreter whose ONNX Runtime it was; this one when None.
    """
    report = plan(ir.load(part.file), target("ort-cpu", installed("ort-cpu", python)))
    if not (report.stuck or report.fired):
        return ""
    free = any(isinstance(d, str) for port in part.inputs.values() for d in port.shape)
    nodes = [(node.op, node.node, f"{node.form}: {node.why}") for node in report.stuck]
    nodes += [(site.op, site.node, site.form) for site in report.fired]
    op, node, why = next((n for n in nodes if n[0].rpartition("::")[2] in said), nodes[0])
    # Many rules need fixed sizes; and as this file does not run, nothing can be compared with it.
    words = "--static both --parity none" if report.stuck and free else "--parity none"
    return (
        f"{part.file}: ONNX Runtime's CPU has no kernel for its {op} '{node}' [{why}]; "
        f"'rewrite {part.file} --ep ort-cpu {words} -o FOLDER' replaces it, or says why it cannot"
    )
