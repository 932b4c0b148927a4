"""What ``genai_config.json`` says of a folder: when to stop, and names that have to fit."""

from __future__ import annotations

from dataclasses import dataclass

from rewriter.errors import BadInput
from rewriter.genai.named import Ports, check_named
from rewriter.genai.stated import NAME, stated
from rewriter.generate.folder import Folder


@dataclass(frozen=True, slots=True)
class Config:
    """What is used of the file.

    Attributes:
        stop: ids that end a text.
        context: how many tokens the model is for, where it says so.
    """

    stop: frozenset[int] = frozenset()
    context: int | None = None


def read_config(folder: Folder) -> Config:
    """What the file says, once its names are known to be those of the graphs.

    What it leaves out is not asked for: a person may have written it to say when to stop.

    Raises:
        BadInput: it is damaged, or names files, inputs or outputs that are not there.
    """
    file = folder.path / NAME
    if not file.is_file():
        return Config()
    config = stated(file)
    model = config.get("model", {})
    if "decoder" not in model:
        raise BadInput(f"{NAME}: is no configuration of a decoder; mend it or take it away")
    check_named(config, _ports(folder))
    ends = model.get("eos_token_id")
    stop = frozenset(ends if isinstance(ends, list) else () if ends is None else (ends,))
    return Config(stop, model.get("context_length"))


def _ports(folder: Folder) -> dict[str, Ports | None]:
    """What the files have; not known of graphs of the runtime's own, such as one for masks."""
    found: dict[str, Ports | None] = {path.name: None for path in folder.path.glob("*.onnx")}
    for part in (part for graph in folder.graphs.values() for part in graph.parts):
        for file in filter(None, (part.file, part.compiled)):
            found[file.name] = (part.inputs, part.outputs)
    return found
