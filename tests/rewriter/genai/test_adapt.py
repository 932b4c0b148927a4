"""A configuration takes from the graphs what describes them, and keeps what describes the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.cache_layout import Alignment
from rewriter.genai import adapt, check, graph_files
from rewriter.genai.helpers import helpers
from tests.decoders import decoder
from tests.ort import run
from tests.rewriter.genai.folders import base, growing, pair, parts, save

CPU, QNN = target("ort-cpu"), target("qnn")


def _plain(folder: Path, stated: dict[str, Any] | None = None, ep: str = "ort-cpu") -> Any:
    save(folder / "model.onnx", growing(), context=32)
    return adapt(stated or base(), target(ep), graph_files(folder))


def test_a_growing_cache_is_a_plain_decoder(tmp_path: Path) -> None:
    config = _plain(tmp_path)
    model, decoder = config["model"], config["model"]["decoder"]
    assert (model["type"], model["vocab_size"], model["context_length"]) == ("qwen2", 7, 32)
    assert (model["bos_token_id"], model["eos_token_id"], model["pad_token_id"]) == (1, [3, 4], 5)
    assert decoder["filename"] == "model.onnx"
    assert (decoder["head_size"], decoder["num_key_value_heads"]) == (8, 2)
    assert (decoder["num_hidden_layers"], decoder["hidden_size"]) == (3, 48)
    assert decoder["session_options"]["provider_options"] == []
    assert config["search"]["max_length"] == 32
    assert config["search"]["past_present_share_buffer"] is False
    check(config, tmp_path)


def test_what_a_user_stated_is_kept(tmp_path: Path) -> None:
    """Keys that are not known here too, at every level."""
    stated = base(a_key=[1], context_length=20)
    stated["model"]["decoder"] |= {"b_key": "b", "filename": "decoder.onnx"}
    stated["model"]["decoder"]["session_options"] = {
        "intra_op_num_threads": 3,
        "provider_options": [{"cuda": {"enable_cuda_graph": "0"}}],
    }
    stated |= {
        "search": {"top_k": 7, "c_key": 0.5, "past_present_share_buffer": True},
        "engine": {},
    }
    config = _plain(tmp_path, stated)
    decoder, search = config["model"]["decoder"], config["search"]
    assert (config["model"]["a_key"], decoder["b_key"], config["engine"]) == ([1], "b", {})
    assert (search["top_k"], search["c_key"], search["max_length"]) == (7, 0.5, 20)
    assert decoder["session_options"]["intra_op_num_threads"] == 3
    # What was of another file, EP or cache is of this folder now.
    assert decoder["filename"] == "model.onnx"
    assert decoder["session_options"]["provider_options"] == []
    assert search["past_present_share_buffer"] is False
    check(config, tmp_path)
    made = _plain(tmp_path, stated, ep="ort-cuda")
    session = made["model"]["decoder"]["session_options"]
    assert session["provider_options"] == [{"cuda": {"enable_cuda_graph": "0"}}]


@pytest.mark.parametrize("shared", [True, False])
def test_only_group_query_attention_writes_into_a_longer_buffer(
    tmp_path: Path, shared: bool
) -> None:
    stated = base() | {"search": {"past_present_share_buffer": shared}}
    ir.save(decoder(), tmp_path / "model.onnx")
    config = adapt(stated, CPU, graph_files(tmp_path))
    assert config["search"]["past_present_share_buffer"] is shared
    check(config, tmp_path)
    save(tmp_path / "model.onnx", growing())
    config = adapt(stated, CPU, graph_files(tmp_path))
    assert config["search"]["past_present_share_buffer"] is False


def test_names_of_a_user_are_followed(tmp_path: Path) -> None:
    stated = base()
    stated["model"]["decoder"]["inputs"] = {"past_key_names": "k_%d", "past_value_names": "v_%d"}
    inputs, outputs = growing()
    renamed = {n.replace("past_key_values.", ""): s for n, s in inputs.items()}
    renamed = {
        f"{n[-3:][0] if n.endswith('key') else 'v'}_{n[0]}" if n[0].isdigit() else n: s
        for n, s in renamed.items()
    }
    assert "k_2" in renamed
    assert "v_0" in renamed
    save(tmp_path / "model.onnx", (renamed, outputs))
    config = adapt(stated, CPU, graph_files(tmp_path))
    assert config["model"]["decoder"]["num_hidden_layers"] == 3
    check(config, tmp_path)


@pytest.mark.parametrize("ep", ["openvino", "openvino-ep"])
def test_openvino_runs_on_the_npu_unless_told_otherwise(tmp_path: Path, ep: str) -> None:
    def options(config: Any) -> Any:
        return config["model"]["decoder"]["session_options"]["provider_options"]

    causal = {"enable_causallm": "True"}  # what keeps the cache where no input does
    assert options(_plain(tmp_path, ep=ep)) == [{"OpenVINO": {"device_type": "NPU", **causal}}]
    asked = target(ep, options={"device_type": "CPU"})
    made = adapt(base(), asked, graph_files(tmp_path))
    assert options(made) == [{"OpenVINO": {"device_type": "CPU", **causal}}]
    stated = base()
    stated["model"]["decoder"]["session_options"] = {
        "provider_options": [{"openvino": {"device_type": "GPU", "cache_dir": "c"}}]
    }
    made = adapt(stated, target(ep), graph_files(tmp_path))
    assert options(made) == [{"OpenVINO": {"device_type": "GPU", "cache_dir": "c", **causal}}]


def test_phases_are_a_pipeline_of_context_and_iterator(tmp_path: Path) -> None:
    config = adapt(base(), QNN, graph_files(pair(tmp_path)))
    model, decoder = config["model"], config["model"]["decoder"]
    assert (model["type"], model["context_length"]) == ("decoder-pipeline", 16)
    assert (config["search"]["max_length"], config["search"]["past_present_share_buffer"]) == (
        16,
        True,
    )
    assert decoder["sliding_window"] == {
        "window_size": 4,
        "pad_value": 0,
        "alignment": "left",
        "slide_key_value_cache": False,
        "slide_inputs": True,
        "cache_slack": 12,
    }
    (stages,) = decoder["pipeline"]
    assert [*stages] == ["lengths", "context", "iterator"]
    files = ["lengths.onnx", "prefill.onnx", "decode.onnx"]
    assert [s["filename"] for s in stages.values()] == files
    assert [s["run_on_prompt"] for s in stages.values()] == [True, True, False]
    assert [s["run_on_token_gen"] for s in stages.values()] == [True, False, True]
    # Only the graphs are for the device.
    assert decoder["session_options"]["provider_options"] == []
    for name, stage in stages.items():
        session = stage.get("session_options", {"provider_options": []})
        assert session["provider_options"] == (
            [] if name == "lengths" else [{"QNN": {"backend_type": "htp"}}]
        )
    assert "filename" not in decoder


def test_phases_for_openvino_keep_their_caches_outside(tmp_path: Path) -> None:
    made = adapt(base(), target("openvino"), graph_files(pair(tmp_path)))["model"]["decoder"]
    (stages,) = made["pipeline"]
    assert made["session_options"]["provider_options"] == []
    for name in ("context", "iterator"):
        session = stages[name]["session_options"]
        assert session["provider_options"] == [{"OpenVINO": {"device_type": "NPU"}}]


@pytest.mark.parametrize("alignment", ["left", "right"])
def test_a_stage_makes_mask_and_positions(tmp_path: Path, alignment: Alignment) -> None:
    """The runtime's own are wrong where it pads."""
    graphs = graph_files(pair(tmp_path, alignment=alignment))
    decoder = adapt(base(), QNN, graphs)["model"]["decoder"]
    assert decoder["sliding_window"]["alignment"] == alignment
    named = {decoder["inputs"][role] for role in ("attention_mask", "position_ids")}
    assert not named & {name for graph in graphs for name in graph.inputs}
    stage = decoder["pipeline"][0]["lengths"]
    assert stage["inputs"] == ["input_ids", "tokens_before"]
    assert stage["outputs"] == ["tokens_after", "attention_mask", "position_ids"]
    assert stage["output_names_forwarder"] == {"tokens_after": "tokens_before"}


