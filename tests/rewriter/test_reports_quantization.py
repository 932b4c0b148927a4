"""Public reports of this field on the memory of quantized models and on mask values.

Their source is ../shared/reports.md (D26, D27, D29 to D31); those on one op stand in the tests of
its rule, those on GGUF in tests/frontends/gguf/test_reports.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.cli import main
from rewriter.lowering import lower
from rewriter.passes.fix_dims import fix_dims
from rewriter.quantization import quantized_weights
from tests import ort
from tests.decoders import Decoder, decoder
from tests.graphs import Builder

F32 = ir.DataType.FLOAT
LOWEST = float(np.finfo(np.float32).min)
DIMS = {"batch": 1, "seq": 1, "past": 8}
LARGE = Decoder(weights="noise", embedding="blocks", packed=False, layers=5, hidden=1024, heads=8,
                kv_heads=2, head_size=128, ffn=4096, vocabulary=8192)  # fmt: skip
LARGEST = 4 << 20
"""Bytes of the codes of its head, of which no weight has more; 32 MB as floats."""
MEASURED = """
import sys, threading, time
from pathlib import Path
from rewriter.cli import main

def anonymous():
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) << 10

def watch():
    global peak
    while True:
        peak = max(peak, anonymous())
        time.sleep(0.001)

def run(model, out, *words):
    return main([model, "-o", out, *words, "--parity", "none", "--no-place"])

