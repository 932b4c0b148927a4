"""Small models in every form that exporters have for them, by the exporters themselves.

Slow, because an environment with the exporters is made first, and their files in it:
``pytest -m slow tests/sweeps/test_variants.py``. The environment is kept in the folder that
``REWRITE_ENVIRONMENTS`` names, if it is set (as ``exporters-2026``).
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from capabilities import eps
from tests.exporters import checks
from tests.exporters.checks import OPENVINO, PHASES, QNN
from tests.sweeps.environments import python_of

pytestmark = pytest.mark.slow

EXPORTERS = "exporters@2026"
SCRIPT = Path(__file__).parents[2] / "fixtures" / "make_exporter_fixtures.py"
DECODERS = [
    f"genai/{model}_{precision}"
    for model in ("qwen2", "mistral", "phi3", "gemma2", "gptoss", "lfm2")
    for precision in ("fp32", "int4")
]
OPSETS = ("default", "opset23", "opset24")
ENCODERS: dict[str, tuple[str, checks.Dims]] = {
    f"torch/{model}_{opset}": known
    for model, known in (("sentence_encoder", ("sentence", {"seq": 8})), ("vit", ("logits", {})))
    for opset in OPSETS
}
"""The output, and the dims that are free."""
CASES = [(file, PHASES[phase]) for file in DECODERS for phase in ("prefill", "decode")]
CASES += [(file, dims) for file, (_, dims) in ENCODERS.items()]
PLANNED = [f"{ep.name}@{v}" for ep in eps() if ep.name in {"qnn", "openvino"} for v in ep.measured]


@pytest.fixture(scope="module")
def variants(environments: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files, in folders as the tests name them."""
    folder = tmp_path_factory.mktemp("variants")
    python = python_of(environments, EXPORTERS)
    subprocess.run([str(python), str(SCRIPT), str(folder), "--variants"], check=True)
    return folder


@pytest.mark.parametrize("ep", [QNN, OPENVINO])
@pytest.mark.parametrize(("file", "dims"), CASES, ids=str)
def test_the_whole_command(
    file: str, dims: checks.Dims, ep: str, variants: Path, tmp_path: Path
) -> None:
    checks.whole_command(variants / file, dims, ep, tmp_path)


@pytest.mark.parametrize("ep", [*PLANNED, "onnx-standard"])
@pytest.mark.parametrize(("file", "dims"), CASES, ids=str)
def test_nothing_is_stuck_or_unknown(file: str, dims: checks.Dims, ep: str, variants: Path) -> None:
    checks.nothing_stuck_or_unknown(variants / file, dims, ep)


@pytest.mark.parametrize("ep", [QNN, OPENVINO, "onnx-standard"])
@pytest.mark.parametrize("file", DECODERS)
def test_a_decoder_token_by_token(file: str, ep: str, variants: Path) -> None:
    checks.token_by_token(variants / file, ep)


@pytest.mark.parametrize("ep", [QNN, OPENVINO, "onnx-standard"])
@pytest.mark.parametrize("file", ENCODERS)
def test_a_model_without_a_cache(file: str, ep: str, variants: Path) -> None:
    output, dims = ENCODERS[file]
    checks.without_a_cache(variants / file, dims, output, ep)
