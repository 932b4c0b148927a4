"""A model that mobius builds, before and after our rules; runs in an environment that has it.

Reads one JSON object from stdin: ``checkpoint`` (a GGUF), ``target``, ``dims`` and ``folder``,
where ``original.onnx`` and ``rewritten.onnx`` go. Our rules are applied as mobius applies its own
rule sets (``--optimize``): by onnxscript, on the model that it has in memory. Writes what was left.
"""

import json
import sys
from pathlib import Path

import onnx_ir as ir
from mobius import build_from_gguf  # type: ignore[import-not-found]  # of another environment
from onnxscript.rewriter import rewrite

from rewriter import fix_dims, rule_set


def main() -> None:
    """Build, and rewrite."""
    asked = json.load(sys.stdin)
    folder, rules = Path(asked["folder"]), rule_set(asked["target"])
    model = build_from_gguf(asked["checkpoint"])["model"]
    ir.save(model, folder / "original.onnx")
    fix_dims(model, asked["dims"])
    rewrite(model, pattern_rewrite_rules=rules)
    ir.save(model, folder / "rewritten.onnx")
    assert rules.report is not None
    left = [str(node) for node in rules.report.stuck] + [op for _, op in rules.report.unknown]
    sys.stdout.write(json.dumps({"left": left, "sites": len(rules.report.fired)}) + "\n")


main()
