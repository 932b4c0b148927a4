"""Public reports of this field that concern GGUF files (../shared/reports.md, D22 and D50-D54)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import pytest
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter
from gguf.constants import GGML_QUANT_SIZES
from tokenizers import Tokenizer

from frontends import read
from frontends.decoder.weights import Quantized, Weight
from frontends.gguf.file import GgufFile
from frontends.gguf.tokenizer import tokenizer_files
from frontends.gguf.weights import GgufWeights
from rewriter.cli import main
from rewriter.errors import BadInput
from rewriter.genai import check
from tests import ort
from tests.frontends.gguf.altered import altered, fixture
from tests.frontends.gguf.files import HALVES, T, dequantized, random_blocks, values_of, write
from tests.graphs import Builder
from tests.steps import Steps

F32 = ir.DataType.FLOAT
IDS = np.array([[3, 1, 4, 1, 5, 9, 2, 6]])
WIDTH, VOCABULARY = 256, 32
TOKENIZERS = Path(__file__).parents[3] / "fixtures" / "tokenizers"
HEAD, TABLE = "output.weight", "token_embd.weight"
Array = npt.NDArray[Any]


def _weight(path: Path, kind: GGMLQuantizationType, raw: Array) -> Weight:
    """A file's only weight."""
    return GgufWeights(GgufFile.open(write(path, {"w": (kind, raw)})))["w"]


def _converted(path: Path, out: Path, *more: str) -> Path:
    words = [str(path), "--ep", "ort-cpu", "--parity", "none", "--no-place", "-o", str(out)]
    assert main([*words, *more]) == 0
    return out


def _logits(path: Path, out: Path) -> Array:
    """Of the portable graph, read from the folder that was written."""
    return Steps(_converted(path, out) / "model.onnx")(IDS)


def _stored(model: ir.Model, name: str) -> list[Array]:
    """Initializers made of the weight of a name."""
    return [
        np.asarray(value.const_value.numpy())
        for key, value in model.graph.initializers.items()
        if key.rpartition("/")[2].startswith(name) and value.const_value is not None
    ]


# -- D22 -------------------------------------------------------------------------------------


def test_d22_the_configuration_fits_the_graph_that_lies_beside_it(tmp_path: Path) -> None:
    """Every name in it is an input or output of the file, and none is missing."""
    source = altered("qwen3", tmp_path / "m.gguf", more=_vocabulary("qwen3"))
    out = _converted(source, tmp_path / "out")
    decoder = json.loads((out / "genai_config.json").read_text())["model"]["decoder"]
    graph = ir.load(out / decoder["filename"]).graph
    layers = range(decoder["num_hidden_layers"])
    for names, values in ((decoder["inputs"], graph.inputs), (decoder["outputs"], graph.outputs)):
        filled = {name % i if "%d" in name else name for name in names.values() for i in layers}
        assert filled == {value.name for value in values}
    cache = next(v for v in graph.inputs if v.name == decoder["inputs"]["past_key_names"] % 0)
    assert cache.shape is not None
    assert cache.shape[1] == decoder["num_key_value_heads"]
    assert cache.shape[3] == decoder["head_size"]


def test_d22_graphs_of_fixed_windows_get_a_configuration_that_speaks_of_them(
    tmp_path: Path,
) -> None:
    """Window, alignment and names are those of the graphs; the pads are masked by a stage."""
    source = altered("qwen3", tmp_path / "m.gguf", more=_vocabulary("qwen3"))
    out = _converted(source, tmp_path / "out", "--static", "both", "--seq=8", "--max-seq-len=64")
    config = json.loads((out / "genai_config.json").read_text())
    decoder = config["model"]["decoder"]
    window = decoder["sliding_window"]
    assert (window["window_size"], window["alignment"]) == (8, "left")
    assert window["slide_key_value_cache"] is False
    ids = ir.load(out / "prefill.onnx").graph.inputs[0]
    assert (ids.name, ids.shape) == ("input_ids", ir.Shape([1, 8]))
    check(config, out)
    config["model"]["decoder"]["sliding_window"]["window_size"] = 16
    with pytest.raises(BadInput, match="window_size' is 16, and the graphs have 8"):
        check(config, out)


def _vocabulary(case: str) -> dict[str, Any]:
    """A tokenizer of as many tokens as a case has rows."""
    table = next(t for t in GGUFReader(fixture(case)).tensors if t.name == TABLE)
    tokens = ["a", "b", "ab", "<|im_end|>"]
    tokens += [f"t{i}" for i in range(int(table.shape[1]) - len(tokens))]
    kinds: dict[str, Any] = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.merges": ["a b"]}
    kinds |= {"tokenizer.ggml.token_type": [1] * len(tokens), "tokenizer.ggml.model": "gpt2"}
    return kinds | {"tokenizer.ggml.pre": "qwen2"}


