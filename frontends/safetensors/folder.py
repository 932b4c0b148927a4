"""A folder with ``config.json`` and ``*.safetensors``: which files are the model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from frontends.safetensors.header import Stored, tensors_of
from rewriter.errors import BadInput

CONFIG = "config.json"
SUFFIX = ".safetensors"
_INDEX = f"model{SUFFIX}.index.json"
_WHOLE = f"model{SUFFIX}"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a folder holds.

    Attributes:
        folder: where it is.
        config: of the model, as ``config.json`` has it.
        tensors: of all files, by name.
    """

    folder: Path
    config: Mapping[str, Any]
    tensors: Mapping[str, Stored]

    @classmethod
    def open(cls, folder: Path) -> Checkpoint:
        """Read the configuration and all headers; no weight is read.

        Raises:
            BadInput: a file is missing or damaged, or two shards hold a tensor of one name.
        """
        config = json_of(folder / CONFIG)
        tensors: dict[str, Stored] = {}
        for path, listed in _files(folder).items():
            found = tensors_of(path)
            gone = [name for name in listed if name not in found]
            if gone:
                raise BadInput(
                    f"{path}: has no tensor '{gone[0]}', which {_INDEX} says is there; download "
                    "the model again"
                )
            for name in found:
                if name in tensors:
                    raise BadInput(
                        f"{path}: the tensor '{name}' is in {tensors[name].path.name} too; keep "
                        "the files of one model in the folder"
                    )
                tensors[name] = found[name]
        if not tensors:
            raise BadInput(f"{folder}: its files hold no tensors; download the model again")
        return cls(folder, config, tensors)


def json_of(path: Path) -> dict[str, Any]:
    """An object from a JSON file.

    Raises:
        BadInput: there is no such file, or it holds something else.
    """
    if not path.is_file():
        raise BadInput(f"{path}: there is no such file, and a checkpoint needs one beside it")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path}: is no JSON ({error}); download it again") from None
    if not isinstance(values, dict):
        raise BadInput(f"{path}: holds no JSON object; download it again")
    return values


def _files(folder: Path) -> dict[Path, list[str]]:
    """The files of the model, each with the tensors an index says it holds; none without one.

    Raises:
        BadInput: the index is damaged, a shard of it is missing, or it is not clear which files
            are the model.
    """
    if (folder / _INDEX).is_file():
        return _indexed(folder)
    if (folder / _WHOLE).is_file():
        return {folder / _WHOLE: []}
    found = sorted(path for path in folder.glob(f"*{SUFFIX}") if path.is_file())
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise BadInput(
            f"{folder}: a model in several files needs {_INDEX}, which is not there; files with "
            f"weights: {names}; download it whole, or leave the one file there that is the model"
        )
    return {found[0]: []}


def _indexed(folder: Path) -> dict[Path, list[str]]:
    path = folder / _INDEX
    listed = json_of(path).get("weight_map")
    if not isinstance(listed, dict) or not listed:
        raise BadInput(f"{path}: has no 'weight_map' of tensors; download it again")
    files: dict[Path, list[str]] = {}
    for name, file in listed.items():
        if not isinstance(file, str) or Path(file).name != file:
            raise BadInput(
                f"{path}: says that '{name}' is in {file!r}, which is no file beside it; download "
                "it again"
            )
        files.setdefault(folder / file, []).append(name)
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise BadInput(
            f"{folder}: {len(missing)} of the {len(files)} files of this model are missing, such "
            f"as {missing[0]}; download it whole"
        )
    return files
