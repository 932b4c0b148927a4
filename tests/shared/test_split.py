"""Real decoders in parts: the chain is the whole bit for bit, and HTP takes every part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from capabilities import target
from frontends import read
from rewriter.cli import main
from rewriter.lowering import lower
from rewriter.parity.settings import DEVICE_MAX, DEVICE_RMS
from rewriter.placement import place
from rewriter.split import write_parts
from tests.htp import needs_qnn
from tests.rewriter.split import chain
from tests.shared import SHARED, needs_shared

pytestmark = needs_shared

LAYERS = {
    "models/llama/Q4_K_M.gguf": 4,
    "models/gemma3/Q4_K_M.gguf": 7,
    "models/gemma4-e2b/Q4_K_M.gguf": 7,
    "models/qwen3moe/Q4_K_M.gguf": 4,
} | {str(path.relative_to(SHARED)): 2 for path in sorted(SHARED.glob("onnx/genai/*/*/model.onnx"))}
PLACED = ["models/llama/Q4_K_M.gguf", "models/gemma4-e2b/Q4_K_M.gguf"]
PHASES = ["prefill", "decode"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {file: tmp_path_factory.mktemp("split") / "out" for file in LAYERS}


def _whole(folders: dict[str, Path], file: str, phase: str) -> Path:
    """A graph with caches of a fixed size, lowered for HTP; made once."""
    out = folders[file]
    words = [str(SHARED / file), "--ep", "qnn@2.7.0", "-o", str(out), "--static", "both"]
    words += ["--seq", "8", "--max-seq-len", "32", "--parity", "none", "--no-place"]
    if not out.exists():
        assert main(words) == 0
    return out / f"{phase}.onnx"


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("file", LAYERS)
def test_the_chain_is_bit_equal(file: str, phase: str, folders: dict[str, Path]) -> None:
    whole = _whole(folders, file, phase)
    feeds = chain.feeds(whole)
    expected = chain.run([whole], feeds)
    for parts in (2, 3, None):
        if parts is not None and parts > LAYERS[file]:
            continue
        written = write_parts(whole, parts)
        names = [part.cut.name for part in written]
        assert names == ["embedding", *["layers"] * (parts or 1), "head"]
        chain.same(expected, chain.run([part.path for part in written], feeds))
        assert {h.dtype for part in written for h in part.cut.hands} == {"float"}


def test_layers_that_share_caches_get_them_from_the_part_that_has_them(
    folders: dict[str, Path],
) -> None:
    written = write_parts(_whole(folders, PLACED[1], "decode"), 7)
    reads = [{handed.name for handed in part.cut.reads} for part in written]
    caches = {3: {"present.3.key", "present.3.value"}, 4: {"present.4.key", "present.4.value"}}
    assert caches[3] <= reads[6]
    assert caches[4] <= reads[7]
    assert not any(name.startswith("past") for part in written[6:] for name in part.cut.inputs)
    inputs = [name for part in written for name in part.cut.inputs if name.startswith("past")]
    assert len(inputs) == len(set(inputs)) == 10, "each cache belongs to one part"


def test_float16_is_bit_equal_where_it_is_rounded(tmp_path: Path) -> None:
    """ONNX Runtime's CPU computes float16 in float32 and rounds where a graph ends: a part rounds
    what the whole does not, until an Identity, which it has in float16, stands at the cuts. onnx's
    reference evaluator rounds everywhere.
    """
    model = read(SHARED / "onnx" / "torch" / "llama_fp16" / "model.onnx")
    lower(model, target("qnn", "2.7.0"), keep_sites=False)
    whole, rounded = tmp_path / "model.onnx", tmp_path / "rounded.onnx"
    ir.save(model, whole, external_data="model.onnx.data")
    feeds = chain.feeds(whole)
    written = write_parts(whole, 2)
    paths = [part.path for part in written]
    names = {handed.whole for part in written for handed in part.cut.hands}
    assert {handed.dtype for part in written for handed in part.cut.hands} == {"float16"}
    _round_at(model, names)
    ir.save(model, rounded, external_data="rounded.onnx.data")
    chain.same(chain.run([rounded], feeds), chain.run(paths, feeds))

    expected: Any = ReferenceEvaluator(str(whole)).run(None, feeds)
    known: dict[str, Any] = dict(feeds)
    for path in paths:
        session = ReferenceEvaluator(str(path))
        found: Any = session.run(None, {name: known[name] for name in session.input_names})
        known |= zip(session.output_names, found, strict=True)
    chain.same({"logits": expected[0]}, known)


def _round_at(model: ir.Model, names: set[str]) -> None:
    """Puts an Identity after each value named."""
    for node in list(model.graph):
        for value in node.outputs:
            if value.name in names:
                same = ir.node("Identity", [value])
                value.replace_all_uses_with(same.outputs[0])
                same.replace_input_with(0, value)
                model.graph.insert_after(node, same)
                names.remove(str(value.name))
    assert not names


@needs_qnn
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("file", PLACED)
def test_htp_takes_every_part(file: str, phase: str, folders: dict[str, Path]) -> None:
    """Placed whole each, and fed one with what the one before computed, close to the CPU."""
    whole = _whole(folders, file, phase)
    feeds = chain.feeds(whole)
    expected = chain.run([whole], feeds)
    known = dict(feeds)
    for part in write_parts(whole, 2):
        names = [*part.cut.inputs, *(handed.name for handed in part.cut.reads)]
        given = {name: known[name] for name in names}
        placed = place(part.path, ep="qnn", options={}, feeds=[given], time_limit=300)
        assert (placed.on_cpu, placed.full, placed.partitions) == (0, True, 1), placed.reasons
        known |= placed.outputs[0]
    error = np.abs(expected["logits"] - known["logits"]) / expected["logits"].std()
    assert 1e-5 < error.max() <= DEVICE_MAX, "below 1e-5 it was not HTP"
    assert np.sqrt((error**2).mean()) <= DEVICE_RMS
