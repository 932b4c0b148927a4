"""Whether a compiled context can be loaded, and still stands for its graph.

What the runtime says of a bad one is of little use where it says anything: a changed binary, other
weights and another SoC go unnoticed. Measured on QNN 2.3.0 to 2.7.0: a context loads, bit for bit
the same, on the version it was made with and on newer ones, never on an older one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from capabilities.versions import parse_version
from rewriter.compiling.stamp import Stamp, digests, stamp_of
from rewriter.errors import BadInput

EP_CONTEXT = ("com.microsoft", "EPContext")
SUFFIX = "_ctx"
"""Ends the name of a compiled graph, before ``.onnx``."""

_COMPILED_IN = frozenset({"op_affinity"})
"""Options that name a file, which only the compiler reads."""

_AGAIN = "compile it again (rewrite ... --compile)"


@dataclass(frozen=True, slots=True)
class Context:
    """A context that was checked.

    Attributes:
        file: the ``.onnx``.
        binaries: what it loads.
        stamp: what it remembers of its making; nothing if another tool made it.
        notes: what could not be checked, and what a person should know.
    """

    file: Path
    binaries: tuple[Path, ...]
    stamp: Stamp | None
    notes: tuple[str, ...]

    @property
    def options(self) -> dict[str, str]:
        """Provider options of a session that loads it: those it was compiled with."""
        if self.stamp is None:
            return {}
        kept = {key: value for key, value in self.stamp.options.items() if key not in _COMPILED_IN}
        return {**({"soc_model": self.stamp.soc} if self.stamp.soc else {}), **kept}


def is_context(model: ir.Model) -> bool:
    """Whether a model was compiled: something in it is an EPContext."""
    return any((node.domain, node.op_type) == EP_CONTEXT for node in model.graph)


def check_context(
    file: Path, *, version: str | None = None, soc: str | None = None, weights: bool = True
) -> Context:
    """Check a context before it is loaded.

    Args:
        file: the ``.onnx``.
        version: of the EP's installed runtime; not compared when None.
        soc: ``soc_model`` that the session will get; not compared when None.
        weights: read the binary and the source graph's weights to see whether they changed, where
            these lie beside the context. Takes about a second for each GB.

    Raises:
        BadInput: it cannot be loaded, or no longer stands for its graph. The message names the
            file and what to do.
    """
    try:
        model = ir.load(file)
    except Exception as error:
        raise BadInput(f"{file}: cannot be read as a compiled context: {error}") from None
    if not is_context(model):
        raise BadInput(f"{file}: is not compiled: it has no EPContext node; {_AGAIN}")
    binaries = tuple(_present(file, name) for name in binary_names(model, file))
    stamp = stamp_of(model, str(file))
    if stamp is None:
        note = f"{file.name} was not compiled by rewrite: whether its files changed is not known"
        return Context(file, binaries, None, (note,))
    notes = _check_runtime(file, stamp, version)
    _check_soc(file, stamp, soc)
    _check_binaries(file, binaries, stamp, weights=weights)
    notes += _check_source(file, stamp) if weights else []
    return Context(file, binaries, stamp, tuple(notes))


def binary_names(model: ir.Model, file: Path) -> list[str]:
    """The files that a context loads, which have to lie beside it.

    Raises:
        BadInput: one of them is named by a path.
    """
    names = _named(model)
    for name in names:
        if Path(name).name != name:
            raise BadInput(
                f"{file}: loads '{name}', which is not beside it; {_AGAIN}, so that both can move"
            )
    return names


def _named(model: ir.Model) -> list[str]:
    """What the nodes load, each once; a node that carries its binary in itself names none."""
    found: dict[str, None] = {}
    for node in model.graph:
        embedded = node.attributes.get("embed_mode")
        cache = node.attributes.get("ep_cache_context")
        if cache is not None and embedded is not None and embedded.as_int() == 0:
            found[cache.as_string()] = None
    return list(found)


def _present(file: Path, name: str) -> Path:
    path = file.parent / name
    if not path.is_file():
        raise BadInput(
            f"{file}: its binary '{name}' is missing; copy it beside this file, or {_AGAIN}"
        )
    return path


def _check_runtime(file: Path, stamp: Stamp, version: str | None) -> list[str]:
    made = stamp.versions.get("onnxruntime-qnn")
    if version is None or made is None or made == version:
        return []
    if parse_version(version) < parse_version(made):
        raise BadInput(
            f"{file}: was compiled by onnxruntime-qnn {made}, and {version} is installed, which "
            f"loads no context of a newer one; install {made}, or {_AGAIN}"
        )
    return [f"{file.name} was compiled by onnxruntime-qnn {made}, which {version} loads"]


def _check_soc(file: Path, stamp: Stamp, soc: str | None) -> None:
    if soc is not None and stamp.soc and soc != stamp.soc:
        raise BadInput(
            f"{file}: was compiled for soc_model {stamp.soc}, not {soc}; compile it again "
            f"with --soc {soc}"
        )


def _check_binaries(file: Path, binaries: tuple[Path, ...], stamp: Stamp, *, weights: bool) -> None:
    for path in binaries:
        size, wanted = path.stat().st_size, stamp.bytes.get(path.name)
        if wanted is None:
            raise BadInput(f"{file}: loads '{path.name}', which it was not compiled to; {_AGAIN}")
        if size != wanted:
            raise BadInput(
                f"{path}: has {size:,} bytes, {wanted:,} were compiled: it is cut off or of "
                f"another graph; copy it again, or {_AGAIN}"
            )
        if weights and digests([path])[path.name] != stamp.binaries.get(path.name):
            raise BadInput(
                f"{path}: is not what was compiled, some bytes differ; copy it again, or {_AGAIN}"
            )


def _check_source(file: Path, stamp: Stamp) -> list[str]:
    """The graph and the weights it was compiled from, as far as they lie beside it."""
    missing = []
    for name, wanted in sorted(stamp.files.items()):
        path = file.parent / name
        if not path.is_file():
            missing.append(name)
        elif digests([path])[name] != wanted:
            raise BadInput(
                f"{path}: changed since {file.name} was compiled from it, which holds what it was "
                f"before; {_AGAIN}"
            )
    if missing:
        return [f"not beside {file.name}, so not compared with it: {', '.join(missing)}"]
    return []
