"""Fixtures with something changed: keys, tensors, or the architecture they say they have."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, quants

FIXTURES = Path(__file__).parents[3] / "fixtures" / "gguf"
CASES = sorted(path.parent.name for path in FIXTURES.glob("*/model.gguf"))

Change = Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]]


def fixture(case: str) -> Path:
    """The file of a case."""
    return FIXTURES / case / "model.gguf"


def altered(
    case: str,
    out: Path,
    *,
    keys: Mapping[str, Any] | None = None,
    drop: Collection[str] = (),
    tensors: Mapping[str, Change] | None = None,
    kinds: Mapping[str, GGMLQuantizationType] | None = None,
    more: Mapping[str, Any] | None = None,
    arch: str | None = None,
) -> Path:
    """Write a case with changes.

    Args:
        case: which.
        out: the file to write.
        keys: new values by name without the architecture; ``None`` drops the key.
        drop: names of tensors to leave out, or what they end with.
        tensors: what becomes of some, as floats.
        kinds: other types of some.
        more: further keys, by their whole names.
        arch: another architecture, its keys along.

    Raises:
        KeyError: a key or tensor to change is not there.
    """
    reader, keys, tensors = GGUFReader(fixture(case)), dict(keys or {}), dict(tensors or {})
    old = str(reader.fields["general.architecture"].contents())
    writer = GGUFWriter(out, arch or old)
    for field in reader.fields.values():
        if field.name.startswith(f"{old}."):
            name = field.name.removeprefix(f"{old}.")
            value, types = keys.pop(name, field.contents()), field.types
            if value is not None:
                sub = types[1] if len(types) > 1 and isinstance(value, list) else None
                same = type(value) is type(field.contents())
                writer.add_key_value(
                    f"{writer.arch}.{name}", value, types[0] if same else _kind(value), sub
                )
    for name, value in keys.items():
        writer.add_key_value(f"{writer.arch}.{name}", value, _kind(value))
    for name, value in (more or {}).items():
        writer.add_key_value(name, value, _kind(value), _kind(value[0]))
    gone = set(drop)
    for tensor in reader.tensors:
        endings = {end for end in drop if tensor.name.endswith(end)}
        gone -= endings
        if endings:
            continue
        if change := tensors.pop(tensor.name, None):
            floats = quants.dequantize(tensor.data, tensor.tensor_type)
            writer.add_tensor(tensor.name, np.ascontiguousarray(change(floats), np.float32))
        elif kind := (kinds or {}).get(tensor.name):
            floats = quants.dequantize(tensor.data, tensor.tensor_type)
            writer.add_tensor(tensor.name, quants.quantize(floats, kind), raw_dtype=kind)
        else:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    if gone or tensors:
        raise KeyError(*gone, *tensors)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out


def _kind(value: Any) -> GGUFValueType:
    return GGUFValueType.get_type(value)