def test_parts_run_in_their_order(tmp_path: Path) -> None:
    (stages,) = adapt(base(), QNN, graph_files(parts(tmp_path)))["model"]["decoder"]["pipeline"]
    words = ["-1-embedding", "-2-layers", "-3-head"]
    cut = [phase + word for phase in ("context", "iterator") for word in words]
    assert [*stages] == ["lengths", *cut]
    heads = {name for name, stage in stages.items() if stage.get("is_lm_head")}
    assert heads == {"context-3-head"}


def test_a_cache_that_another_part_reads_is_copied_for_it(tmp_path: Path) -> None:
    """The runtime gives it out as what it knows, the input; that holds the new rows by then."""
    for path in parts(tmp_path).glob("*-3-head.onnx"):
        new = 4 if path.name.startswith("prefill") else 1
        shared = {"h1": (1, new, 32), "present.1.key": (1, 2, 16, 8)}
        save(path, (shared, {"logits": (1, new, 7)}))
    graphs = graph_files(tmp_path)
    (stages,) = adapt(base(), QNN, graphs)["model"]["decoder"]["pipeline"]
    order = [*stages]
    for phase in ("context", "iterator"):
        at = order.index(f"{phase}-3-head-caches")
        assert order[at - 1 : at + 2 : 2] == [f"{phase}-2-layers", f"{phase}-3-head"]
        stage = stages[order[at]]
        assert stage["inputs"] == ["past_key_values.1.key"]
        assert stage["output_names_forwarder"] == {"present.1.key/copy": "present.1.key"}
        assert stage["run_on_prompt"] is (phase == "context")
        assert stage["run_on_token_gen"] is (phase == "iterator")
    model = helpers(base(), graphs)["caches.onnx"]
    rows = np.arange(256, dtype=np.float32).reshape(1, 2, 16, 8)
    made = run(model, {"past_key_values.1.key": rows})
    assert np.array_equal(made["present.1.key/copy"], rows)


