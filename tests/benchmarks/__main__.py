"""What our work costs beside others', measured side by side: ``python -m tests.benchmarks``.

Each row is a ratio: the median over runs that take turns, so that what else the machine does falls
on both. Nothing is asserted: times are no tests. Peers run in environments of their own in the
folder that ``REWRITE_ENVIRONMENTS`` names; without it only our own figures are printed. All rows
take an hour and 20 GB of disk; names of rows choose some of them.
"""

from __future__ import annotations

import argparse
import datetime
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.benchmarks import (
    external,
    gguf,
    growth,
    installed,
    int4,
    lowering,
    rewriting,
    startup,
    traffic,
)
from tests.benchmarks.cost import Line

ROWS: dict[str, Callable[[Path, int], Iterator[Line]]] = {
    module.__name__.rpartition(".")[2]: module.lines
    for module in (
        rewriting,
        lowering,
        external,
        int4,
        gguf,
        startup,
        installed,
        traffic,
        growth,
    )
}
_HEAD = ("work", "against", "ours", "other", "ratio", "goal", "")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("rows", nargs="*", help=f"some of: {', '.join(ROWS)}")
    parser.add_argument("--runs", type=int, default=3, help="of each pair (default 3)")
    parser.add_argument("--folder", type=Path, help="where models are made (default: TMPDIR)")
    parser.add_argument("--markdown", action="store_true", help="print a table for a README")
    options = parser.parse_args()
    if unknown := set(options.rows) - ROWS.keys():
        parser.error(f"no such row: {', '.join(sorted(unknown))}; known: {', '.join(ROWS)}")
    found: list[tuple[str, ...]] = []
    notes = Console(stderr=True)
    for name in options.rows or ROWS:
        with tempfile.TemporaryDirectory(prefix="rewrite-", dir=options.folder) as folder:
            for one in ROWS[name](Path(folder), options.runs):
                found.append(_cells(one))
                notes.print(*found[-1], sep=" | ", soft_wrap=True, markup=False)
    said = f"python -m tests.benchmarks, {datetime.datetime.now(tz=datetime.UTC):%Y-%m-%d}"
    (_markdown if options.markdown else _plain)(found, said)


def _cells(row: Line) -> tuple[str, ...]:
    ours, other = (
        "-" if figure is None else f"{figure:,.3g} {row.unit}" if figure < 1000
        else f"{figure:,.0f} {row.unit}" for figure in (row.ours, row.other)
    )  # fmt: skip
    ratio = "-" if row.ratio is None else f"{row.ratio:.2f}"
    met = "" if row.ratio is None else "met" if row.ratio <= row.goal else "missed"
    return row.work, row.against, ours, other, ratio, f"{row.goal:.2f}", met


def _plain(rows: Iterable[tuple[str, ...]], said: str) -> None:
    table = Table(*_HEAD, box=None)
    for cells in rows:
        table.add_row(*map(escape, cells))
    Console().print(table, said)


def _markdown(rows: Iterable[tuple[str, ...]], said: str) -> None:
    lines = [_HEAD, ("---",) * len(_HEAD), *rows]
    text = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    Console(soft_wrap=True).print(f"{text}\n\n{said}", markup=False, highlight=False)


if __name__ == "__main__":
    main()
