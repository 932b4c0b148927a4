"""Fixtures with something changed: keys of ``config.json``, tensors, names."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file, save_file

FIXTURES = Path(__file__).parents[3] / "fixtures" / "safetensors"
CASES = sorted(path.parent.name for path in FIXTURES.glob("*/config.json"))

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
"""Known to numpy from here on, which ``load_file`` needs."""
Array = npt.NDArray[Any]


def fixture(case: str) -> Path:
    """The folder of a case."""
    return FIXTURES / case


def config_of(case: str) -> dict[str, Any]:
    """Its configuration."""
    found: dict[str, Any] = json.loads((FIXTURES / case / "config.json").read_text("utf-8"))
    return found


def tensors_of(case: str) -> dict[str, Array]:
    """Its tensors, of all files."""
    found: dict[str, Array] = {}
    for path in sorted((FIXTURES / case).glob("*.safetensors")):
        found |= load_file(path)
    return found


def changed(config: dict[str, Any], keys: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration with other values; ``...`` takes a key away, dots lead below one."""
    for name, value in keys.items():
        *outer, last = name.split(".")
        part = config
        for key in outer:
            part = part[key]
        if value is ...:
            del part[last]
        else:
            part[last] = value
    return config


def altered(
    case: str,
    out: Path,
    *,
    keys: Mapping[str, Any] | None = None,
    drop: Collection[str] = (),
    tensors: Mapping[str, Callable[[Array], Array]] | None = None,
    more: Mapping[str, Array] | None = None,
    rename: Callable[[str], str] = str,
) -> Path:
    """Write a case with changes, in one file.

    Args:
        case: which.
        out: a folder to write.
        keys: as :func:`changed` takes them.
        drop: what names of tensors to leave out end with.
        tensors: what becomes of those whose names end so.
        more: further tensors.
        rename: new names.

    Raises:
        KeyError: a tensor to change is not there.
    """
    found = tensors_of(case)
    for end in drop:
        names = [name for name in found if name.endswith(end)]
        if not names:
            raise KeyError(end)
        for name in names:
            del found[name]
    for end, change in (tensors or {}).items():
        names = [name for name in found if name.endswith(end)]
        if not names:
            raise KeyError(end)
        for name in names:
            new = change(found[name].astype(np.float32))
            found[name] = np.ascontiguousarray(new).astype(found[name].dtype)
    found |= more or {}
    return written(
        out, changed(config_of(case), keys or {}), {rename(n): a for n, a in found.items()}
    )


def written(out: Path, config: Mapping[str, Any], tensors: Mapping[str, Array]) -> Path:
    """A folder with a configuration and one file of tensors."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(dict(tensors), out / "model.safetensors")
    return out
