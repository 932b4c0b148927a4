"""The EPs that are known, and targets made of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

from capabilities.devices import DEVICES, device_rows
from capabilities.forms import Form
from capabilities.model import Row, Target, Verdict
from capabilities.plugins import load_plugins
from capabilities.table import builtin_rows, read_rows
from capabilities.versions import Version, VersionRange, parse_version

GROUP = "rewriter.targets"
"""Entry points of packages that add EPs."""


class UnknownTarget(LookupError):
    """An EP or a version of it that never existed; the message lists what exists."""


@dataclass(frozen=True)
class EP:
    """An execution provider.

    Attributes:
        name: as in ``--ep``.
        about: one line for ``--help`` and lists.
        measured: versions its rows were measured on, lowest first; empty where nothing is
            measured (``onnx-standard``).
        rows: read when a target is made.
        static_only: every dim has to be fixed before anything runs.
        options: provider options its rows assume.
        opsets: versions of ai.onnx; for an EP whose version is the highest opset it takes.
    """

    name: str
    about: str
    measured: tuple[str, ...]
    rows: Callable[[], tuple[Row, ...]]
    static_only: bool = False
    options: Mapping[str, str] = field(default_factory=dict)
    opsets: range = range(0)


def _builtin(
    name: str, about: str, *measured: str, static_only: bool = False, opsets: range = range(0)
) -> EP:
    return EP(name, about, measured, lambda: builtin_rows(name), static_only, opsets=opsets)


_EPS: dict[str, EP] = {
    ep.name: ep
    for ep in (
        _builtin(
            "qnn",
            "Qualcomm HTP through onnxruntime-qnn",
            *("2.3.0", "2.4.0", "2.5.0", "2.6.0", "2.7.0"),
            static_only=True,
        ),
        _builtin(
            "openvino",
            "OpenVINO's own ONNX reader (CPU plugin, f32)",
            *("2024.6.0", "2025.0.0", "2025.2.0", "2025.4.1", "2026.2.1", "2026.4.1"),
        ),
        _builtin(
            "openvino-ep",
            "OpenVINO through the ONNX Runtime plugin EP (CPU, f32)",
            "1.8.1",
        ),
        _builtin("ort-cpu", "ONNX Runtime's own CPU kernels", "1.27.0", "1.32.0"),
        _builtin(
            "onnx-standard",
            "any runtime that implements ai.onnx and nothing else",
            opsets=range(13, 29),  # to that of onnx 1.23
        ),
        _builtin("ort-cuda", "ONNX Runtime's CUDA kernels, as its documents declare them: not run"),
        _builtin("portable", "what frontends may emit"),
    )
}


def register(ep: EP) -> None:
    """Add an EP of a third party: an entry point of the group ``rewriter.targets`` names a module
    that calls this when it is imported.

    Raises:
        ValueError: the name is taken.
    """
    if ep.name in _EPS:
        raise ValueError(f"the EP '{ep.name}' is registered already")
    _EPS[ep.name] = ep


def eps() -> tuple[EP, ...]:
    """Every EP that is known: ours and those of installed packages.

    Raises:
        BadPlugin: such a package cannot be imported.
    """
    load_plugins(GROUP)
    return tuple(_EPS.values())


def target(
    ep: str,
    version: str | None = None,
    *,
    device: str | None = None,
    options: Mapping[str, str] | None = None,
    rows: Iterable[Path] = (),
    legal: Iterable[str] = (),
    illegal: Iterable[str] = (),
) -> Target:
    """An EP at a version.

    Args:
        ep: name of the EP, or ``EP@VERSION``.
        version: newest measured if not given; ``2.7`` means the newest measured of that series.
            Of ``onnx-standard``, the highest opset of the result; the model's own if not given.
        device: what the EP runs on (:data:`~capabilities.devices.DEVICES`); adds what others saw
            there. Without one the table stands on what was measured alone.
        options: provider options the session will get.
        rows: files of rows that win over the table.
        legal: ``OP`` or ``OP[form]`` that the user knows to run.
        illegal: the same for what does not.

    Raises:
        UnknownTarget: no such EP, no such version, or no such device.
        ValueError: an override or a file of rows cannot be read.
        BadPlugin: a package that adds EPs cannot be imported.
    """
    load_plugins(GROUP)
    name, _, wanted = ep.partition("@")
    found = _find(name)
    chosen, stand_in = _version(found, version or wanted or None)
    number = parse_version(stand_in or chosen) if found.measured else ()
    overrides = [row for path in rows for row in read_rows(path)]
    overrides += [_override(text, Verdict.LEGAL) for text in legal]
    overrides += [_override(text, Verdict.ILLEGAL) for text in illegal]
    return Target(
        ep=name,
        version=chosen,
        rows=(
            *(r for r in found.rows() if not number or number in r.versions),
            *(() if device is None else device_rows(name, _device(name, device))),
        ),
        overrides=tuple(overrides),
        static_only=found.static_only,
        opset=int(chosen) if found.opsets and chosen else None,
        options={**found.options, **(options or {})},
        extrapolated_from=stand_in,
    )


def _find(name: str) -> EP:
    if name in _EPS:
        return _EPS[name]
    near = get_close_matches(name, _EPS, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    raise UnknownTarget(f"there is no EP '{name}'{hint}; known: {', '.join(sorted(_EPS))}")


def _device(ep: str, wanted: str) -> str:
    known = DEVICES.get(ep, ())
    if wanted not in known:
        raise UnknownTarget(f"{ep} has no device '{wanted}'; known: {', '.join(known) or 'none'}")
    return wanted


def _version(ep: EP, wanted: str | None) -> tuple[str, str | None]:
    """The version to name, and the measured one that stands in for it if it is another."""
    if ep.opsets and wanted:
        return _opset(ep, wanted), None
    if not ep.measured:
        if wanted:
            raise UnknownTarget(f"{ep.name} has no versions; write --ep {ep.name}")
        return "", None
    if wanted is None:
        return ep.measured[-1], None
    if wanted in ep.measured:
        return wanted, None
    exists = f"{ep.name} was measured at {', '.join(ep.measured)}"
    try:
        asked = parse_version(wanted)
    except ValueError as error:
        raise UnknownTarget(f"{error}; {exists}") from None
    measured = {parse_version(text): text for text in ep.measured}
    series = [v for v in measured if v[: len(asked)] == asked]
    if series:
        return measured[max(series)], None
    lower = [v for v in measured if v < asked]
    if not lower or not _plausible(asked, list(measured)):
        raise UnknownTarget(f"there is no {ep.name} {wanted}; {exists}")
    return wanted, measured[max(lower)]


def _opset(ep: EP, wanted: str) -> str:
    if wanted not in {str(opset) for opset in ep.opsets}:
        raise UnknownTarget(
            f"the version of {ep.name} is an opset from {ep.opsets[0]} to {ep.opsets[-1]}, "
            f"not {wanted}"
        )
    return wanted


def _plausible(asked: Version, measured: list[Version]) -> bool:
    """A release of a major version that was measured; no other is taken on trust."""
    return asked[0] in {version[0] for version in measured}


_OVERRIDE = re.compile(r"(?P<op>[\w.:*]+)(?:\[(?P<form>[^\]]+)\])?")


def _override(text: str, verdict: Verdict) -> Row:
    match = _OVERRIDE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"'{text}' is not OP or OP[form], such as MatMulNBits[bias given]")
    everywhere = VersionRange("*")
    form = Form(match["form"] or "any")
    return Row(match["op"], form, verdict, everywhere, "you said so", ("declared:command line",))
