"""The provider options that a context is compiled with, checked before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from capabilities.options import BadOption, Option, option
from capabilities.socs import Soc, UnknownSoc, soc
from capabilities.versions import VersionRange, parse_version
from rewriter.errors import BadInput
from rewriter.placement.qnn import default_options

_NO_SOC = "0"
"""What QNN takes for no SoC in particular."""

_DEVICE = frozenset({"soc_model", "htp_arch"})
_ARCHS = {0: "*", 68: "*", 69: "*", 73: "*", 75: "*", 79: ">=2.7", 81: "*"}
"""Values of ``htp_arch`` that the provider can read, at which versions; others it warns of."""

_REASONS = {
    "openvino": "OpenVINO compiles where the model is loaded, and its package holds no compiler "
    "for the NPU; set CACHE_DIR there to keep what it compiled",
    "openvino-ep": "the OpenVINO plugin compiles where the model is loaded; set its cache_dir "
    "there to keep what it compiled",
    "ort-cpu": "ONNX Runtime's CPU runs the graph as it is",
    "ort-cuda": "ONNX Runtime's CUDA kernels run the graph as it is",
    "onnx-standard": "onnx-standard is no runtime",
}


@dataclass(frozen=True, slots=True)
class Chosen:
    """What a session gets.

    Attributes:
        options: of the provider, ``soc_model`` and ``htp_arch`` of one SoC in them.
        plain: those of them that are neither the device nor a path of this machine.
        soc: that SoC, if any.
        stated: options that change numbers or placement, as ``name=value``.
    """

    options: Mapping[str, str]
    plain: Mapping[str, str]
    soc: Soc | None
    stated: tuple[str, ...]


def require_compiler(ep: str) -> None:
    """Whether ``--compile`` does anything for a target.

    Raises:
        BadInput: it does not; the message says why.
    """
    if ep != "qnn":
        why = _REASONS.get(ep, f"{ep} has no compiler that runs offline")
        raise BadInput(f"--compile is for qnn only: {why}")


def choose(options: Mapping[str, str], name: str | None, version: str) -> Chosen:
    """The options of a session: those given, and those of the SoC.

    Placement wants the same, so that a graph is placed on what it is compiled for.

    Args:
        options: those of the target, ``--option`` among them.
        name: ``--soc``, an id or a chip; without, ``soc_model`` of the options. In emulation
            there is always one (SC8380XP): without, floats would stay float32.
        version: of the EP.

    Raises:
        BadInput: an option that the provider would ignore, no such SoC, or two that differ.
    """
    if options.get("offload_graph_io_quantization") == "1":
        raise BadInput(
            "--option offload_graph_io_quantization=1: gives the Q and DQ at the graph's boundary "
            "to the CPU, and a session without the CPU keeps them on the NPU; leave it out"
        )
    read = {key: _known(key, value, version) for key, value in options.items()}
    settings = {key: _absolute(read[key], value) for key, value in options.items()}
    stated = [f"{k}={v}" for k, v in options.items() if read[k].changes and k not in _DEVICE]
    plain = {k: v for k, v in options.items() if read[k].value != "path" and k not in _DEVICE}
    found = _soc(options, name, version)
    if found is None and not _readable(int(options.get("htp_arch", _NO_SOC)), version):
        raise BadInput(f"--option htp_arch={options['htp_arch']}: qnn {version} cannot read it")
    if found is not None:
        settings["soc_model"], settings["htp_arch"] = str(found.id), _arch(found, version)
        if options.get("htp_arch", settings["htp_arch"]) != settings["htp_arch"]:
            raise BadInput(
                f"--option htp_arch={options['htp_arch']} is not {found}'s; leave it out"
            )
    return Chosen(settings, plain, found, tuple(stated))


def _known(key: str, value: str, version: str) -> Option:
    try:
        known = option("qnn", key, value, version)
    except BadOption as error:
        raise BadInput(f"--option {key}={value}: {error}") from None
    assert known is not None  # the table has options of qnn
    if known.value == "path" and not (Path(value).exists() or Path(value).parent.is_dir()):
        raise BadInput(f"--option {key}={value}: there is no such file or folder")
    return known


def _absolute(known: Option, value: str) -> str:
    return str(Path(value).absolute()) if known.value == "path" else value


def _soc(options: Mapping[str, str], name: str | None, version: str) -> Soc | None:
    """The SoC of ``--soc``, of the options, or of the emulator; ``0`` is none."""
    given = {**default_options(), **options}.get("soc_model", _NO_SOC)
    of_options = None
    if given != _NO_SOC and (name is None or "soc_model" in options):
        of_options = _named(given, f"--option soc_model={given}", version)
    if name is None:
        return of_options
    found = _named(name, f"--soc {name}", version)
    if of_options not in {None, found}:
        raise BadInput(f"--soc {name} and --option soc_model={given} are two SoCs; give one")
    return found


def _named(name: str, where: str, version: str) -> Soc:
    try:
        return soc("qnn", name, version)
    except UnknownSoc as error:
        raise BadInput(f"{where}: {error.args[0]}") from None


def _arch(found: Soc, version: str) -> str:
    """The value of ``htp_arch``; the SoC decides without it as well."""
    return str(found.htp_arch) if _readable(found.htp_arch, version) else _NO_SOC


def _readable(arch: int, version: str) -> bool:
    return parse_version(version) in VersionRange(_ARCHS.get(arch, "<0"))
