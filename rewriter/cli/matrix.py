"""``rewrite matrix``: op and form against EP and version, from the table and the rules."""

from __future__ import annotations

import argparse

from rich.console import Console

from capabilities import eps
from rewriter.errors import BadInput
from rewriter.matrix import markdown, matrices
from rewriter.report.data import as_text
from rewriter.report.explained import matrix_data, show_matrix
from rewriter.report.html import matrix_page
from rewriter.rule import registry

_WIDE = 240
"""Columns where nobody looks at a terminal: no cell is cut."""


def run(options: argparse.Namespace) -> int:
    """Print the matrix in the form that was asked for."""
    known = sorted(ep.name for ep in eps())
    for name in options.ep:
        if name not in known:
            raise BadInput(f"--ep {name}: known are {', '.join(known)}")
    found = matrices(registry(), options.ep)
    if options.op:
        found = [one for matrix in found if (one := matrix.of(options.op)).lines]
        if not found:
            raise BadInput(f"--op {options.op}: no row of the table speaks of it")
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = _WIDE
    if options.json:
        console.out(as_text("matrix", {"eps": matrix_data(found)}))
    elif options.markdown:
        console.out(markdown(found), end="")
    elif options.html:
        console.out(matrix_page(found, options.op), end="")
    else:
        for one in found:
            show_matrix(one, console)
    return 0