# -- D50 -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "order"), [("llama-yarn", [0, 2, 4, 6, 1, 3, 5, 7]), ("qwen2-yarn", list(range(8)))]
)
def test_d50_rows_are_put_back_only_where_they_were_moved(
    case: str, order: list[int], tmp_path: Path
) -> None:
    """Row i of the file holds i; a head has 8. Rows of Qwen2 (NEOX rope) were never moved."""

    def numbered(weight: Array) -> Array:
        return np.repeat(np.arange(len(weight))[:, None], weight.shape[1], 1)

    name = "blk.0.attn_q.weight"
    path = altered(case, tmp_path / "m.gguf", tensors={name: numbered})
    (matrix,) = _stored(read(path), name)
    assert matrix[0].tolist() == [8 * head + row for head in range(4) for row in order]


def test_d50_biases_are_added_where_the_file_has_them(tmp_path: Path) -> None:
    """By presence: no key says that there are any, and large ones change every logit."""
    large = {"blk.0.attn_v.bias": lambda bias: bias + 20}
    whole = _logits(fixture("qwen2-yarn"), tmp_path / "whole")
    path = altered("qwen2-yarn", tmp_path / "large.gguf", tensors=large)
    assert ort.worst(whole, _logits(path, tmp_path / "large")) > 0.1
    for part in "qkv":
        name = f"attn_{part}.bias"
        path = altered("qwen2-yarn", tmp_path / f"{part}.gguf", drop=[name])
        assert ort.worst(whole, _logits(path, tmp_path / part)) > 1e-4
        assert not any(name in key for key in read(path).graph.initializers)
        assert any(name in key for key in read(fixture("qwen2-yarn")).graph.initializers)


# -- D51 -------------------------------------------------------------------------------------


