"""``rewrite run FOLDER --prompt TEXT``: tokens from a folder, before anybody leaves the desk."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rewriter.cli.console import progress, results
from rewriter.generate.config import read_config
from rewriter.generate.decoder import Decoder, check_ids, opened
from rewriter.generate.folder import Folder, read_folder
from rewriter.generate.greedy import check_room, generate, room
from rewriter.generate.plan import calls, limit
from rewriter.generate.text import Stream, Text
from rewriter.placement.qnn import emulated
from rewriter.report.clean import printable

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
        found = _print(generate(decoder, prompt, tokens, stop), shown)
        seconds = list(decoder.seconds)
    say = progress("")
    for note in (*_where(decoder), *_pace(folder, len(prompt), seconds)):
        say(note)
    if found[-1] in stop:
        say(f"stopped at token {found[-1]}, which ends a text")
    elif len(found) == fits:
        say(f"stopped because {limit(folder)[1]}")
    if text is not None and (folder.path / "chat_template.jinja").is_file():
        say("the prompt was read as it is; the chat template of the folder was not applied")
    return 0


def _print(tokens: Iterator[int], shown: Stream | None) -> list[int]:
    """Print tokens as they come."""
    found: list[int] = []
    with results() as console:

        def write(text: str) -> None:
            console.file.write("\n".join(map(printable, text.split("\n"))))
            console.file.flush()

        for token in tokens:
            comma = "," if found else ""
            found.append(token)
            write(f"{comma}{token}" if shown is None else shown.add(token))
        write("\n" if shown is None else f"{shown.end()}\n")
    return found


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
