"""``rewrite run FOLDER --prompt TEXT``: tokens from a folder, before anybody leaves the desk."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rewriter.cli.console import progress, results
from rewriter.generate.config import read_config
from rewriter.generate.decoder import Decoder, check_ids, opened
from rewriter.generate.folder import Folder, read_folder
from rewriter.generate.greedy import check_room, generate, room
from rewriter.generate.plan import calls, limit
from rewriter.generate.text import Stream, Text
from rewriter.placement.qnn import emulated
from rewriter.report.clean import printable
from rewriter.report.data import as_text

_TOKENS = 32
"""How many are generated where nobody says it and no end comes."""


def run(options: argparse.Namespace) -> int:
    """Generate tokens; print their text, or their ids where ids were given."""
    folder = read_folder(options.folder)
    config = read_config(folder)
    folder, stop = replace(folder, context=config.context), config.stop
    text = Text(folder.path) if options.ids is None else None
    prompt: list[int] = options.ids if text is None else text.ids(options.prompt)
    check_ids(folder, prompt)
    if options.max_new_tokens:
        check_room(folder, len(prompt), options.max_new_tokens)
    fits = room(folder, len(prompt))
    tokens = options.max_new_tokens or min(_TOKENS, fits or _TOKENS)
    shown = None if text is None else text.after(prompt)
    with opened(folder, options.ep, python=options.runtime, say=progress()) as decoder:
        made = generate(decoder, prompt, tokens, stop)
        said = _silent(made, shown) if options.json else _print(made, shown)
        seconds = list(decoder.seconds)
    notes = [*_where(decoder), *_pace(folder, len(prompt), seconds)]
    notes += _end(folder, said.ids, stop, fits)
    if text is not None and (folder.path / "chat_template.jinja").is_file():
        notes.append(
            "the prompt was read as it is; the chat template of the folder was not applied"
        )
    if options.json:
        with results() as console:
            console.out(as_text("run", _data(decoder, prompt, said, seconds, notes)))
    else:
        say = progress("")
        for note in notes:
            say(note)
    return 0


@dataclass
class _Said:
    """What was generated.

    Attributes:
        ids: token ids.
        text: the same as text; ``None`` where ids were given.
    """

    ids: list[int] = field(default_factory=list)
    text: str | None = None


def _silent(tokens: Iterator[int], shown: Stream | None) -> _Said:
    """Tokens that are printed when all are there."""
    ids = list(tokens)
    if shown is None:
        return _Said(ids)
    return _Said(ids, "".join([*map(shown.add, ids), shown.end()]))


def _print(tokens: Iterator[int], shown: Stream | None) -> _Said:
    """Print tokens as they come."""
    said = _Said()
    with results() as console:

        def write(text: str) -> None:
            console.file.write("\n".join(map(printable, text.split("\n"))))
            console.file.flush()

        for token in tokens:
            comma = "," if said.ids else ""
            said.ids.append(token)
            write(f"{comma}{token}" if shown is None else shown.add(token))
        write("\n" if shown is None else f"{shown.end()}\n")
    return said


def _data(
    decoder: Decoder,
    prompt: Sequence[int],
    said: _Said,
    seconds: Sequence[tuple[str, float]],
    notes: Sequence[str],
) -> dict[str, Any]:
    return {
        "folder": str(decoder.folder.path),
        "ep": decoder.ep,
        "versions": decoder.versions,
        "prompt": list(prompt),
        "ids": said.ids,
        "text": said.text,
        "calls": [{"graph": graph, "seconds": time} for graph, time in seconds],
        "notes": list(notes),
    }


def _end(
    folder: Folder, ids: Sequence[int], stop: Collection[int], fits: int | None
) -> Iterator[str]:
    """Why no more tokens came."""
    if ids[-1] in stop:
        yield f"stopped at token {ids[-1]}, which ends a text"
    elif len(ids) == fits:
        yield f"stopped because {limit(folder)[1]}"


def _where(decoder: Decoder) -> Iterator[str]:
    """Where it ran."""
    versions = " / ".join(f"{name} {version}" for name, version in decoder.versions.items())
    compiled = ", compiled models" if decoder.compiled else ""
    soc = decoder.options.get("soc_model") if decoder.ep == "qnn" and emulated() else None
    slow = f" (emulated, soc {soc}: its speed says nothing of a device)" if soc else ""
    exact = ", no activation rounded" if decoder.ep == "ort-cpu" else ""
    yield f"{decoder.ep}: {versions}{slow}{compiled}{exact}"


def _pace(folder: Folder, prompt: int, seconds: Sequence[tuple[str, float]]) -> Iterator[str]:
    """How the prompt was read, and how fast tokens came."""
    graph, batch = folder.any_graph, folder.any_graph.batch or 1
    if batch > 1:
        yield f"the graphs take {batch} sequences, and all of them read the same"
    if graph.caches.alignment == "none":
        yield "without a cache every token is computed from the first one on"
    planned = calls(folder, 0, prompt)
    counts = Counter((call.graph, call.width) for call in planned)
    chunks = ", ".join(f"{count} times {width} ({name})" for (name, width), count in counts.items())
    took = sum(time for _, time in seconds[: len(planned)])
    yield f"prompt of {prompt} tokens read as {chunks} in {took:.2g} s"
    steps = [time for _, time in seconds[len(planned) :]]
    if steps:
        yield f"{len(steps) / sum(steps):.3g} tokens/s after it"
