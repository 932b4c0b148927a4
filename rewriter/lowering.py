"""``lower`` and ``plan``: the engine with the passes it stands on, over a whole model."""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterable
from contextlib import contextmanager

import onnx_ir as ir

from capabilities import Target
from rewriter.engine import Engine
from rewriter.errors import BadInput, RewriteError
from rewriter.graphs import graphs_of
from rewriter.passes.fold_shapes import FoldShapes, settle_shapes
from rewriter.passes.mask_value import MaskValue
from rewriter.passes.present_shapes import correct_present_shapes
from rewriter.passes.store_inside import StoreInside
from rewriter.passes.unused import remove_unused
from rewriter.record import Report, count_ops
from rewriter.rule import Registry, registry
from rewriter.shapes import forget_symbols

Interface = list[tuple[str | None, ir.DataType | None, str]]


class Stuck(RewriteError):
    """Illegal nodes are left; the model was not touched.

    Attributes:
        report: what was tried, and every refusal.
    """

    exit_code = 3

    def __init__(self, report: Report) -> None:
        count = len(report.stuck)
        first = f"; first: {report.stuck[0]}" if report.stuck else ""
        super().__init__(f"{count} node(s) cannot run on {report.target}{first}")
        self.report = report


def lower(
    model: ir.Model,
    target: Target,
    *,
    disable: Iterable[str] = (),
    allow_stuck: bool = False,
    rules: Registry | None = None,
    keep_sites: bool = True,
    mask_value: float | None = None,
) -> Report:
    """Rewrite a model in place until nothing is left that the target cannot run.

    Args:
        model: edited in place; on an error it is as it was.
        target: see :func:`capabilities.target`.
        disable: names of rules not to use.
        allow_stuck: keep what could be done instead of raising.
        rules: all registered ones if not given.
        keep_sites: record both sides of each kind of site, for parity.
        mask_value: what is added to the score of a hidden key, see :class:`MaskValue`.

    Raises:
        Stuck: a node stays illegal.
        BadInput: a rule to disable does not exist.
        RewriteError: a rule is at fault; the message names it, the node and the form.
    """
    known = rules if rules is not None else registry()
    disabled = _disabled(disable, known)
    with _without_collector():
        before = model.clone()
        try:
            report = _run(
                model, target, known, disabled, keep_sites=keep_sites, mask_value=mask_value
            )
        except BaseException:
            _restore(model, before)
            raise
    if report.stuck and not allow_stuck:
        _restore(model, before)
        raise Stuck(report)
    return report


def plan(
    model: ir.Model,
    target: Target,
    *,
    disable: Iterable[str] = (),
    rules: Registry | None = None,
) -> Report:
    """What :func:`lower` would do, and what would stay; changes nothing."""
    known = rules if rules is not None else registry()
    with _without_collector():
        return _run(model.clone(), target, known, _disabled(disable, known), keep_sites=False)


@contextmanager
def _without_collector() -> Generator[None, None, None]:
    """What a run makes lives to its end: Python need not go through it again and again."""
    collected = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collected:
            gc.enable()


def _disabled(names: Iterable[str], rules: Registry) -> frozenset[str]:
    disabled = frozenset(names)
    for name in sorted(disabled):
        if name not in rules:
            raise BadInput(
                f"there is no rule '{name}'; known: {', '.join(sorted(r.name for r in rules))}"
            )
    return disabled


def _run(
    model: ir.Model,
    target: Target,
    rules: Registry,
    disabled: frozenset[str],
    *,
    keep_sites: bool,
    mask_value: float | None = None,
) -> Report:
    graphs: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
    read = sum(1 for graph in graphs for _ in graph.all_nodes())
    notes = settle_shapes(model) + correct_present_shapes(model)
    interface = _interface(model)
    masks = None if mask_value is None else MaskValue(mask_value)
    if masks is not None:
        masks(model)
        notes += masks.notes
    engine = Engine(
        model, target, rules, disabled=disabled, keep_sites=keep_sites, masked=mask_value
    )
    report = engine.run()
    report.folded = max(0, read - report.ops_before.total())
    if masks is not None:
        report.masks, report.masks_kept = masks.changes, masks.kept
    if report.fired:  # what rules built of constants alone; else a second run would fold it
        _fold_again(model, report)
    inside = StoreInside(target)
    inside(model)
    report.ops_after.update({"Constant": inside.count} if inside.count else {})
    report.notes = notes + report.notes + inside.notes + _advice(report, model)
    forget_symbols(model)
    after = [
        now if before[2] != "None" else (*now[:2], "None")  # no shape was declared
        for before, now in zip(interface, _interface(model), strict=True)
    ]
    if after != interface:
        raise RewriteError(f"inputs and outputs changed from {interface} to {after}")
    return report


def _advice(report: Report, model: ir.Model) -> list[str]:
    """What to do about nodes that stay for another reason than what they do: type, or sizes."""
    said = []
    if count := sum("bfloat16" in node.form for node in report.stuck):
        said.append(
            f"{count} of the stuck nodes compute in bfloat16, which {report.target} has no kernels "
            "for: export the model again in float16 or float32 (onnxruntime-genai's model builder: "
            "-p fp16 or -p fp32; torch: model.half() or model.float() before the export)"
        )
    if count := sum(any("not fixed" in t.reason for t in node.tried) for node in report.stuck):
        shapes = (value.shape for value in model.graph.inputs if value.shape is not None)
        names = dict.fromkeys(str(d) for shape in shapes for d in shape if not isinstance(d, int))
        said.append(
            f"{count} of the stuck nodes can be replaced once their dims are fixed: "
            f"--dim NAME=VALUE; free are {', '.join(names)}"
        )
    return said


def _fold_again(model: ir.Model, report: Report) -> None:
    if FoldShapes()(model).modified:
        remove_unused(model)
        graphs = [*graphs_of(model), *model.functions.values()]
        report.ops_after = count_ops(node for graph in graphs for node in graph)


def _interface(model: ir.Model) -> Interface:
    """Name, dtype and shape of every input and output, in order."""
    values = [*model.graph.inputs, *model.graph.outputs]
    return [(v.name, v.dtype, str(v.shape)) for v in values]


def _restore(model: ir.Model, before: ir.Model) -> None:
    model.graph = before.graph
    model.ir_version = before.ir_version
    model.functions.clear()
    model.functions.update(before.functions)
