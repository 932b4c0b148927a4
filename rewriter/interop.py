"""Our rules inside other people's pipelines: an ``onnx_ir`` pass."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from capabilities import Target
from rewriter.lowering import lower
from rewriter.record import Report


class Lower(InPlacePass):
    """:func:`rewriter.lower` as an in-place pass, for any pass manager of ``onnx_ir``.

    Args:
        target: see :func:`capabilities.target`.
        allow_stuck: keep what could be done instead of raising.

    Attributes:
        report: of the last run.
    """

    def __init__(self, target: Target, *, allow_stuck: bool = False) -> None:
        super().__init__()
        self.report: Report | None = None
        self._target = target
        self._allow_stuck = allow_stuck

    def call(self, model: ir.Model) -> PassResult:
        """Lower the model in place.

        Raises:
            Stuck: a node stays illegal and that was not allowed.
        """
        self.report = lower(model, self._target, allow_stuck=self._allow_stuck, keep_sites=False)
        return PassResult(model, modified=self.report.changed)
