"""A lie in the table, of five kinds, is found by the quick probe of the op that it is about."""

from __future__ import annotations

from pathlib import Path

import pytest

from capabilities.table import COLUMNS
from rewriter.cli import main
from tests.htp import needs_qnn

LIES = {
    "legal said to be illegal": (
        ("Softmax", "any", "illegal", "*", "a lie"),
        "P/Softmax|rank 4|f32",
    ),
    "illegal said to be legal": (("Erf", "any", "legal", "*", ""), "P/Erf|rank 3|f32"),
    "wrong said to be legal": (("IsNaN", "any", "legal", "*", ""), "P/IsNaN|rank 3|f32"),
    "too many versions": (
        # true of 2.3 to 2.6
        ("com.microsoft::RotaryEmbedding", "input rank 4", "legal", ">=2.3", ""),
        "P/com.microsoft::RotaryEmbedding|rank 4|f32",
    ),
    "too wide a form": (
        # true but for rank 5
        ("Atan", "input floating", "legal", "*", ""),
        "P/Atan|rank 5|f32",
    ),
}


@needs_qnn
@pytest.mark.parametrize(("row", "case"), LIES.values(), ids=LIES)
def test_a_lie_is_found(
    row: tuple[str, ...], case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lies = tmp_path / "lies.tsv"
    lies.write_text(
        "\t".join(COLUMNS) + "\n" + "\t".join((*row, "declared:nobody")) + "\n", encoding="utf-8"
    )
    assert main(["probe", "--ep", "qnn", "--op", row[0], "--rows", str(lies)]) == 5
    said = capsys.readouterr().out
    assert f"  {case}\n    table     {row[2]} {row[0]} [{row[1]}]" in said


@needs_qnn
def test_without_the_lies_nothing_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    """Or the tests above would find anything."""
    for op in sorted({row[0] for row, _ in LIES.values()}):
        assert main(["probe", "--ep", "qnn", "--op", op]) == 0, capsys.readouterr().out