small, large, out, *words = sys.argv[1:]
assert run(small, out + ".small", *words) == 0
start = peak = anonymous()
threading.Thread(target=watch, daemon=True).start()
assert run(large, out, *words, "--report", out + ".json") == 0
print("peak", peak - start)
"""


def _save(spec: Decoder, folder: Path, ep: str | None) -> Path:
    """A decoder of fixed sizes, its weights as an EP wants them if one is named."""
    folder.mkdir()
    model = decoder(spec)
    fix_dims(model, DIMS)
    if ep is not None:
        lower(model, target(ep), keep_sites=False)
    ir.save(model, folder / "model.onnx", external_data="model.onnx.data")
    return folder / "model.onnx"


def _measured(small: Path, large: Path, out: Path, *words: str) -> int:
    """Most anonymous memory of a run, over what the same of a small model left behind."""
    made = subprocess.run(
        [sys.executable, "-c", MEASURED, small, large, out, *words],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    return int(made.stdout.splitlines()[-1].split()[1])


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
@pytest.mark.parametrize(
    ("stored", "ep", "op"),
    [
        (None, "onnx-standard", "DequantizeLinear"),
        (None, "qnn@2.7.0", "com.microsoft::MatMulNBits"),
        ("onnx-standard", "qnn@2.7.0", "com.microsoft::MatMulNBits"),
    ],
    ids=["blocks to DQ", "blocks", "DQ to blocks"],
)
def test_d26_d27_memory_is_that_of_the_largest_tensor_and_weights_stay_packed(
    stored: str | None, ep: str, op: str, tmp_path: Path
) -> None:
    """As floats they would be 8 times as large, on disk and in memory."""
    small = _save(Decoder(embedding="blocks"), tmp_path / "small", stored)
    large = _save(LARGE, tmp_path / "large", stored)
    size = (large.parent / "model.onnx.data").stat().st_size
    assert size > 12 * LARGEST
    out = tmp_path / "out"
    peak = _measured(small, large, out, "--ep", ep)
    report = json.loads(Path(f"{out}.json").read_text())
    assert report["graphs"][0]["ops_after"][op] >= 5 * 7 + 1
    bytes_in, bytes_out = report["bytes"]["weights_before"], report["bytes"]["weights_after"]
    assert bytes_out <= bytes_in * 1.01
    assert (out / "model.onnx.data").stat().st_size <= size * 1.01
    assert peak < 8 * LARGEST


@pytest.mark.parametrize("ep", ["qnn@2.7.0", "qnn@2.4.0", "openvino@2026.4.1", "ort-cpu"])
def test_d27_no_dequantized_weight_is_stored(ep: str) -> None:
    """Every code of the source is one in the result, 2 in a byte, and no matrix is of floats."""
    model = decoder(Decoder(weights="int4_qdq", embedding="blocks"))
    fix_dims(model, DIMS)
    before = _stored(model)
    lower(model, target(ep))
    after = _stored(model)
    assert sum(after.values()) <= sum(before.values()) * 1.02
    packed = {ir.DataType.INT4, ir.DataType.UINT4, ir.DataType.UINT8}
    assert sum(after[kind] for kind in packed) >= sum(before[kind] for kind in packed)


def _stored(model: ir.Model) -> Counter[ir.DataType]:
    """Bytes of the initializers by type."""
    found: Counter[ir.DataType] = Counter()
    for value in model.graph.initializers.values():
        assert value.const_value is not None
        found[value.const_value.dtype] += value.const_value.nbytes
    return found


# -- D29 -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scale", "bias", "said"),
    [(0.0, 0.0, "all zeros"), (0.0, 0.25, "0.25 everywhere"), (0.01, 0.25, "")],
    ids=["zeros", "constant", "sound"],
)
def test_d29_a_reference_that_is_one_number_proves_nothing(
    scale: float, bias: float, said: str, tmp_path: Path
) -> None:
    """MatMulNBits in blocks of 512 that gives zeros on both sides, as a broken kernel did."""
    b = Builder()
    codes = b.rng.integers(0, 256, (64, 1, 256), np.uint8)
    y = b.op(
        "com.microsoft::MatMulNBits", b.input("x", F32, (2, 512)), b.const("codes", codes),
        b.const("scales", np.full((64, 1), scale, np.float32)), None, None,
        b.const("bias", np.full(64, bias, np.float32)), name="y", K=512, N=64, bits=4,
        block_size=512,
    )  # fmt: skip
    ir.save(b.model([(y, F32, (2, 64))]), tmp_path / "m.onnx")
    words = ["--ep", "onnx-standard", "--no-place", "--report", str(tmp_path / "r.json")]
    assert main([str(tmp_path / "m.onnx"), "-o", str(tmp_path / "out"), *words]) == (
        4 if said else 0
    )
    assert (tmp_path / "out").exists() == (not said)
    parity = json.loads((tmp_path / "r.json").read_text())["graphs"][0]["parity"]
    found = [*parity["model"]["outputs"], *parity["sites"]]
    assert len(found) == 2
    for one in found:
        assert one["ok"] == (not said)
        assert one["note"] == (
            f"the reference is {said}, whatever it is fed, and shows nothing" if said else ""
        )


# -- D30 -------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [-3.4e38, -1e9, -65535.0, -1e4, -255.0, -50.0])
@pytest.mark.parametrize("constant", [True, False], ids=["constant", "run-time"])
def test_d30_what_hides_a_key_does_not_fill_the_range(value: float, constant: bool) -> None:
    """Of a fused attention no mask of the result is below -3e4, and a hidden key counts nothing.

    Values of practice, from -1e4 up, stay the numbers that they are.
    """
    b = Builder()
    shapes = {"q": (1, 2, 3, 8), "k": (1, 2, 4, 8), "v": (1, 2, 4, 8)}
    qkv = [b.input(name, F32, shape) for name, shape in shapes.items()]
    mask = np.zeros((3, 4), np.float32)
    mask[:, 2] = mask[0, 3] = value
    given = b.const("mask", mask) if constant else b.input("mask", F32, (3, 4))
    y = b.op("Attention", *qkv, given, name="y")
    model = b.model([(y, F32, (1, 2, 3, 8))], 24)
    rng = np.random.default_rng(0)
    feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    feeds["v"][:, :, 2] = 1e6
    feeds["mask"] = mask
    scores = feeds["q"].astype(np.float64) @ feeds["k"].swapaxes(2, 3) / 8**0.5 + mask
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    assert weights[..., 2].max() < 1e-18
    report = lower(model, target("qnn", "2.4.0"))
    assert report.ops_after["Attention"] == 0
    found = ort.run(model, feeds)["y"]
    assert ort.worst(weights @ feeds["v"], found) < 2e-6
    lowest = min(
        float(value.const_value.numpy().min())
        for value in model.graph.initializers.values()
        if value.dtype == F32 and value.const_value is not None
    )
    assert lowest >= (max(value, -3e4) if constant else -3e4)


def _encoder(lowest: float) -> ir.Model:
    """Two attentions as optimum exports a BERT: (1 - attention_mask) times a number is added."""
    b = Builder()
    shape = ("batch", "seq")
    ids, mask = (
        b.input(name, ir.DataType.INT64, shape) for name in ("input_ids", "attention_mask")
    )
    ints = {name: b.const(name, np.array(v, np.int64)) for name, v in
            {"axes": [1, 2], "split": [0, 0, 2, 16], "joined": [0, 0, 32]}.items()}  # fmt: skip
    wide = b.op("Unsqueeze", mask, ints["axes"], name="wide")
    given = b.op("Cast", wide, name="given", to=F32)
    hole = b.op("Sub", b.const("one", np.float32(1)), given, name="hole")
    added = b.op("Mul", hole, b.const("lowest", np.float32(lowest)), name="extended_mask")
    x = b.op("Gather", b.const("table", b.noise((64, 32), spread=8.0)), ids, name="x")
    for layer in ("0", "1"):
        q, k, v = (
            b.op("Transpose", b.op("Reshape", b.linear(x, f"{layer}.{n}", 32, 32, "fp32"),
                 ints["split"], name=f"{layer}.{n}.split"), name=f"{layer}.{n}.heads",
                 perm=[0, 2, 3, 1] if n == "k" else [0, 2, 1, 3])
            for n in "qkv"
        )  # fmt: skip
        scores = b.op("Div", b.op("MatMul", q, k, name=f"{layer}.qk"),
                      b.const(f"{layer}.root", np.float32(4)), name=f"{layer}.scores")  # fmt: skip
        masked = b.op("Add", scores, added, name=f"{layer}.masked")
        weights = b.op("Softmax", masked, name=f"{layer}.weights", axis=-1)
        mixed = b.op("Transpose", b.op("MatMul", weights, v, name=f"{layer}.mixed"),
                     name=f"{layer}.back", perm=[0, 2, 1, 3])  # fmt: skip
        x = b.op("Add", x, b.op("Reshape", mixed, ints["joined"], name=f"{layer}.joined"),
                 name=f"{layer}.x")  # fmt: skip
    return b.model([(x, F32, ("batch", "seq", 32))], 17)


def _hidden_weights(file: Path, seq: int, masked: int) -> float:
    """Largest weight that any softmax of a model gives to keys that the mask hides."""
    model = ir.external_data.load_to_model(ir.load(file))
    found = [node.outputs[0] for node in model.graph if node.op_type == "Softmax"]
    assert found
    model.graph.outputs[:] = found
    mask = np.ones((1, seq), np.int64)
    mask[:, seq - masked :] = 0
    kinds = {v.name: v.dtype.numpy() for v in model.graph.inputs if v.name and v.dtype}
    feeds = {"input_ids": np.arange(1, seq + 1)[None], "attention_mask": mask}
    outputs = ort.run(model, {name: feeds[name].astype(kind) for name, kind in kinds.items()})
    return max(float(array[..., seq - masked :].max()) for array in outputs.values())


@pytest.mark.parametrize("value", ["-1e4", "-255", "-50"])
@pytest.mark.parametrize("source", [LOWEST, -65535.0, "sentence_encoder"])
@pytest.mark.parametrize("fused", [False, True], ids=["written out", "fused"])
def test_d30_the_mask_value_of_written_out_attention(
    fused: bool, source: str | float, value: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """The old one is gone from the file, both are reported, and masked keys weigh nothing."""
    if isinstance(source, str):
        model = Path(__file__).parents[2] / "fixtures" / "torch" / source / "model.onnx"
        words, old, sites = ["--ep", "qnn@2.7.0", "--dim", "seq=8"], LOWEST, 2
    else:
        model, old, sites = tmp_path / "bert.onnx", source, 2
        ir.save(_encoder(source), model)
        words = ["--ep", "onnx-standard"]
    words += [] if fused else ["--disable", "attention"]
    out = [str(tmp_path / "out"), "--report", str(tmp_path / "r.json"), "--no-place"]
    assert main([str(model), *words, "--mask-value", value, "-o", *out]) == 0
    graph = json.loads((tmp_path / "r.json").read_text())["graphs"][0]
    (mask,) = graph["masks"]
    new = float(value)
    assert (mask["old"], mask["new"], len(mask["sites"])) == (old, new, sites)
    assert graph["masks_kept"] == []
    assert graph["parity"]["model"]["ok"]
    assert max(o["max_std"] for o in graph["parity"]["model"]["outputs"]) < 1e-5
    shown = " ".join(capsys.readouterr().out.replace("→", "->").split())
    assert f"mask value {old:g} -> {new:g}: 1 constant(s), {sites} site(s)" in shown
    written = tmp_path / "out" / "model.onnx"
    lowest = min(
        float(v.const_value.numpy().min())
        for v in ir.load(written).graph.initializers.values()
        if v.dtype == F32 and v.const_value is not None
    )
    assert [lowest] == [new]
    if not fused:
        assert _hidden_weights(written, 8, 3) <= (1e-20 if value == "-50" else 0)


def test_d30_a_mask_that_has_to_stay_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is an output too, so that another number would be seen."""
    model = _encoder(LOWEST)
    mask = next(v for n in model.graph for v in n.outputs if v.name == "extended_mask")
    mask.type, mask.shape = ir.TensorType(F32), ir.Shape(["batch", 1, 1, "seq"])
    model.graph.outputs.append(mask)
    ir.save(model, tmp_path / "m.onnx")
    words = ["--ep", "onnx-standard", "--no-place", "--mask-value=-255", "--parity=none"]
    report = ["-o", str(tmp_path / "out"), "--report", str(tmp_path / "r.json")]
    assert main([str(tmp_path / "m.onnx"), *words, *report]) == 0
    graph = json.loads((tmp_path / "r.json").read_text())["graphs"][0]
    why = "'extended_mask' is an output"
    assert graph["masks"] == []
    assert graph["masks_kept"] == [{"value": "lowest", "old": LOWEST, "why": why}]
    assert f"'lowest' keeps -3.40282e+38: {why}" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["-49"], ["255"], ["-65535"], ["nan"], ["-inf"], ["x"]])
