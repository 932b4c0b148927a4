"""Which files of a folder make up the decoder that generates text, and in which order they run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import onnx
import onnx_ir as ir

from rewriter.errors import BadInput
from rewriter.graph_names import graph_name, plain_file
from rewriter.leftovers import check_whole
from rewriter.onnx_tensors import check_tensors
from rewriter.roles import role_of
from rewriter.shared_weights import missing_weights

_PHASES = ("model", "prefill", "decode")
_Numbered = Mapping[int, Path]


def graph_files(path: Path) -> dict[str, list[Path]]:
    """Files by phase, in the order they run.

    A folder holds one decoder, or several components of which one is a decoder: an embedding of
    its phases runs before it if it reads what that makes, and the others are left out.

    Raises:
        BadInput: no folder, no decoder or several, or files that are missing or too many.
    """
    if not path.is_dir():
        what = "is a file" if path.exists() else "there is no such folder"
        raise BadInput(f"{path}: {what}; name the folder that 'rewrite' has written")
    check_whole(path)
    found = _components(path)
    name = "" if "" in found else _only(path, found, "decoder")
    if name is None:
        others = sorted(p.name for p in path.glob("*.onnx"))
        held = f"only {', '.join(others[:3])}" if others else "no ONNX file"
        raise BadInput(
            f"{path}: holds {held}, where model.onnx, prefill.onnx, decode.onnx, parts of them, "
            "or a package with a decoder are needed; 'rewrite MODEL --ep EP -o FOLDER' writes them"
        )
    phases = found.pop(name)
    if "model" in phases and len(phases) > 1:
        raise BadInput(
            f"{path}: holds both model.onnx and phases; remove the graph that is not meant"
        )
    chains = {phase: _chain(path, phases[phase]) for phase in _PHASES if phase in phases}
    if found and all(_reads_embeddings(chain[0]) for chain in chains.values()):
        before = found.get(_only(path, found, "embedding") or "", {})
        chains = {
            phase: [*(_chain(path, before[phase]) if phase in before else ()), *chain]
            for phase, chain in chains.items()
        }
    return chains


def load(file: Path) -> ir.Model:
    """Read a graph, weights left where they are.

    Raises:
        BadInput: it is damaged, or its weights are not there, or not in its folder.
    """
    if not file.stat().st_size:
        raise BadInput(f"{file}: is empty; write the folder anew")
    try:
        proto = onnx.load(file, load_external_data=False)
        check_tensors(file, proto)
        model = ir.from_proto(proto)
        ir.external_data.set_base_dir(model.graph, file.parent)
    except BadInput:
        raise
    except Exception as error:
        raise BadInput(
            f"{file}: cannot be read as an ONNX model ({type(error).__name__})"
        ) from None
    if problem := missing_weights(model):
        raise BadInput(f"{file}: {problem}; copy it too, or write the folder anew")
    return model


def _components(path: Path) -> dict[str, dict[str, dict[int, Path]]]:
    """Files by component, phase and number; a compiled one only where its graph is not there."""
    found: dict[str, dict[str, dict[int, Path]]] = {}
    for file in sorted(path.glob("*.onnx")):
        name = graph_name(file)
        if name.compiled and plain_file(file).is_file():
            continue
        numbered = found.setdefault(name.component, {}).setdefault(name.phase, {})
        if name.part in numbered:
            raise BadInput(
                f"{path}: holds two parts of one number, {numbered[name.part].name} and "
                f"{file.name}; write it anew"
            )
        numbered[name.part] = file
    return found


def _only(path: Path, found: Mapping[str, Mapping[str, _Numbered]], role: str) -> str | None:
    """The component of a role; nothing where there is none.

    Raises:
        BadInput: there are several.
    """
    names = [name for name, phases in found.items() if role in _roles(phases.values())]
    if len(names) > 1:
        raise BadInput(
            f"{path}: holds more than one {role} ({', '.join(names)}); copy the files of the one "
            "that is meant, and of what it belongs to, into a folder of their own"
        )
    return next(iter(names), None)


def _roles(phases: Iterable[_Numbered]) -> set[str]:
    """What the first phase of a component does; each of its parts may show it."""
    return {role_of(load(file)) for file in next(iter(phases)).values()}


def _reads_embeddings(file: Path) -> bool:
    return "inputs_embeds" in {value.name for value in load(file).graph.inputs}


def _chain(path: Path, numbered: _Numbered) -> list[Path]:
    """The files of a graph in the order they run."""
    name = graph_name(next(iter(numbered.values()))).graph
    if 0 in numbered and len(numbered) > 1:
        raise BadInput(f"{path}: holds both {name}.onnx and parts of it; remove what is not meant")
    if 0 in numbered:
        return [numbered[0]]
    missing = [n for n in range(1, max(numbered) + 1) if n not in numbered]
    if missing:
        raise BadInput(
            f"{path}: part {missing[0]} of {max(numbered)} of {name} is missing; copy "
            f"{name}-{missing[0]}-*.onnx too, or write the folder anew"
        )
    return [numbered[n] for n in sorted(numbered)]
