"""The pages of the subcommands: each is printed, each example is right, and the cheap ones run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import onnx_ir as ir
import pytest

from rewriter.cli import main
from rewriter.cli.arguments import COMMANDS, parse
from tests.command_line import Capture
from tests.decoders import Decoder, decoder

ROOT = Path(__file__).parents[3]
PAGES = sorted((ROOT / "rewriter" / "cli" / "pages").glob("*.md"))
DEAR = (
    *("-qnn", ".gguf", "probe", "--static", "--report", "--activations", "decoder-mine"),
    *("fixtures/", "--markdown"),
)
"""What asks an emulator or needs a file that is not there; other tests run these."""


def examples(text: str) -> Iterator[str]:
    """Command lines in the blocks of a page, in order."""
    for _, block in re.findall(r"```(sh|yaml)\n(.*?)```", text, re.DOTALL):
        for line in block.splitlines():
            command = line.strip().removeprefix("run: ").removeprefix("- ")
            if command.startswith("rewrite "):
                yield command


def parsed(line: str) -> str:
    """The subcommand that a command line means; bad usage ends the test."""
    found: str = parse(shlex.split(line, comments=True)[1:]).command
    return found


EXAMPLES = [(p.stem, line) for p in PAGES for line in examples(p.read_text(encoding="utf-8"))]
EXAMPLES += [("README", line) for line in examples((ROOT / "README.md").read_text("utf-8"))]


def test_every_subcommand_has_a_page_with_examples() -> None:
    stems = [path.stem for path in PAGES]
    assert set(stems) == {*COMMANDS, "ci"}
    for name in COMMANDS:
        assert any(parsed(line) == name for page, line in EXAMPLES if page == name)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_prints_it(command: str, capsys: Capture) -> None:
    words = [] if command == "model" else [command]
    with pytest.raises(SystemExit) as left:
        main([*words, "--help"])
    assert left.value.code == 0
    shown = capsys.readouterr().out
    assert "```" not in shown
    assert "`" not in shown
    for name, line in EXAMPLES:
        assert name != command or f"    {line}" in shown


@pytest.mark.parametrize("line", [line for _, line in EXAMPLES])
def test_an_example_is_read(line: str) -> None:
    assert parsed(line) in COMMANDS


def test_the_cheap_examples_do_what_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    ir.save(decoder(Decoder(layers=1)), "decoder.onnx")
    cheap = [line for _, line in EXAMPLES if not any(word in line for word in DEAR)]
    cheap.sort(key=lambda line: "decoder-std" in line and " -o " not in line)  # once it is there
    ran = {}
    for line in cheap:
        ran[line] = main(shlex.split(line, comments=True)[1:])
    out = capsys.readouterr().out
    assert {line: code for line, code in ran.items() if code} == {}
    assert len(ran) > 12
    assert "is replaced: Add x" in out
    assert '"schema": 1' in out
