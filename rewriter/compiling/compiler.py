"""A graph compiled for QNN's NPU: ``X.onnx`` to ``X_ctx.onnx`` and the binary it loads.

ONNX Runtime writes both while it creates a session. They are made out of sight, loaded again in
a fresh process, compared bit for bit, and only then put beside the graph.
"""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import onnx_ir as ir

from rewriter.compiling.check import EP_CONTEXT, SUFFIX, binary_names, is_context
from rewriter.compiling.compare import (
    require_evidence,
    require_same_interface,
    require_same_outputs,
)
from rewriter.compiling.model import Compiled, NotCompiled
from rewriter.compiling.session import Sessions
from rewriter.compiling.settings import Chosen, choose
from rewriter.compiling.stamp import Stamp, digests, weight_files
from rewriter.errors import BadInput
from rewriter.output import disk
from rewriter.placement.model import Feeds
from rewriter.placement.qnn import emulated
from rewriter.runtime import child
from rewriter.runtime.versions import installed

_CPU = "CPUExecutionProvider"


def compile_graph(
    file: Path,
    *,
    options: Mapping[str, str],
    soc: str | None = None,
    python: Path | None = None,
    time_limit: float = 600,
    feeds: Feeds = (),
) -> Compiled:
    """Compile a graph, and show that what comes out computes the same.

    Args:
        file: ``X.onnx``, lowered, every dim fixed, its weights beside it.
        options: provider options. Those that change numbers or placement are stated in the note.
        soc: an id or a chip (see ``capabilities.socs``); the ``soc_model`` of the options when
            None, and without one that of the emulator, or the machine's own.
        python: the interpreter whose runtime compiles; this one when None.
        time_limit: seconds for everything together.
        feeds: inputs to run before and after; without any nothing is compared.

    Returns:
        The context, in the folder of the graph. One that was there is replaced.

    Raises:
        BadInput: no such SoC or option, or no runtime to compile with.
        NotCompiled: the runtime refuses the graph or the SoC, or leaves nodes to the CPU.
        Differs: the context computes something else.
        OutOfResources: memory or disk ran out.
        RuntimeFault: it took too long.
    """
    began = time.monotonic()
    version = installed("qnn", python)
    if version is None:
        where = "pip install 'ep-rewriter[qnn]'" if python is None else f"{python} has none"
        raise BadInput(f"--compile needs onnxruntime-qnn: {where}")
    chosen = choose(options, soc, version)
    sessions = Sessions(chosen, python, time_limit)
    source = ir.load(file)
    if is_context(source):
        raise BadInput(f"{file}: is compiled already; give the graph that it was compiled from")
    expected = sessions.run(file, feeds).outputs if feeds else []
    require_evidence(expected, file.name)
    with disk(file.parent), _partial(file.parent) as folder:
        made = folder / f"{file.stem}{SUFFIX}.onnx"
        written = sessions.run(file, context=made)
        binary = _finish(made, file, source, chosen, written)
        again = sessions.run(made, feeds)
        require_same_outputs(expected, again.outputs, made.name)
        size = binary.stat().st_size
        context, binary = _publish(made, binary, file.parent)
    return Compiled(
        context=context,
        binary=binary,
        bytes=size,
        nodes=sum(len(part.nodes) for part in written.assignment if part.ep != _CPU),
        soc="" if chosen.soc is None else str(chosen.soc),
        seconds=time.monotonic() - began,
        equal=True if feeds else None,
        note=_note(chosen, compared=bool(feeds)),
    )


def _finish(
    made: Path, file: Path, source: ir.Model, chosen: Chosen, written: child.Result
) -> Path:
    """Look at what the runtime wrote, and note of what it was made; gives the binary."""
    if not made.exists():
        raise NotCompiled(f"{file.name}: the runtime wrote no context and gave no reason")
    context = ir.load(made)
    others = [n.op_type for n in context.graph if (n.domain, n.op_type) != EP_CONTEXT]
    if others:
        raise NotCompiled(f"{file.name}: {len(others)} nodes were not compiled: {others[0]}, ...")
    require_same_interface(source, context, file.name)
    names = binary_names(context, made)
    if len(names) != 1 or not (made.parent / names[0]).is_file():
        raise NotCompiled(f"{file.name}: compiled to {names or 'no binary'}, where one is expected")
    binary = made.parent / names[0]
    context.metadata_props.update(
        {key: value for key, value in source.metadata_props.items() if value is not None}
    )
    Stamp(
        source=file.name,
        files=digests([file, *weight_files(source)]),
        binaries=digests([binary]),
        bytes={binary.name: binary.stat().st_size},
        soc="" if chosen.soc is None else str(chosen.soc.id),
        options=_remembered(chosen),
        versions=written.versions,
    ).note(context)
    ir.save(context, made)
    return binary


def _remembered(chosen: Chosen) -> dict[str, str]:
    """The options as a file can hold them: no path, but what op_affinity's file says."""
    found = dict(chosen.plain)
    if "op_affinity" in chosen.options:
        text = Path(chosen.options["op_affinity"]).read_text(encoding="utf-8")
        found["op_affinity"] = " ".join(text.split())
    return found


def _note(chosen: Chosen, *, compared: bool) -> str:
    said = []
    if not compared:
        said.append("loaded again, but not compared: no inputs were run")
    if chosen.stated:
        said.append(f"compiled with {', '.join(chosen.stated)}, which changes what runs")
    if emulated() and (chosen.soc is None or not chosen.soc.float16):
        device = "no SoC was given" if chosen.soc is None else f"{chosen.soc} has no float16"
        said.append(
            f"{device}: the emulator computes floats in float32, which is no evidence of what a "
            "device does"
        )
    return "; ".join(said)


@contextmanager
def _partial(home: Path) -> Generator[Path, None, None]:
    """A folder to compile in, gone afterwards whatever happens."""
    folder = home / f".rewrite-partial-{secrets.token_hex(4)}"
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _publish(context: Path, binary: Path, home: Path) -> tuple[Path, Path]:
    """Move both beside the graph; at no moment is there a context with another's binary."""
    goals = home / context.name, home / binary.name
    goals[0].unlink(missing_ok=True)
    try:
        binary.replace(goals[1])
        context.replace(goals[0])
    except BaseException:
        for goal in goals:
            goal.unlink(missing_ok=True)
        raise
    return goals
