"""``genai_config.json``: what onnxruntime-genai has to know to run a folder.

Everything about the graph is read from the graph as it was written, so that the two cannot differ:
fixed sizes, split graphs and other caches get no configuration rather than a wrong one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx_ir as ir

from frontends.gguf.vocabulary import Vocabulary
from rewriter.source import CONTEXT

NAME = "genai_config.json"
_MODEL = "model.onnx"
_CACHE = re.compile(r"past_key_values\.(\d+)\.(key|value)")
_TYPES = {
    "llama": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3": "gemma3_text",
    "gemma4": "gemma4_text",
    "granite": "granite",
    "smollm3": "smollm3",
    "gpt-oss": "gptoss",
}
"""What the runtime calls an architecture; it runs the others as ``decoder``.

``phi3`` is among those: under its own name the runtime computes the cache anew where the tables of
long rope change, and a graph of ours has one table.
"""


def genai_config(
    folder: Path, metadata: Mapping[str, Any], vocabulary: Vocabulary
) -> tuple[dict[str, bytes], str]:
    """The configuration of a folder, or why it has none.

    Args:
        folder: holds what a run wrote.
        metadata: keys of the GGUF file.
        vocabulary: of the file.

    Returns:
        The file by its name, if it can be made; else a sentence.
    """
    if not (folder / _MODEL).is_file():
        return {}, f"no {NAME} was written: the runtime takes a graph of any length, not phases"
    model = ir.load(folder / _MODEL)
    reason = _unfit(model.graph)
    if reason:
        return {}, f"no {NAME} was written: {reason}"
    config = _config(model, metadata, vocabulary)
    return {NAME: json.dumps(config, indent=4).encode()}, ""


def _config(model: ir.Model, metadata: Mapping[str, Any], vocabulary: Vocabulary) -> dict[str, Any]:
    graph, arch = model.graph, str(metadata.get("general.architecture"))
    context = int(model.metadata_props.get(CONTEXT, metadata[f"{arch}.context_length"]))
    heads = metadata[f"{arch}.attention.head_count"]
    caches = _caches(graph)
    key = _shape(next(v for v in graph.inputs if v.name == f"past_key_values.{caches[0]}.key"))
    logits = _shape(next(v for v in graph.outputs if v.name == "logits"))
    bos, pad = vocabulary.special("bos"), vocabulary.special("padding")
    ends = vocabulary.ends()
    names = [value.name or "" for value in graph.inputs]
    return {
        "model": {
            "type": _TYPES.get(arch, "decoder"),
            **({} if bos is None else {"bos_token_id": bos}),
            **({} if not ends else {"eos_token_id": ends[0] if len(ends) == 1 else ends}),
            # The runtime pads with something in any case; nothing attends to it.
            "pad_token_id": next((i for i in (pad, *ends, bos) if i is not None), 0),
            "context_length": context,
            "vocab_size": logits[-1],
            "decoder": {
                "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
                "filename": _MODEL,
                "head_size": key[3],
                "hidden_size": int(metadata[f"{arch}.embedding_length"]),
                "num_attention_heads": int(max(heads) if isinstance(heads, list) else heads),
                "num_key_value_heads": key[1],
                "num_hidden_layers": len(caches),
                "inputs": {
                    **{name: name for name in names if not _CACHE.fullmatch(name)},
                    "past_key_names": "past_key_values.%d.key",
                    "past_value_names": "past_key_values.%d.value",
                },
                "outputs": {
                    "logits": "logits",
                    "present_key_names": "present.%d.key",
                    "present_value_names": "present.%d.value",
                },
            },
        },
        "search": {
            "do_sample": False,
            "early_stopping": True,
            "length_penalty": 1.0,
            "max_length": context,
            "min_length": 0,
            "num_beams": 1,
            "num_return_sequences": 1,
            "past_present_share_buffer": False,
            "repetition_penalty": 1.0,
            "temperature": 1.0,
            "top_k": 50,
            "top_p": 1.0,
        },
    }


def _unfit(graph: ir.Graph) -> str:
    """Why the runtime cannot drive a graph; nothing if it can."""
    inputs = {value.name: _shape(value) for value in graph.inputs}
    outputs = {value.name for value in graph.outputs}
    caches = _caches(graph)
    needed = {f"past_key_values.{i}.{what}" for i in caches for what in ("key", "value")}
    needed |= {"input_ids", "attention_mask", "position_ids"}
    if set(inputs) != needed or not caches:
        return "the graph has other inputs than tokens, mask, positions and caches"
    presents = {f"present.{i}.{what}" for i in caches for what in ("key", "value")}
    if outputs != {"logits", *presents}:
        return "the graph has other outputs than logits and caches"
    if caches != list(range(len(caches))):
        return f"the runtime counts caches from 0 without a gap, and those are {caches}"
    sizes = [inputs["input_ids"][1], inputs["attention_mask"][1]]
    sizes += [inputs[name][2] for name in needed if name.startswith("past_")]
    if any(isinstance(size, int) for size in sizes):
        return "the runtime takes prompts and caches of any length, and the graph has fixed sizes"
    return ""


def _caches(graph: ir.Graph) -> list[int]:
    found = [_CACHE.fullmatch(value.name or "") for value in graph.inputs]
    return sorted({int(match[1]) for match in found if match})


def _shape(value: ir.Value) -> Sequence[int | str | None]:
    shape = value.shape or ()
    return [d if isinstance(d, int) else str(d) for d in shape]
