"""Provider options of a configuration: what onnxruntime-genai is told of the EP of a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from capabilities import Target

_NAMES = {"ort-cuda": "cuda", "qnn": "QNN", "openvino": "OpenVINO", "openvino-ep": "OpenVINO"}
"""By what name the runtime knows an EP (``NormalizeProviderName`` in its ``config.cpp``)."""

_DEFAULTS = {"QNN": {"backend_type": "htp"}, "OpenVINO": {"device_type": "NPU"}}
_CAUSAL = "enable_causallm"
"""Has OpenVINO keep the cache itself, as its NPU wants a graph of any length to do."""


def provider_options(
    target: Target, stated: Sequence[Mapping[str, Any]], *, growing: bool
) -> list[dict[str, Any]]:
    """The list ``provider_options`` of a session.

    Args:
        target: gives the EP, and options that win over all others.
        stated: what the configuration held before; of other EPs nothing is kept.
        growing: one graph with caches of any length.
    """
    name = _NAMES.get(target.ep)
    if name is None:
        return []
    kept = [o for entry in stated for ep, o in entry.items() if ep.lower() == name.lower()]
    options = dict(_DEFAULTS.get(name, {}))
    if name == "OpenVINO" and growing:
        options[_CAUSAL] = "True"
    for more in (*kept, {k: v for k, v in target.options.items() if not is_file(v)}):
        options |= more
    if name == "QNN" and "backend_path" in options:
        options.pop("backend_type")  # the EP takes one of the two
    return [{name: options}]


def is_file(value: str) -> bool:
    """An option that names a file of this machine says nothing on another."""
    return Path(value).is_file()