def _q6_k(raw: Array) -> Array:
    """One block of 210 bytes, element by element as ggml's format is laid out."""
    low, high, scales = raw[:128], raw[128:192], raw[192:208].view(np.int8)
    d = np.float32(raw[208:210].view(np.float16)[0])
    y = np.empty(256, np.float32)
    for i in range(256):
        half, quarter, at = i // 128, i % 128 // 32, i % 32
        byte = int(low[64 * half + 32 * (quarter % 2) + at])
        nibble = byte >> 4 if quarter > 1 else byte & 15
        upper = int(high[32 * half + at]) >> (2 * quarter) & 3
        y[i] = d * np.float32(int(scales[i // 16])) * np.float32((nibble | upper << 4) - 32)
    return y


def test_d51_q6_k_element_by_element(tmp_path: Path) -> None:
    raw = random_blocks(T.Q6_K, (6, 512), extremes=False)
    expected = np.array([_q6_k(block) for block in raw.reshape(-1, 210)]).reshape(6, 512)
    weight = _weight(tmp_path / "w.gguf", T.Q6_K, raw)
    assert isinstance(weight, Quantized)
    assert len(np.unique(expected)) > 1000
    assert values_of(weight).tobytes() == expected.tobytes() == dequantized(T.Q6_K, raw).tobytes()


def _mixed(
    path: Path, *, floats: bool = False, head: Callable[[Array], Array] | None = None
) -> Path:
    """A decoder of one layer in the types of a Q4_K_M file, or the same numbers as F32.

    ``head`` makes the rows of a head from those of the table.
    """
    square = (WIDTH, WIDTH)
    kinds: dict[str, tuple[GGMLQuantizationType, tuple[int, int]]] = {
        TABLE: (T.Q6_K, (VOCABULARY, WIDTH)),
        "blk.0.attn_q.weight": (T.Q4_K, square),
        "blk.0.attn_k.weight": (T.Q4_K, square),
        "blk.0.attn_v.weight": (T.Q6_K, square),
        "blk.0.attn_output.weight": (T.Q5_0, square),
        "blk.0.ffn_gate.weight": (T.Q4_K, square),
        "blk.0.ffn_up.weight": (T.Q8_0, square),
        "blk.0.ffn_down.weight": (T.Q6_K, square),
    }
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(WIDTH)
    writer.add_head_count(4)
    writer.add_layer_norm_rms_eps(1e-5)
    for seed, (name, (kind, shape)) in enumerate(kinds.items()):
        raw = random_blocks(kind, shape, seed, extremes=False)
        blocks = raw.reshape(*shape[:-1], -1, GGML_QUANT_SIZES[kind][1])
        for at in HALVES[kind]:
            halves = np.ascontiguousarray(blocks[..., at : at + 2]).view(np.float16)
            size = 0.02 if kind == T.Q5_0 else 1e-3
            blocks[..., at : at + 2] = (halves * np.float16(size)).view(np.uint8)
        raw = blocks.reshape(raw.shape)
        if name == TABLE and head is not None:
            writer.add_tensor(HEAD, head(raw.copy()), raw_dtype=kind)
        if floats:
            writer.add_tensor(name, dequantized(kind, raw))
        else:
            writer.add_tensor(name, raw, raw_dtype=kind)
    gain = np.random.default_rng(9).uniform(0.5, 1.5, WIDTH).astype(np.float32)
    for name in ("blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", "output_norm.weight"):
        writer.add_tensor(name, gain)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_d51_a_mix_of_types_is_one_model_and_its_table_the_head(tmp_path: Path) -> None:
    mixed = _mixed(tmp_path / "mixed.gguf")
    assert {t.type for t in GgufFile.open(mixed).tensors.values()} == {
        *(T.Q4_K, T.Q6_K, T.Q5_0, T.Q8_0, T.F32)
    }
    expected = _logits(_mixed(tmp_path / "floats.gguf", floats=True), tmp_path / "floats")
    assert ort.worst(expected, _logits(mixed, tmp_path / "mixed")) < 2e-5
    tables = [a for a in _stored(read(mixed), "token_embd") if a.dtype == np.uint8]
    assert sum(table.size for table in tables) == VOCABULARY * WIDTH


@pytest.mark.parametrize(
    ("golden", "kind"), [("byte_level", "gpt2"), ("sentencepiece", "llama")], ids=str
)
def test_d51_the_key_picks_the_tokenizer_and_spaces_survive(golden: str, kind: str) -> None:
    metadata = json.loads((TOKENIZERS / f"{golden}.json").read_text())["metadata"]
    assert metadata["model"] == kind
    if kind == "gpt2":
        metadata["pre"] = "gpt-2"
    made = tokenizer_files(
        Path("m.gguf"), {f"tokenizer.ggml.{key}": value for key, value in metadata.items()}
    )
    text = made.files["tokenizer.json"]
    assert isinstance(text, bytes)
    assert (b"ByteLevel" in text) == (kind == "gpt2")
    tokenizer = Tokenizer.from_str(text.decode())
    for sentence in ("two words", " a b ", "naïve café, 東京 и 🦙 end", "tab\tand\nline"):
        ids = tokenizer.encode(sentence, add_special_tokens=False).ids
        assert len(ids) > 1
        assert tokenizer.decode(ids, skip_special_tokens=False) == sentence


# -- D52 -------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["gemma", "gemma2", "gemma3", "gemma4-moe"])
def test_d52_the_norms_of_gemma_are_used_as_they_are_stored(case: str) -> None:
    """llama.cpp stores w + 1: around 1 in the file, and the very numbers in a plain RMSNorm."""
    graph = read(fixture(case)).graph
    gains = {
        value.name.rpartition("/")[2]: value
        for value in graph.initializers.values()
        if value.name is not None
    }
    compared = 0
    for tensor in GGUFReader(fixture(case)).tensors:
        if "norm" not in tensor.name:
            continue
        value = gains[tensor.name]
        stored = np.asarray(tensor.data)
        assert 0.6 < stored.mean() < 1.4
        assert value.const_value is not None
        assert value.const_value.numpy().tobytes() == stored.tobytes()
        assert {(node.op_type, at) for node, at in value.uses()} == {("RMSNormalization", 1)}
        compared += 1
    assert compared > 4


# -- D53 -------------------------------------------------------------------------------------


def test_d53_q4_0_and_matmulnbits_order_nibbles_differently(tmp_path: Path) -> None:
    """Byte i of Q4_0 holds the elements i and i + 16, of MatMulNBits 2i and 2i + 1."""
    codes = [(7 * i + 3) % 16 for i in range(16)] + [(5 * i + 1) % 16 for i in range(16)]
    block = np.empty((1, 18), np.uint8)
    block[0, :2] = np.array([0.5], np.float16).view(np.uint8)
    block[0, 2:] = [codes[i] | codes[i + 16] << 4 for i in range(16)]
    weight = _weight(tmp_path / "w.gguf", T.Q4_0, block)
    assert isinstance(weight, Quantized)
    assert (weight.bits, weight.zero, weight.scales.numpy().tolist()) == (4, 8, [[0.5]])
    wanted = [codes[2 * i] | codes[2 * i + 1] << 4 for i in range(16)]
    assert weight.codes.numpy().reshape(-1).tolist() == wanted
    b = Builder()
    x = b.input("x", F32, (32, 32))
    parts = b.const("codes", weight.codes), b.const("scales", weight.scales)
    sizes = {"N": 1, "K": 32, "bits": 4, "block_size": 32}
    y = b.op("com.microsoft::MatMulNBits", x, *parts, name="y", **sizes)
    found = ort.run(b.model([(y, F32, (32, 1))]), {"x": np.eye(32, dtype=np.float32)})["y"]
    assert found[:, 0].tolist() == [(code - 8) * 0.5 for code in codes]


def test_d53_q8_0_is_signed_around_128(tmp_path: Path) -> None:
    codes = np.array([-128, -127, -1, 0, 1, 127, *range(26)], np.int8)
    block = np.empty((1, 34), np.uint8)
    block[0, :2] = np.array([0.25], np.float16).view(np.uint8)
    block[0, 2:] = codes.view(np.uint8)
    weight = _weight(tmp_path / "w.gguf", T.Q8_0, block)
    assert isinstance(weight, Quantized)
    assert (weight.bits, weight.zero) == (8, 128)
    assert weight.codes.numpy().reshape(-1).tolist() == (codes.astype(int) + 128).tolist()
    assert values_of(weight).reshape(-1).tolist() == (codes * 0.25).tolist()


def test_d53_the_minimum_of_q4_k_is_kept_beside(tmp_path: Path) -> None:
    """D = 0.5, sc = 3, dmin = 0.25, m = 5: 1.5·q - 1.25, whose zero point would be 5/6."""
    block = np.full((1, 144), 0x94, np.uint8)
    block[0, :4] = np.array([0.5, 0.25], np.float16).view(np.uint8)
    block[0, 4:16] = [3] * 4 + [5] * 4 + [3 | 5 << 4] * 4
    weight = _weight(tmp_path / "w.gguf", T.Q4_K, block)
    assert isinstance(weight, Quantized)
    assert weight.minimums is not None
    assert (weight.zero, weight.scales.numpy().tolist()) == (0, [[1.5] * 8])
    assert weight.minimums.numpy().tolist() == [[1.25] * 8]
    assert values_of(weight).reshape(4, 2, 32)[:, 0].tolist() == [[1.5 * 4 - 1.25] * 32] * 4
    assert values_of(weight).reshape(4, 2, 32)[:, 1].tolist() == [[1.5 * 9 - 1.25] * 32] * 4


def test_d53_every_type_is_exact_unless_a_smaller_one_is_asked_for(tmp_path: Path) -> None:
    """And then the report has the error of each."""
    rows = {}
    for kind in ("exact", "int4"):
        report = tmp_path / f"{kind}.json"
        more = ["--report", str(report), *(["--weights", kind] if kind != "exact" else [])]
        _converted(fixture("qwen3"), tmp_path / kind, *more)
        rows[kind] = json.loads(report.read_text())["weights"]
    assert {row["error"] for row in rows["exact"]} == {0}
    assert {"Q5_0", "Q8_0", "Q4_0"} <= {row["type"] for row in rows["exact"]}
    lossy = {row["type"]: row for row in rows["int4"] if row["error"]}
    assert {"Q5_0", "Q5_1", "Q8_0", "F16"} <= set(lossy)
    assert "Q4_0" not in lossy
    for row in lossy.values():
        assert row["form"].startswith("4 bits")
        assert 1e-3 < row["error"] < 0.1


# -- D54 -------------------------------------------------------------------------------------


def test_d54_a_head_is_the_table_only_if_it_is_absent_or_equal(tmp_path: Path) -> None:
    """A head with another row 3 is its own: that token's logit follows it, and no other does."""

    def without_3(rows: Array) -> Array:
        rows.reshape(VOCABULARY, 210)[3, 208:] = 0  # the scale of its only block
        return rows

    absent = _mixed(tmp_path / "absent.gguf")
    equal = _mixed(tmp_path / "equal.gguf", head=lambda rows: rows)
    other = _mixed(tmp_path / "other.gguf", head=without_3)
    tied = _logits(absent, tmp_path / "absent")
    assert _logits(equal, tmp_path / "equal").tobytes() == tied.tobytes()
    found = _logits(other, tmp_path / "other")
    rest = np.arange(VOCABULARY) != 3
    assert np.abs(tied[..., 3]).max() > tied.std()
    assert not found[..., 3].any()
    assert (found[..., rest] == tied[..., rest]).all()
    for path, heads in ((absent, 0), (equal, 0), (other, 1)):
        assert len(_stored(read(path), "output.codes")) == heads


def test_d54_two_copies_of_one_name_are_an_error(tmp_path: Path) -> None:
    path = _mixed(tmp_path / "m.gguf", head=lambda rows: rows)
    data, (old, new) = path.read_bytes(), (TABLE.encode(), HEAD.encode())
    sized = [len(name).to_bytes(8, "little") + name for name in (old, new)]
    assert data.count(sized[0]) == data.count(sized[1]) == 1
    path.write_bytes(data.replace(sized[0], sized[1]))
    with pytest.raises(BadInput, match=r"two tensors are named 'output\.weight'"):
        read(path)
