"""A job that opens its model by name: the path of the folder reaches no runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rewriter.runtime import child
from tests.rewriter.runtime.models import X, linear, save_linear


def test_a_model_with_its_weights_beside_it(tmp_path: Path) -> None:
    model = save_linear(tmp_path / "m.onnx", data="m.data")
    result = child.run(child.Job(model, by_name=True, feeds=[{"x": X}]))
    np.testing.assert_allclose(result.outputs[0]["y"], linear(X), rtol=1e-5, atol=1e-5)