def test_a_growing_graph_in_parts_is_a_pipeline_without_windows(tmp_path: Path) -> None:
    inputs, outputs = growing()
    rest = {name: shape for name, shape in inputs.items() if name != "input_ids"}
    hidden = ("batch", "sequence", 32)
    first = {"input_ids": inputs["input_ids"]}
    save(tmp_path / "model-1-embedding.onnx", (first, {"h": hidden}))
    save(tmp_path / "model-2-layers.onnx", ({"h": hidden, **rest}, outputs))
    config = adapt(base(), CPU, graph_files(tmp_path))
    decoder = config["model"]["decoder"]
    assert config["model"]["type"] == "decoder-pipeline"
    assert "sliding_window" not in decoder
    assert [*decoder["pipeline"][0]] == ["decoder-1-embedding", "decoder-2-layers"]
    check(config, tmp_path)


def test_compiled_graphs_are_the_ones_that_run(tmp_path: Path) -> None:
    for name in ("prefill", "decode"):
        (pair(tmp_path) / f"{name}_ctx.onnx").touch()
    (stages,) = adapt(base(), QNN, graph_files(tmp_path))["model"]["decoder"]["pipeline"]
    assert stages["context"]["filename"] == "prefill_ctx.onnx"
    assert stages["iterator"]["filename"] == "decode_ctx.onnx"


def test_options_of_the_target_are_passed_on(tmp_path: Path) -> None:
    """But not names of files, which are of this machine."""
    here = tmp_path / "affinity.json"
    here.touch()
    asked = target("qnn", options={"soc_model": "60", "op_affinity": str(here)})
    (stages,) = adapt(base(), asked, graph_files(pair(tmp_path)))["model"]["decoder"]["pipeline"]
    wanted = [{"QNN": {"backend_type": "htp", "soc_model": "60"}}]
    assert stages["context"]["session_options"]["provider_options"] == wanted
    asked = target("qnn", options={"backend_path": "QnnHtp.dll"})
    (stages,) = adapt(base(), asked, graph_files(tmp_path))["model"]["decoder"]["pipeline"]
    wanted = [{"QNN": {"backend_path": "QnnHtp.dll"}}]
    assert stages["iterator"]["session_options"]["provider_options"] == wanted