def test_d30_a_number_that_hides_nothing_is_refused(words: list[str]) -> None:
    """Nor one that is -inf in fp16 where two masks are added."""
    with pytest.raises(SystemExit) as stopped:
        main(["m.onnx", "--ep", "qnn", "--mask-value", *words])
    assert stopped.value.code == 2


# -- D31 -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "ep", "stored"),
    [
        ("int4_qdq", "qnn@2.7.0", "4 bits, blocks of 32"),
        ("int4", "onnx-standard", "4 bits, blocks of 32"),
    ],
)
def test_d31_storage_and_computation_are_two_facts(
    weights: str, ep: str, stored: str, tmp_path: Path
) -> None:
    """A file of 4-bit weights is computed in floats, whichever op holds them."""
    ir.save(decoder(Decoder(weights=weights)), tmp_path / "m.onnx")
    words = [f"--dim={name}={value}" for name, value in DIMS.items()]
    words += ["--parity", "none", "--no-place", "--report", str(tmp_path / "r.json")]
    assert main([str(tmp_path / "m.onnx"), "--ep", ep, "-o", str(tmp_path / "o"), *words]) == 0
    graph = json.loads((tmp_path / "r.json").read_text())["graphs"][0]
    found = {(w["stored"], w["computed"]) for w in graph["quantized"]}
    assert (stored, "floats: dequantized before the product") in found


def test_d31_quantized_activations_make_integer_products() -> None:
    b = Builder()
    x = b.input("x", ir.DataType.FLOAT, (1, 4, 32))
    scale, zero = b.const("s", np.float32(0.1)), b.const("z", np.uint16(32768))
    quantized = b.op("QuantizeLinear", x, scale, zero, name="q")
    activation = b.op("DequantizeLinear", quantized, scale, zero, name="a")
    codes = b.const("w", np.ones((32, 8), np.int8))
    each = b.const("ws", np.ones(8, np.float32)), b.const("wz", np.zeros(8, np.int8))
    weight = b.op("DequantizeLinear", codes, *each, name="weight", axis=1)
    y = b.op("MatMul", activation, weight, name="y")
    (found,) = quantized_weights(b.model([(y, ir.DataType.FLOAT, (1, 4, 8))]))
    assert found.stored == "8 bits, channels"
    assert found.computed == "integers: activations of 16 bits"
