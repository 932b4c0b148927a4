"""``rewrite run``: what a person types, reads, and is told."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from rewriter.cli import main
from rewriter.runtime.versions import installed
from tests.decoders import Decoder, decoder
from tests.rewriter.generate.toys import F32, WORDS, Toy, edit, greedy
from tests.steps import Steps

Capture = pytest.CaptureFixture[str]
PROMPT = [3, 1, 4]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Prefill of 4 tokens and decode, caches of 14 rows at the left."""
    for name, tokens in (("prefill", 4), ("decode", 1)):
        Toy(alignment="left", tokens=tokens, rows=14).save(tmp_path / "out", name)
    return tmp_path / "out"


def run(capsys: Capture, *words: str, code: int = 0) -> tuple[str, str]:
    """Stdout and stderr of a run."""
    assert main(["run", *words]) == code
    said = capsys.readouterr()
    return said.out, said.err


def failed(capsys: Capture, *words: str) -> str:
    """The one line that a bad call says."""
    out, err = run(capsys, *words, code=2)
    assert out == ""
    lines = err.splitlines()
    assert lines[-1].startswith("rewrite: ")
    return lines[-1]


def ids(tokens: list[int]) -> str:
    return ",".join(map(str, tokens))


def test_ids_in_ids_out(folder: Path, capsys: Capture) -> None:
    out, err = run(capsys, str(folder), "--ids", "3, 1,4", "--max-new-tokens", "6")
    assert out == ids(greedy(PROMPT, 6)) + "\n"
    assert "prompt of 3 tokens read as 1 times 4 (prefill)" in err
    assert "tokens/s" in err
    assert f"ort-cpu: onnxruntime {installed('ort-cpu')}" in err


def test_without_a_number_it_stops_where_the_cache_is_full(folder: Path, capsys: Capture) -> None:
    out, err = run(capsys, str(folder), "--ids", ids(PROMPT))
    assert out == ids(greedy(PROMPT, 12)) + "\n"
    assert "stopped because the cache has 14 rows; write the folder with a larger --max-s" in err


def test_it_stops_where_the_text_ends(folder: Path, capsys: Capture) -> None:
    tokens = greedy(PROMPT, 12)
    stages = [
        {name: {"filename": f"{name}.onnx", "inputs": ["input_ids"], "outputs": ["logits"]}}
        for name in ("prefill", "decode")
    ]
    config = {"model": {"eos_token_id": tokens[3], "decoder": {"pipeline": stages}}}
    (folder / "genai_config.json").write_text(json.dumps(config), encoding="utf-8")
    out, err = run(capsys, str(folder), "--ids", ids(PROMPT))
    assert out == ids(tokens[: tokens.index(tokens[3]) + 1]) + "\n"
    assert f"stopped at token {tokens[3]}, which ends a text" in err


def test_the_model_knows_so_many_positions(tmp_path: Path, capsys: Capture) -> None:
    Toy().save(tmp_path, "model")
    config = {
        "model": {
            "context_length": 5,
            "decoder": {"filename": "model.onnx", "inputs": {}, "outputs": {}},
        }
    }
    (tmp_path / "genai_config.json").write_text(json.dumps(config), encoding="utf-8")
    out, err = run(capsys, str(tmp_path), "--ids", ids(PROMPT))
    assert out == ids(greedy(PROMPT, 3)) + "\n"
    assert "stopped because the model knows 5 positions" in err


def test_several_sequences_read_the_same(tmp_path: Path, capsys: Capture) -> None:
    Toy(batch=2).save(tmp_path, "model")
    out, err = run(capsys, str(tmp_path), "--ids", ids(PROMPT), "--max-new-tokens", "3")
    assert out == ids(greedy(PROMPT, 3)) + "\n"
    assert "the graphs take 2 sequences, and all of them read the same" in err


# -- text ------------------------------------------------------------------------------------

_TEXT = "the a cat dog tree runs sleeps eats sings and or in on under of to is was he she it very"
WORDS_OF = {word: i for i, word in enumerate(["<s>", *_TEXT.split(" ")])}


