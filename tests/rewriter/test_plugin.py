"""A package of a third party: ``fixtures/plugin``, installed beside us, adds an EP and a rule."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from tests import ort
from tests.graphs import Builder

ROOT = Path(__file__).parents[2]
REWRITE = [sys.executable, "-c", "import sys; from rewriter.cli import main; sys.exit(main())"]
F32 = ir.DataType.FLOAT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where it is installed."""
    folder = tmp_path_factory.mktemp("site")
    offline = ("--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check")
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", *offline, "--target", str(folder),
         str(ROOT / "fixtures" / "plugin")],
        check=True,
    )  # fmt: skip
    return folder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A product that fits Acme's NPU, and the op that its first version has not."""
    b = Builder()
    x = b.input("x", F32, (3, 8))
    product = b.op("MatMul", x, b.const("w", b.rng.standard_normal((8, 4), np.float32)), name="xw")
    made = b.model([(b.op("Softsign", product, name="y"), F32, (3, 4))], 22)
    ir.save(made, tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def rewrite(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command in a process that finds what is installed there."""
    paths = os.pathsep.join([str(site), str(ROOT)])
    env = {**os.environ, "PYTHONPATH": paths}
    return subprocess.run([*REWRITE, *words], env=env, capture_output=True, text=True, check=False)


def planned(site: Path, model: Path, ep: str) -> dict[str, Any]:
    done = rewrite(site, "plan", str(model), "--ep", ep, "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_its_ep_and_rule_are_found(site: Path, model: Path) -> None:
    first = planned(site, model, "acme@1")
    assert first["target"]["version"] == "1.0"
    (rule,) = first["graphs"][0]["rules"]
    assert rule == {"rule": "acme_softsign", "op": "Softsign", "sites": 1}
    assert planned(site, model, "acme")["graphs"][0]["rules"] == []  # 2.0 has the op


def test_a_model_is_rewritten_for_it(site: Path, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = rewrite(site, str(model), "--ep", "acme@1.0", "-o", str(out))
    assert done.returncode == 0, done.stderr
    assert "rewrite has no way to ask the runtime of acme" in done.stdout
    made = ir.load(out / "model.onnx")
    assert [node.op_type for node in made.graph] == ["MatMul", "Abs", "Add", "Div"]
    given = {"x": np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)}
    expected = ort.run(ir.load(model), given)["y"]
    assert ort.worst(expected, ort.run(made, given)["y"]) < 1e-6


def test_it_is_explained_as_ours_are(site: Path) -> None:
    text = rewrite(site, "explain", "Softsign", "--ep", "acme@1.0").stdout
    assert "illegal  [any]: the first Acme has no Softsign" in text
    assert "declared:Acme manual 1" in text
    assert "over versions [any]: illegal 1.0, legal 2.0" in text
    assert "rule acme_softsign" in text


def test_without_the_package_there_is_no_such_ep(model: Path, tmp_path: Path) -> None:
    done = rewrite(tmp_path, "plan", str(model), "--ep", "acme")
    assert done.returncode == 2
    assert "there is no EP 'acme'" in done.stderr


@pytest.mark.parametrize("group", ["rewriter.targets", "rewriter.rules"])
def test_a_package_that_cannot_be_imported_is_named(
    group: str, model: Path, tmp_path: Path
) -> None:
    info = tmp_path / "broken_npu-0.3.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-npu\nVersion: 0.3\n")
    (info / "entry_points.txt").write_text(f"[{group}]\nbroken = broken_npu.ep\n")
    done = rewrite(tmp_path, "plan", str(model), "--ep", "qnn")
    assert done.returncode == 2
    assert done.stderr.startswith(
        "rewrite: broken-npu 0.3 cannot be used: its entry point 'broken'"
    )
    assert f"of {group}, broken_npu.ep, raised ModuleNotFoundError" in done.stderr
