"""Messages between us and a child that serves: a head in JSON, then arrays as their bytes.

Any Python that has numpy runs the other end, so this imports nothing of the package.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import IO, Any

_MARK = b"\x00rewrite\x00"
"""Begins a message; what a runtime printed before its output was led away is none."""
_LENGTH = struct.Struct("<Q")
_ARRAYS = "arrays"


def send(stream: IO[bytes], head: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """Write one message.

    Args:
        stream: of bytes.
        head: what JSON can hold; the key ``arrays`` is ours.
        arrays: numpy arrays by name, of dtypes that numpy itself has.

    Raises:
        OSError: nobody reads.
    """
    import numpy as np

    dense = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    told = [
        {"name": name, "dtype": array.dtype.str, "shape": arrays[name].shape}
        for name, array in dense.items()
    ]
    text = json.dumps({**head, _ARRAYS: told}).encode()
    stream.write(_MARK + _LENGTH.pack(len(text)) + text)
    for array in dense.values():
        stream.write(array.data if array.size else b"")
    stream.flush()


def receive(stream: IO[bytes]) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Read one message: its head and its arrays; nothing where the other end is gone."""
    import numpy as np

    if not _marked(stream):
        return None
    length = stream.read(_LENGTH.size)
    if len(length) < _LENGTH.size:
        return None
    text = stream.read(*_LENGTH.unpack(length))
    try:
        head = json.loads(text)
    except ValueError:  # cut off
        return None
    arrays = {}
    for told in head.pop(_ARRAYS):
        array = np.empty(told["shape"], told["dtype"])
        if array.size:
            buffer = array.reshape(-1).view(np.uint8).data
            while buffer:
                count = stream.readinto(buffer)  # type: ignore[attr-defined]  # BinaryIO does not declare it
                if not count:
                    return None
                buffer = buffer[count:]
        arrays[told["name"]] = array
    return head, arrays


def _marked(stream: IO[bytes]) -> bool:
    """Read up to the next mark; false where none comes."""
    seen = b""
    while seen != _MARK:
        byte = stream.read(1)
        if not byte:
            return False
        seen = (seen + byte)[-len(_MARK) :]
    return True