@pytest.fixture
def text_folder(tmp_path: Path) -> Path:
    """A decoder with a tokenizer of words, which begins a text with ``<s>``."""
    tokenizer = Tokenizer(models.WordLevel({**WORDS_OF, "<unk>": len(WORDS_OF)}, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.model = models.WordLevel(
        {("" if i == 0 else "▁") + word: i for word, i in WORDS_OF.items()} | {"<unk>": 23}, "<unk>"
    )
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(["<s>", "<unk>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 0)]
    )
    Toy().save(tmp_path, "model")
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_text_in_text_out(text_folder: Path, capsys: Capture) -> None:
    prompt = [0, WORDS_OF["the"], WORDS_OF["cat"], WORDS_OF["sleeps"]]
    names = {i: word for word, i in WORDS_OF.items()}
    tokens = greedy(prompt, 12)
    expected = "".join(f" {names[t]}" for t in tokens if 0 < t < 23)
    words = (str(text_folder), "--prompt", "the cat sleeps", "--max-new-tokens", "12")
    out, err = run(capsys, *words)
    assert len(expected.split()) > 5
    assert out == expected + "\n"
    assert "prompt of 4 tokens" in err
    assert "template" not in err
    (text_folder / "chat_template.jinja").write_text("x", encoding="utf-8")
    assert "the chat template of the folder was not applied" in run(capsys, *words)[1]


def test_nothing_to_read(text_folder: Path, folder: Path, capsys: Capture) -> None:
    assert "the prompt is empty" in failed(capsys, str(text_folder), "--prompt", "")
    said = failed(capsys, str(folder), "--prompt", "the cat")
    assert "holds no tokenizer.json" in said
    assert "--ids" in said


# -- a real decoder, and real runtimes ---------------------------------------------------------


def test_the_fixture_decoder_is_what_onnx_runtime_says(tmp_path: Path, capsys: Capture) -> None:
    """Packed 4-bit weights in floats, heads whose size is a symbol."""
    model = decoder(Decoder(weights="int4_qdq", layers=2, seed=3))
    ir.save(model, tmp_path / "model.onnx")
    prompt = np.random.default_rng(2).integers(0, 256, 9).tolist()
    tokens, _ = Steps(tmp_path / "model.onnx", {"kv_cache_dim": 16}).greedy(prompt, 8)
    assert len(set(tokens)) > 2
    out, _ = run(capsys, str(tmp_path), "--ids", ids(prompt), "--max-new-tokens", "8")
    assert out == ids(tokens) + "\n"
    out, err = run(capsys, str(tmp_path), "--ids", ids(prompt), "--max-new-tokens", "121", code=2)
    assert "room for 120 new ones, not 121: the model knows 128 positions" in err


@pytest.mark.skipif(installed("qnn") is None, reason="onnxruntime-qnn is not installed")
def test_graphs_that_qnn_does_not_take(tmp_path: Path, folder: Path, capsys: Capture) -> None:
    Toy().save(tmp_path / "free", "model")
    said = failed(capsys, str(tmp_path / "free"), "--ids", "1", "--ep", "qnn")
    assert "its sequence_length, past_sequence_length, total_sequence_length are free" in said
    said = failed(capsys, str(folder), "--ids", "1", "--ep", "qnn")
    assert "prefill.onnx: QNN does not take all of its nodes" in said
    assert "'rewrite MODEL --ep qnn'" in said


def test_a_node_that_the_cpu_has_no_kernel_for(tmp_path: Path, capsys: Capture) -> None:
    """It is named, and what is advised gives a folder that runs."""
    Toy().save(tmp_path, "model")
    file = tmp_path / "model.onnx"

    def change(model: ir.Model) -> None:
        added = next(node for node in model.graph if node.outputs[0].name == "mixed")
        zeros = ir.Value(name="zeros", const_value=ir.tensor(np.zeros(16, "f4"), name="zeros"))
        model.graph.initializers["zeros"] = zeros
        x, out = added.inputs
        node = ir.node("BiasAdd", [x, zeros, out], domain="com.microsoft", name="sum")
        model.graph.insert_after(added, node)
        node.outputs[0].type, node.outputs[0].shape = ir.TensorType(F32), added.outputs[0].shape
        ir.convenience.replace_all_uses_with(added.outputs[0], node.outputs[0])
        model.graph.remove(added, safe=True)
        model.opset_imports["com.microsoft"] = 1

    edit(file, change)
    said = failed(capsys, str(tmp_path), "--ids", ids(PROMPT))
    assert f"{file}: ONNX Runtime's CPU has no kernel for its com.microsoft::BiasAdd 'sum'" in said
    assert f"'rewrite {file} --ep ort-cpu --parity none -o FOLDER' replaces it" in said
    words = [str(file), "--ep", "ort-cpu", "--parity", "none", "-o", str(tmp_path / "out")]
    assert main(words) == 0
    capsys.readouterr()
    out, _ = run(capsys, str(tmp_path / "out"), "--ids", ids(PROMPT), "--max-new-tokens", "6")
    assert out == ids(greedy(PROMPT, 6)) + "\n"


# -- what is wrong -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--ids", str(WORDS)], "token id 24 is outside the vocabulary, whose ids are 0 to 23"),
        (["--ids", ids([1] * 15)], "the prompt of 15 tokens does not fit: the cache has 14 rows"),
        (["--ids", "1", "--max-new-tokens", "15"], "room for 14 new ones, not 15"),
    ],
)
def test_what_does_not_fit(words: list[str], said: str, folder: Path, capsys: Capture) -> None:
    assert said in failed(capsys, str(folder), *words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "one of the arguments --prompt --ids is required"),
        (["--ids", "1", "--prompt", "x"], "not allowed with argument"),
        (["--ids", "1,,2"], "'1,,2' is no list of token ids such as 1,2,3"),
        (["--ids", "1,-2"], "is no list of token ids"),
        (["--ids", ""], "is no list of token ids"),
        (["--ids", "1", "--max-new-tokens", "0"], "is no whole number from 1"),
        (["--ids", "1", "--ep", "cuda"], "invalid choice: 'cuda'"),
    ],
)
def test_bad_usage(words: list[str], said: str, folder: Path, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as left:
        main(["run", str(folder), *words])
    assert left.value.code == 2
    err = capsys.readouterr().err
    assert said in err
    assert len(err.splitlines()) == 1


def test_a_folder_that_cannot_be_run(tmp_path: Path, folder: Path, capsys: Capture) -> None:
    assert "there is no such folder" in failed(capsys, str(tmp_path / "none"), "--ids", "1")
    said = failed(capsys, str(folder), "--ids", "1", "--runtime", str(tmp_path / "python"))
    assert "cannot be started" in said
    (folder / "decode.onnx").write_bytes((folder / "prefill.onnx").read_bytes()[:200])
    assert "decode.onnx: cannot be read as an ONNX model" in failed(
        capsys, str(folder), "--ids", "1"
    )


def test_logits_that_are_no_numbers(tmp_path: Path, capsys: Capture) -> None:
    Toy().save(tmp_path, "model")
    model = ir.load(tmp_path / "model.onnx")
    model.graph.initializers["head"].const_value = ir.tensor(np.full((16, WORDS), np.nan, "f4"))
    ir.save(model, tmp_path / "model.onnx")
    assert "the logits after 1 tokens are no numbers" in failed(capsys, str(tmp_path), "--ids", "1")
