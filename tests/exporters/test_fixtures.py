"""Small files of the exporters themselves: rewritten, proven, and held against torch."""

from __future__ import annotations

from pathlib import Path

import pytest

from capabilities import eps
from tests.exporters import checks
from tests.exporters.checks import PHASES, QNN
from tests.quick import slow_but

FIXTURES = Path(__file__).parents[2] / "fixtures"
INT4 = [f"genai/{name}_int4" for name in ("qwen2", "gptoss", "mistral", "lfm2")]
DECODERS = ["genai/gemma2", "genai/phi3", *INT4]
WHOLE = {
    "torch/sentence_encoder": ("sentence", {"seq": 8}),
    "torch/mistral": ("logits", {"seq": 8}),
    "torch/vit": ("logits", {}),
}
"""Models without a cache: the output, and the dims that are free."""
_WHOLE = [(file, dims) for file, (_, dims) in WHOLE.items()]
CASES = [(file, dims) for file in DECODERS for dims in PHASES.values()] + _WHOLE
STEPS = [(file, PHASES["decode"]) for file in DECODERS] + _WHOLE
VERSIONS = [f"{ep.name}@{v}" for ep in eps() if ep.name in {"qnn", "openvino"} for v in ep.measured]
EPS = [*VERSIONS, "onnx-standard"]


@pytest.mark.parametrize(("file", "dims"), slow_but(STEPS, CASES), ids=str)
def test_the_whole_command(file: str, dims: dict[str, int], tmp_path: Path) -> None:
    checks.whole_command(FIXTURES / file, dims, QNN, tmp_path)


@pytest.mark.parametrize("ep", EPS)
@pytest.mark.parametrize(("file", "dims"), CASES, ids=str)
def test_nothing_is_stuck_or_unknown_at_any_version(
    file: str, dims: dict[str, int], ep: str
) -> None:
    checks.nothing_stuck_or_unknown(FIXTURES / file, dims, ep)


@pytest.mark.parametrize("ep", [QNN, "onnx-standard"])
@pytest.mark.parametrize("file", DECODERS)
def test_a_decoder_token_by_token(file: str, ep: str) -> None:
    """Gemma 2's window of 4 drops rows in every step, as that of gpt-oss does.

    The heads of the latter have sinks, and its experts are QMoE; Phi-3 leaves its short rotary
    table behind after the prompt. The head of Qwen 2 is its table of embeddings too, in int8 with
    zero points. Every cache of Mistral has a window, so that no input has the length of the past;
    in LFM2 a convolution keeps the last two columns.
    """
    checks.token_by_token(FIXTURES / file, ep)


@pytest.mark.parametrize("ep", [QNN, "onnx-standard"])
@pytest.mark.parametrize("file", WHOLE)
def test_a_model_without_a_cache(file: str, ep: str) -> None:
    """A sentence with padding, a prompt longer than the window of Mistral, a picture."""
    output, dims = WHOLE[file]
    checks.without_a_cache(FIXTURES / file, dims, output, ep)
