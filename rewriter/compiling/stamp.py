"""What a compiled context remembers of its making, in the metadata of its ``.onnx``.

The runtime checks none of it: a binary with a few other bytes loads and computes something else.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import onnx_ir as ir

from rewriter.errors import BadInput

_KEY = "rewriter.compiled"


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a context was made of and with. Files are named alone: they lie beside it.

    Attributes:
        source: the graph.
        files: SHA-256 of the graph and of the files that hold its weights, by name.
        binaries: SHA-256 of the files that it loads, by name.
        bytes: of those, by name.
        soc: ``soc_model`` it was compiled for; empty for that of the machine.
        options: of the provider, the rest of them; of one that names a file, its content.
        versions: distribution -> version of the runtime.
    """

    source: str
    files: Mapping[str, str]
    binaries: Mapping[str, str]
    bytes: Mapping[str, int]
    soc: str
    options: Mapping[str, str]
    versions: Mapping[str, str]

    def note(self, model: ir.Model) -> None:
        """Store it with a context."""
        model.metadata_props[_KEY] = json.dumps(asdict(self), sort_keys=True)


def stamp_of(model: ir.Model, name: str) -> Stamp | None:
    """What a context remembers; nothing if it was compiled by another tool.

    Raises:
        BadInput: what it holds is not of ours.
    """
    stored = model.metadata_props.get(_KEY)
    if stored is None:
        return None
    try:
        found = Stamp(**json.loads(stored))
    except (ValueError, TypeError, RecursionError):
        found = None
    if found is None or not _sound(found):
        raise BadInput(f"{name}: the metadata entry '{_KEY}' is damaged; compile it again")
    return found


def _sound(stamp: Stamp) -> bool:
    tables = (stamp.files, stamp.binaries, stamp.options, stamp.versions)
    return (
        all(isinstance(table, dict) for table in (*tables, stamp.bytes))
        and all(isinstance(text, str) for table in tables for text in table.values())
        and isinstance(stamp.soc, str)
    )


def weight_files(model: ir.Model) -> list[Path]:
    """The files that hold the weights of a model, apart from its own."""
    values = (v for graph in model.graphs() for v in graph.initializers.values())
    tensors = (value.const_value for value in values)
    found = {Path(t.path) for t in tensors if isinstance(t, ir.ExternalTensor)}
    return sorted(found)


def digests(paths: Iterable[Path]) -> dict[str, str]:
    """SHA-256 of files, by name; they are read piece by piece."""
    found = {}
    for path in paths:
        with path.open("rb") as file:
            found[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found
