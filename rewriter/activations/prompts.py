"""Calibration data as a person gives it: a text, arrays, or nothing but the wish for some."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import onnx_ir as ir

from rewriter.activations.feeding import Array, Calibration, decoder_of
from rewriter.errors import BadInput
from rewriter.generate.folder import Folder
from rewriter.generate.graph import RUNTIME_INPUTS
from rewriter.generate.plan import limit
from rewriter.generate.text import NAME, Text
from rewriter.parity.trial import trial

AUTO = "auto"
_PROMPTS, _TOKENS, _RUNS = 4, 128, 32
"""Random prompts, and tokens and runs of each at most."""
_MOST_TEXT = 128
"""Prompts of a text that are used."""


def calibration(asked: str, file: Path, tokenizer: Path | bytes | None, seed: int) -> Calibration:
    """What to calibrate a graph on.

    Args:
        asked: ``auto``, or a file: ``.npz`` with ``input_ids`` (N, T) or with all inputs of the
            graph (one sample, or N with an axis before), ``.txt`` with a prompt on each line.
        file: the graph.
        tokenizer: the model's own, for a text.
        seed: of random ids.

    Raises:
        BadInput: the file is none of these, or does not fit the graph.
    """
    if asked == AUTO:
        return _random(file, seed)
    path = Path(asked)
    if not path.is_file():
        raise BadInput(f"--calibrate {asked}: there is no such file; give .txt, .npz, or {AUTO}")
    if path.suffix == ".npz":
        return _arrays(path, file)
    if path.suffix == ".txt":
        return _text(path, tokenizer)
    raise BadInput(f"--calibrate {asked}: is neither .txt nor .npz")


def is_decoder(model: ir.Model) -> bool:
    """Whether a graph reads tokens and gives what follows them."""
    names = {v.name for v in model.graph.inputs}, {v.name for v in model.graph.outputs}
    return "input_ids" in names[0] and "logits" in names[1]


def _random(file: Path, seed: int) -> Calibration:
    model = ir.load(file)
    folder = _driven(model, file)
    if folder is None:
        given = trial(model, seed, _PROMPTS)
        return Calibration("random inputs, NOT DATA", feeds=given.feeds)
    most = limit(folder)[0] or _TOKENS
    rng = np.random.default_rng(seed)
    shape = (_PROMPTS, min(most, _TOKENS, _RUNS * (folder.any_graph.width or _TOKENS)))
    ids = rng.integers(0, folder.vocabulary or 2, shape)
    return Calibration(f"{shape[0]} x {shape[1]} random ids, NOT TEXT", prompts=tuple(ids))


def _driven(model: ir.Model, file: Path) -> Folder | None:
    """A decoder that reads prompts; nothing where a graph is none, or serves a single call."""
    try:
        return decoder_of(file) if is_decoder(model) else None
    except BadInput:
        return None


def _arrays(path: Path, file: Path) -> Calibration:
    try:
        with np.load(path, allow_pickle=False) as held:
            arrays: dict[str, Array] = dict(held)
    except (BadZipFile, OSError, ValueError) as error:
        raise BadInput(f"--calibrate {path}: cannot be read ({error})") from None
    model = ir.load(file)
    shapes = {
        v.name or "": len(v.shape or ()) for v in model.graph.inputs if not v.is_initializer()
    }
    ids = arrays.get("input_ids")
    caches = any(name not in RUNTIME_INPUTS for name in shapes)
    whole = caches and not shapes.keys() - arrays.keys()
    if is_decoder(model) and ids is not None and not whole:
        if ids.ndim > 2 or not ids.size or ids.dtype.kind not in "iu":
            raise BadInput(f"--calibrate {path}: input_ids are whole numbers (N, T)")
        _check_ids(path, ids, decoder_of(file).vocabulary)
        prompts = tuple(np.atleast_2d(ids))
        return Calibration(f"{len(prompts)} prompts of {path.name}", prompts=prompts)
    if missing := sorted(shapes.keys() - arrays.keys()):
        raise BadInput(f"--calibrate {path}: lacks the input(s) {', '.join(missing)}")
    feeds = _samples(path, {name: arrays[name] for name in shapes}, shapes)
    return Calibration(f"{len(feeds)} samples of {path.name}", feeds=feeds)


def _check_ids(path: Path, ids: Array, size: int | None) -> None:
    if size and (int(ids.max()) >= size or int(ids.min()) < 0):
        raise BadInput(f"--calibrate {path}: an id is outside the vocabulary of {size}")


def _samples(
    path: Path, arrays: Mapping[str, Array], ranks: Mapping[str, int]
) -> tuple[dict[str, Array], ...]:
    """One feed, or one for each entry of an axis that all arrays have before their own."""
    if all(array.ndim == ranks[name] for name, array in arrays.items()):
        return (dict(arrays),)
    counts = {len(a) if a.ndim == ranks[n] + 1 else 0 for n, a in arrays.items()}
    if len(counts) > 1 or 0 in counts:
        raise BadInput(
            f"--calibrate {path}: arrays have neither the ranks of the inputs nor one "
            "axis of samples more"
        )
    return tuple({n: a[i] for n, a in arrays.items()} for i in range(counts.pop()))


def _text(path: Path, tokenizer: Path | bytes | None) -> Calibration:
    if tokenizer is None:
        raise BadInput(
            f"--calibrate {path}: the model has no {NAME} to read it with; give .npz with input_ids"
        )
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    if not lines:
        raise BadInput(f"--calibrate {path}: is empty; write a prompt on each line")
    with tempfile.TemporaryDirectory(prefix="rewrite-") as folder:
        data = tokenizer if isinstance(tokenizer, bytes) else tokenizer.read_bytes()
        (Path(folder) / NAME).write_bytes(data)
        text = Text(Path(folder))
        prompts = tuple(np.array(text.ids(line)) for line in lines[:_MOST_TEXT])
    return Calibration(f"{len(prompts)} prompts of {path.name}", prompts=prompts)
