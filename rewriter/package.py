"""A model of several files, such as decoder, embedding and encoders: who gets which sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import onnx_ir as ir

from rewriter.errors import BadInput
from rewriter.passes.dim_names import is_dim, places_and_roles
from rewriter.phases import Phase, phases
from rewriter.roles import role_of
from rewriter.settings import Settings
from rewriter.source import Source


def planned(
    settings: Settings, sources: Sequence[Source], models: Mapping[str, ir.Model]
) -> tuple[list[tuple[Source, list[Phase]]], list[str]]:
    """The graphs to write of each file, and what a person should know of sizes nobody asked for.

    A file with caches has the phases of a decoder; one that takes as many new tokens as it, such
    as the embedding, follows it; any other is one graph.

    Args:
        settings: what was asked.
        sources: the files.
        models: what was read of them, by the name of the source.

    Raises:
        BadInput: a dim that no file has, or sizes that do not fit.
    """
    if len(sources) == 1:
        only = sources[0]
        found, notes = phases(settings, models[only.name], built=only.built)
        return [(only, found)], notes
    _require_known(settings, models)
    roles = {name: role_of(model) for name, model in models.items()}
    if settings.static and "decoder" not in roles.values():
        raise BadInput(
            f"--static: is for decoders with a cache, and none of {', '.join(models)} has one"
        )
    chosen: dict[str, list[Phase]] = {}
    steps: list[Phase] = []
    notes = []
    for source in sorted(sources, key=lambda s: roles[s.name] != "decoder"):
        model = models[source.name]
        own = _own(settings, model)
        if settings.static and roles[source.name] == "decoder":
            chosen[source.name], notes = phases(own, model, built=source.built)
            steps = chosen[source.name]
        elif settings.static and _takes_tokens(model):
            chosen[source.name] = [_following(phase, own) for phase in steps]
        else:
            one = replace(own, static="", seq=0, max_seq_len=0)
            chosen[source.name], _ = phases(one, model, built=source.built)
    return [(source, chosen[source.name]) for source in sources], notes


def _require_known(settings: Settings, models: Mapping[str, ir.Model]) -> None:
    """Every dim that is given stands in one of the files at least."""
    for name in settings.dims:
        if not any(is_dim(model, name) for model in models.values()):
            raise BadInput(
                f"--dim {name}: none of the {len(models)} files ({', '.join(models)}) has such a "
                "dim; rewrite plan lists those of a file"
            )


def _own(settings: Settings, model: ir.Model) -> Settings:
    """The same, with the dims alone that this file has."""
    return replace(settings, dims={k: v for k, v in settings.dims.items() if is_dim(model, k)})


def _takes_tokens(model: ir.Model) -> bool:
    return "seq" in places_and_roles(model)[1].values()


def _following(phase: Phase, own: Settings) -> Phase:
    """The phase of a file without caches: as many tokens as the decoder takes."""
    sizes = {key: value for key, value in phase.dims.items() if key in {"batch", "seq"}}
    return Phase(phase.name, {**sizes, **own.dims})
