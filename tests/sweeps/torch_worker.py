"""A model that torch.onnx.export makes, before and after our rules; runs beside torch.

Reads one JSON object from stdin: ``target`` and ``folder``, where ``original.onnx`` and
``rewritten.onnx`` go. Our rules run on the ONNXProgram itself. Writes what was left, and the
module's own outputs for ``ids``.
"""

import json
import sys
from pathlib import Path

import torch  # type: ignore[import-not-found]  # of another environment
from onnxscript.rewriter import rewrite

from rewriter import rule_set

F = torch.nn.functional


class Block(torch.nn.Module):  # type: ignore[misc]  # torch is of another environment
    """Attention over grouped heads and a gated feed-forward layer, each behind an RMS norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.norms = torch.nn.ModuleList(torch.nn.RMSNorm(width, eps=1e-5) for _ in range(2))
        self.q = torch.nn.Linear(width, width)
        self.kv = torch.nn.Linear(width, width)
        self.out = torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(2 * width, width)

    def forward(self, x: "torch.Tensor") -> "torch.Tensor":
        """Causal attention, then the layer."""
        rows, tokens, _ = x.shape
        y = self.norms[0](x)
        q = self.q(y).view(rows, tokens, self.heads, self.size).transpose(1, 2)
        k, v = self.kv(y).view(rows, tokens, 2, self.heads // 2, self.size).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        gate, up = self.up(self.norms[1](x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


def main() -> None:
    """Export, and rewrite."""
    asked = json.load(sys.stdin)
    folder, rules = Path(asked["folder"]), rule_set(asked["target"])
    torch.manual_seed(0)
    head = (torch.nn.RMSNorm(64), torch.nn.Linear(64, 100))
    model = torch.nn.Sequential(torch.nn.Embedding(100, 64), Block(64, 4), Block(64, 4), *head)
    ids = torch.tensor(asked["ids"])
    program = torch.onnx.export(model.eval(), (ids,), dynamo=True, opset_version=24, verbose=False)
    program.save(folder / "original.onnx")
    program.model = rewrite(program.model, pattern_rewrite_rules=rules)
    program.save(folder / "rewritten.onnx")
    with torch.no_grad():
        logits = model(ids).tolist()
    assert rules.report is not None
    left = [str(node) for node in rules.report.stuck] + [op for _, op in rules.report.unknown]
    found = {"left": left, "sites": len(rules.report.fired), "logits": logits}
    sys.stdout.write("\n" + json.dumps(found) + "\n")


main()
