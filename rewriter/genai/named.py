"""What a configuration names, files and their inputs and outputs, and whether it is there."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NoReturn

from rewriter.errors import BadInput
from rewriter.genai.names import numbers
from rewriter.genai.stated import NAME

Ports = tuple[Collection[str], Collection[str]]
"""Names of the inputs and of the outputs of a graph."""


def check_named(config: Mapping[str, Any], graphs: Mapping[str, Ports | None]) -> None:
    """Whatever a configuration names is there; :func:`~rewriter.genai.check` asks for more.

    Args:
        config: as it was stated. The names of a plain decoder may stand for those of all layers
            (``present.%d.key``), of which one must be there.
        graphs: what the folder holds, by the name of the file; nothing for one that is not known.

    Raises:
        BadInput: naming the key, what it says, and what is there.
    """
    decoder = config.get("model", {}).get("decoder", {})
    for key, stage in stages_of(decoder):
        ports = graphs.get(file_of(key, stage, graphs))
        for kind, held in zip(("inputs", "outputs"), ports or (), strict=False):
            named = stage.get(kind, ())
            roles = named.items() if isinstance(named, Mapping) else [("", n) for n in named]
            for role, name in roles:
                if not (numbers(held, name) if "%d" in name else name in held):
                    differ(f"{key}{kind}{role and '.'}{role}", name, sorted(held))


def stages_of(decoder: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What names a file, with the beginning of its keys: the decoder, or stages of a pipeline."""
    pipeline = decoder.get("pipeline") or ()
    if not pipeline:
        yield "model.decoder.", decoder
    for entry in pipeline:
        for name, stage in entry.items():
            yield f"model.decoder.pipeline.{name}.", stage


def file_of(key: str, stage: Mapping[str, Any], files: Collection[str]) -> str:
    """The file of a stage.

    Raises:
        BadInput: it is not there.
    """
    name = stage.get("filename")
    if not isinstance(name, str) or name not in files:
        differ(f"{key}filename", name, sorted(files))
    return name


def differ(key: str, stated: Any, held: Any) -> NoReturn:
    """Say what is not so.

    Raises:
        BadInput: always.
    """
    raise BadInput(
        f"{NAME}: '{key}' is {stated}, and the graphs have {held}; correct it, or take "
        "the file away to go without"
    )
