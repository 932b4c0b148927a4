"""The estimate of memory traffic against the count of QNN, on every version that prints it."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
import pytest

from rewriter.placement.qnn import default_options
from rewriter.runtime import child
from rewriter.traffic import traffic
from tests.nbits import nbits
from tests.sweeps.environments import PACKAGES, python_of

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("ep", [ep for ep in PACKAGES if ep.startswith("qnn")])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("points", ["", "packed"], ids=["no zero points", "zero points"])
@pytest.mark.parametrize(("k", "n", "rows"), [(512, 1024, 8), (1024, 2048, 1)])
def test_a_packed_product(
    k: int, n: int, rows: int, points: str, bits: int, ep: str, environments: Path, tmp_path: Path
) -> None:
    model, path = nbits(k=k, n=n, rows=rows, bits=bits, zero_points=points), tmp_path / "m.onnx"
    ir.save(model, path)
    job = child.Job(path, ep="qnn", provider_options=default_options(), optimize=True, verbose=True)
    (ddr,) = child.run(job, python=python_of(environments, ep), time_limit=120).ddr
    found, counted = traffic(model), ddr["read_total_bytes"] + ddr["write_total_bytes"]
    assert found.weights + found.interface == pytest.approx(counted, rel=0.08)
