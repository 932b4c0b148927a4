"""Killed, full, read-only, out of memory: an output is whole or not there, and what was stays."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from rewriter.cli import main
from rewriter.errors import BadInput
from rewriter.leftovers import claim
from rewriter.output import check_target, staging
from tests.command_line import FAST, Capture, failure
from tests.rewriter.test_output import WRITTEN, toy, tree, write
from tests.robust.kinds import FIXTURES

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="locks and limits of Unix")

ROOT = Path(__file__).parents[2]
DECODER = FIXTURES / "decoder" / "model.onnx"


# -- kill -9 ---------------------------------------------------------------------------------


def killed(home: Path, way: str, *steps: int) -> list[dict[str, Any]]:
    home.mkdir()
    words = [sys.executable, "-m", "tests.robust.killed", str(home), way, *map(str, steps)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(runs: list[dict[str, Any]], way: str) -> None:
    for run in runs:
        assert run["torn"] == [], run
        assert run["original"], run
        assert (run["again"], run["left again"]) == (0, []), run
        assert run["same"], run
        assert all(name.startswith(".rewrite-") for name in run["left"])
        assert run["state"] != "between" or len(run["left"]) == 2, run
        if way == "new":
            assert run["state"] != "between", run


@pytest.mark.slow
@pytest.mark.parametrize("way", ["new", "over", "in-place"])
def test_killed_at_every_step(way: str, tmp_path: Path) -> None:
    runs = killed(tmp_path / "home", way)
    check(runs, way)
    states = {run["state"] for run in runs}
    assert states == {"before"} if way == "new" else states >= {"before", "between", "after"}
    assert any(run["left"] for run in runs)


def test_killed_while_it_swaps(tmp_path: Path) -> None:
    """Before the first file leaves, after it, before the second new one comes, and after it."""
    runs = killed(tmp_path / "home", "swap", 2, 3, 5, 7)
    check(runs, "swap")
    assert {run["state"] for run in runs} == {"before", "between", "after"}


def _leftover(final: Path, home: Path) -> Path:
    """What a killed run leaves: its folder, half filled, and nobody who holds the lock."""
    left = claim(home, final)
    (left.folder / "model.onnx.data").write_bytes(b"half")
    left.release()
    return left.folder


def test_what_a_killed_run_left_is_removed(tmp_path: Path) -> None:
    beside, other = (_leftover(tmp_path / name, tmp_path) for name in ("out", "another"))
    write(tmp_path / "out")
    assert not beside.exists()
    assert other.exists()
    inside = _leftover(tmp_path / "out", tmp_path / "out")
    write(tmp_path / "out", overwrite=True)
    assert not inside.exists()
    assert {path.name for path in (tmp_path / "out").iterdir()} == WRITTEN


def test_an_empty_folder_with_leftovers_is_empty(tmp_path: Path) -> None:
    final = tmp_path / "out"
    final.mkdir()
    _leftover(final, final)
    write(final)
    assert set(tree(tmp_path)) == {f"out/{name}" for name in WRITTEN}


def test_a_run_that_goes_on_is_left_alone(tmp_path: Path) -> None:
    final = tmp_path / "out"
    final.mkdir()
    with staging(final, overwrite=False) as stage:
        with pytest.raises(BadInput, match="another run is writing there"):
            check_target(final, overwrite=True)
        stage.write(toy(), "model.onnx")
        stage.publish()
    assert {path.name for path in final.iterdir()} == WRITTEN


def test_a_folder_that_is_half_replaced_is_not_read(tmp_path: Path, capsys: Capture) -> None:
    write(tmp_path / "out")
    (tmp_path / "out" / ".rewrite-replaced-00000000").mkdir()
    for words in (("run", "--ids", "1"), ("plan", "--ep", "onnx-standard")):
        line = failure(capsys, words[0], str(tmp_path / "out"), *words[1:])
        assert "or was killed while it did" in line


def test_nothing_is_lost_where_a_person_was_faster(tmp_path: Path) -> None:
    """A file that came by hand after a swap was cut off, of the name of one that waits aside."""
    final, aside = tmp_path / "out", tmp_path / "out" / ".rewrite-leaving-00000000"
    aside.mkdir(parents=True)
    (aside / "model.onnx").write_bytes(b"old")
    (final / "model.onnx").write_bytes(b"new")
    with pytest.raises(BadInput, match="move one of them away"):
        check_target(final, overwrite=True)
    assert tree(final) == {".rewrite-leaving-00000000/model.onnx": b"old", "model.onnx": b"new"}


def test_a_link_is_no_leftover(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_bytes(b"x")
    folder = _leftover(tmp_path / "out", tmp_path)
    shutil.rmtree(folder)
    folder.symlink_to(precious)
    write(tmp_path / "out")
    assert (precious / "file").exists()


# -- a full disk, a read-only one ------------------------------------------------------------


@pytest.fixture
def mounted(tmp_path: Path) -> Generator[Path, None, None]:
    """A file system of 256 KiB, which only root can mount; others have RLIMIT_FSIZE alone."""
    disk = tmp_path / "disk"
    disk.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)]
    if os.geteuid() or subprocess.run(words, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a tmpfs; tests/rewriter/test_resources.py limits a file")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def _line(model: Path, output: Path, *more: str) -> list[str]:
    return [str(model), "--ep", "onnx-standard@22", *FAST, "--allow-stuck", "-o", str(output),
            *more]  # fmt: skip


@pytest.mark.parametrize("free", [0, 8, 64, 132, 140])
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_disk_that_is_full(free: int, overwrite: bool, mounted: Path, capsys: Capture) -> None:
    """So many KiB are free; the weights take 127, the graph 12 and what lies beside it the rest."""
    out = mounted / "out"
    if overwrite:
        out.mkdir()
        (out / "model.onnx").write_bytes(b"old")
    stat = os.statvfs(mounted)
    (mounted / "ballast").write_bytes(bytes(stat.f_bavail * stat.f_bsize - (free << 10)))
    before = tree(mounted)
    line = failure(capsys, *_line(DECODER, out, *(["--overwrite"] if overwrite else [])), code=6)
    assert "the disk is full; nothing was written" in line
    assert tree(mounted) == before
    assert {path.name for path in mounted.iterdir()} == {"ballast", *(["out"] if overwrite else [])}
    (mounted / "ballast").unlink()
    assert main(_line(DECODER, out, *(["--overwrite"] if overwrite else []))) == 0


def test_a_disk_that_cannot_be_written(mounted: Path, capsys: Capture) -> None:
    """Mode bits say it can; the mount says no."""
    subprocess.run(["mount", "-o", "remount,ro", str(mounted)], check=True)
    line = failure(capsys, *_line(DECODER, mounted / "out"), code=2)
    assert "out" in line
    assert "read-only" in line.lower()
    assert list(mounted.iterdir()) == []


# -- memory ----------------------------------------------------------------------------------


_ABORTED = 127
"""How glibc ends a process that has no room for the data of a thread: nobody can catch that."""


@pytest.mark.parametrize("room", [1, 8, 64])
def test_memory_that_runs_out(room: int, tmp_path: Path) -> None:
    """So many MiB beyond what the command has when it starts to work."""
    code = (
        "import sys, resource, pathlib\n"
        "from rewriter.cli import main\n"
        "import frontends.onnx.reader, rewriter.pipeline, rewriter.rules\n"
        "pages = int(pathlib.Path('/proc/self/statm').read_text().split()[0])\n"
        f"most = pages * resource.getpagesize() + ({room} << 20)\n"
        "resource.setrlimit(resource.RLIMIT_AS, (most, most))\n"
        "sys.exit(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *_line(DECODER, tmp_path / "a" / "out")],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in done.stderr.splitlines() if not line.endswith("...")]
    if done.returncode == 0:
        assert {path.name for path in (tmp_path / "a" / "out").iterdir()} >= WRITTEN
        return
    if done.returncode == _ABORTED and "ABORT" in done.stderr:
        assert not (tmp_path / "a" / "out").exists()
        return
    assert done.returncode == 6, done.stderr
    said = [line for line in lines if line.startswith("rewrite: ")]  # libraries add their own
    assert len(said) == 1
    assert "memory" in said[0]
    assert "Traceback" not in done.stderr
    left = [path.name for path in tmp_path.glob("a/*")]  # tidying may need memory, too
    assert all(name.startswith(".rewrite-partial-") for name in left)
