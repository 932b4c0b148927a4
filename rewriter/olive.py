"""Our rules as a pass of Olive, which only Olive imports.

Olive finds passes in its package configuration. ``python -m rewriter.olive > package.json`` prints
its own with this pass in it; then ``olive run --config run.json --package-config package.json``,
where ``run.json`` has a pass such as::

    {"type": "RewriteForTarget", "target": "qnn@2.7.0", "dims": {"batch": 1, "seq": 1, "past": 8}}
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import onnx_ir as ir
from olive.model import ONNXModelHandler
from olive.model.utils import resolve_onnx_path
from olive.package_config import OlivePackageConfig
from olive.passes import Pass
from olive.passes.onnx.common import get_external_data_config, ir_model_to_olive_model
from olive.passes.pass_config import PassConfigParam

from capabilities import target
from rewriter.graphs import graphs_of
from rewriter.lowering import lower
from rewriter.passes.fix_dims import fix_dims

_EVERY = (
    "supported_providers",
    "supported_accelerators",
    "supported_precisions",
    "supported_algorithms",
    "supported_quantization_encodings",
)


class RewriteForTarget(Pass):  # type: ignore[misc]  # Olive is of another environment
    """:func:`rewriter.lower` on an ONNX model; an illegal node that stays fails the pass."""

    @classmethod
    def _default_config(cls, _accelerator: Any) -> dict[str, PassConfigParam]:
        parameters: dict[str, PassConfigParam] = {
            "target": PassConfigParam(
                type_=str, required=True, description="EP[@VERSION], as in 'rewrite --ep'"
            ),
            "dims": PassConfigParam(
                type_=dict[str, int], default_value={}, description="dims to fix, by name or role"
            ),
            "allow_stuck": PassConfigParam(
                type_=bool, default_value=False, description="keep what could be done"
            ),
            **get_external_data_config(),
        }
        return parameters

    def _run_for_config(
        self, model: ONNXModelHandler, config: Any, output_model_path: str
    ) -> ONNXModelHandler:
        path = resolve_onnx_path(output_model_path, Path(model.model_path).name)
        graph = model.load_ir_model()
        fix_dims(graph, config.dims)
        lower(graph, target(config.target), allow_stuck=config.allow_stuck, keep_sites=False)
        values = (value for part in graphs_of(graph) for value in part.initializers.values())
        saved = config.model_dump()
        if any(isinstance(value.const_value, ir.ExternalTensor) for value in values):
            saved["save_as_external_data"] = True  # Olive would refer to files beside its input
        return ir_model_to_olive_model(graph, path, saved)


def package_config() -> dict[str, Any]:
    """Olive's package configuration with our pass in it, ready for JSON."""
    text = Path(OlivePackageConfig.get_default_config_path()).read_text(encoding="utf-8")
    known: dict[str, Any] = json.loads(text)
    ours = {"module_path": "rewriter.olive.RewriteForTarget", **{name: ["*"] for name in _EVERY}}
    return {**known, "passes": {**known["passes"], "RewriteForTarget": ours}}


if __name__ == "__main__":
    json.dump(package_config(), sys.stdout, indent=1)
