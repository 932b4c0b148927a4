"""The output folder: whole or not at all, whatever was there before and whatever goes wrong."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from rewriter.errors import BadInput, OutOfResources, RewriteError
from rewriter.output import Staging, check_target, staging
from tests.graphs import Builder

F32 = ir.DataType.FLOAT


def toy() -> ir.Model:
    """Relu of x times a weight that is large enough to be external."""
    b = Builder()
    x, w = b.input("x", F32, (1, 8)), b.const("w", np.ones((8, 80), np.float32))
    z = b.op("Relu", b.op("MatMul", x, w, name="y"), name="z")
    return b.model([(z, F32, (1, 80))])


def write(final: Path, *, overwrite: bool = False, model: Path | None = None) -> None:
    """Write the toy to a folder."""
    with staging(final, overwrite=overwrite, model=model) as stage:
        stage.write(toy(), "model.onnx")
        stage.publish()


def tree(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, hidden ones too."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


WRITTEN = {"model.onnx", "model.onnx.data"}


# -- where it may go -------------------------------------------------------------------------


def test_a_new_folder_and_its_parents(tmp_path: Path) -> None:
    write(tmp_path / "a" / "b" / "out")
    assert set(tree(tmp_path)) == {f"a/b/out/{name}" for name in WRITTEN}


def test_permissions_are_those_of_new_files(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write(tmp_path / "out")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o750
    modes = {stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "out").iterdir()}
    assert modes == {0o640}


def test_the_result_is_self_contained(tmp_path: Path) -> None:
    write(tmp_path / "out")
    moved = tmp_path / "elsewhere"
    (tmp_path / "out").rename(moved)
    tensor = ir.load(moved / "model.onnx").graph.initializers["w"].const_value
    assert isinstance(tensor, ir.ExternalTensor)
    assert np.all(tensor.numpy() == 1)


def _file(final: Path) -> None:
    final.write_text("x")


def _below_a_file(final: Path) -> None:
    final.parent.rmdir()
    final.parent.write_text("x")


def _full(final: Path) -> None:
    final.mkdir()
    (final / "old.txt").write_text("x")


def _dangling(final: Path) -> None:
    final.symlink_to("nowhere")


def _read_only_parent(final: Path) -> None:
    final.parent.chmod(0o555)


def _read_only(final: Path) -> None:
    final.mkdir()
    final.chmod(0o555)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (_file, "is a file"),
        (_below_a_file, "is a file"),
        (_full, "is not empty"),
        (_dangling, "is a link to nothing"),
        (_read_only_parent, "is read-only"),
        (_read_only, "is read-only"),
    ],
)
def test_where_it_cannot_go(tmp_path: Path, make: Callable[[Path], None], words: str) -> None:
    final = tmp_path / "home" / "out"
    final.parent.mkdir()
    make(final)
    before = tree(tmp_path)
    with pytest.raises(BadInput, match=words) as caught:
        write(final)
    assert str(caught.value).startswith(f"-o {final}: ")
    assert "\n" not in str(caught.value)
    assert tree(tmp_path) == before
    for folder in tmp_path.rglob("*"):
        if not folder.is_symlink():
            folder.chmod(0o755)


def test_an_empty_folder_stays_the_folder_it_is(tmp_path: Path) -> None:
    """It may be a mount point, or the working directory of the person who asks."""
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    inode = real.stat().st_ino
    write(link)
    assert link.is_symlink()
    assert real.stat().st_ino == inode
    assert set(tree(real)) == WRITTEN


# -- what was there before -------------------------------------------------------------------


def test_overwrite_replaces_everything(tmp_path: Path) -> None:
    final = tmp_path / "out"
    _full(final)
    write(final, overwrite=True)
    assert set(tree(tmp_path)) == {f"out/{name}" for name in WRITTEN}


def test_overwrite_deletes_no_folder(tmp_path: Path) -> None:
    (tmp_path / "out" / "photos").mkdir(parents=True)
    with pytest.raises(BadInput, match="holds the folder 'photos'"):
        write(tmp_path / "out", overwrite=True)


def test_overwrite_of_the_models_own_folder(tmp_path: Path) -> None:
    ir.save(toy(), tmp_path / "model.onnx", external_data="model.data")
    source = tmp_path / "model.onnx"
    with pytest.raises(BadInput, match="is not empty"):
        write(tmp_path, model=source)
    (tmp_path / "other.onnx").write_bytes(b"x")
    with pytest.raises(BadInput, match=r"would delete 'other\.onnx'"):
        write(tmp_path, overwrite=True, model=source)
    (tmp_path / "other.onnx").rename(tmp_path / "notes.txt")
    with pytest.raises(BadInput, match=r"would delete 'notes\.txt'"):
        write(tmp_path, overwrite=True, model=source)
    check_target(tmp_path, source, overwrite=True, companions={"notes.txt"})
    (tmp_path / "notes.txt").unlink()
    with staging(tmp_path, overwrite=True, model=source) as stage:
        stage.write(ir.load(source), "model.onnx")
        stage.publish()
    assert set(tree(tmp_path)) == WRITTEN
    tensor = ir.load(source).graph.initializers["w"].const_value
    assert tensor is not None
    assert np.all(tensor.numpy() == 1)


def test_inside_the_models_folder(tmp_path: Path) -> None:
    ir.save(toy(), tmp_path / "model.onnx")
    write(tmp_path / "out", model=tmp_path / "model.onnx")
    assert set(tree(tmp_path)) == {"model.onnx", "out/model.onnx", "out/model.onnx.data"}


# -- what goes wrong -------------------------------------------------------------------------


@pytest.mark.parametrize("error", [OSError(errno.EIO, "broken"), KeyboardInterrupt()])
@pytest.mark.parametrize("fails_at", range(6))
def test_a_swap_that_fails_puts_everything_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: int, error: BaseException
) -> None:
    """Three old files leave, their folder is marked, two new ones come; each move may fail."""
    final = tmp_path / "out"
    final.mkdir()
    for name in ("model.onnx", "model.onnx.data", "config.json"):
        (final / name).write_text(f"old {name}")
    before = tree(tmp_path)
    rename, calls = Path.rename, iter(range(100))

    def failing(self: Path, target: Path) -> Path:
        if next(calls) == fails_at:
            raise error
        return rename(self, target)

    def swap() -> None:
        with staging(final, overwrite=True) as stage:
            stage.write(toy(), "model.onnx")
            monkeypatch.setattr(Path, "rename", failing)
            stage.publish()

    with pytest.raises((BadInput, KeyboardInterrupt)):
        swap()
    assert tree(tmp_path) == before
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert len(list(final.iterdir())) == 3


def test_at_no_moment_does_a_model_have_the_weights_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    final = tmp_path / "out"
    final.mkdir()
    for name in WRITTEN:
        (final / name).write_text("old")
    rename, seen = Path.rename, []

    def watched(self: Path, target: Path) -> Path:
        moved = rename(self, target)
        seen.append({p.name for p in final.iterdir() if p.is_file()})
        return moved

    with staging(final, overwrite=True) as stage:
        stage.write(toy(), "model.onnx")
        monkeypatch.setattr(Path, "rename", watched)
        stage.publish()
    assert seen == [{"model.onnx.data"}, set(), set(), {"model.onnx.data"}, WRITTEN]


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.ENOSPC, OutOfResources),
        (errno.EDQUOT, OutOfResources),
        (errno.EACCES, BadInput),
        (errno.EIO, BadInput),
    ],
)
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_disk_that_fails_leaves_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    expected: type[RewriteError],
    overwrite: bool,
) -> None:
    final = tmp_path / "a" / "out"
    if overwrite:
        final.parent.mkdir()
        _full(final)
    before = tree(tmp_path)

    def save(_model: ir.Model, path: Path, **_options: object) -> None:
        path.write_bytes(b"half")
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(ir, "save", save)
    with pytest.raises(expected, match=str(final)):
        write(final, overwrite=overwrite)
    assert tree(tmp_path) == before
    assert (tmp_path / "a").exists() is overwrite


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError(), SystemExit(143)])
def test_whatever_ends_the_work_leaves_nothing(tmp_path: Path, error: BaseException) -> None:
    def work() -> None:
        with staging(tmp_path / "a" / "out", overwrite=False) as stage:
            stage.write(toy(), "model.onnx")
            raise error

    with pytest.raises(type(error)):
        work()
    assert not list(tmp_path.iterdir())


def test_what_is_not_published_is_gone(tmp_path: Path) -> None:
    with staging(tmp_path / "a" / "out", overwrite=False) as stage:
        stage.write(toy(), "model.onnx")
    assert not list(tmp_path.iterdir())


def test_a_result_that_was_cut_short_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = ir.save

    def short(model: ir.Model, path: Path, **options: object) -> None:
        save(model, path, **options)  # type: ignore[arg-type]  # loosely typed in tests
        os.truncate(path.with_name("model.onnx.data"), 100)

    monkeypatch.setattr(ir, "save", short)
    with pytest.raises(RewriteError, match=r"'w' lies past the end of model\.onnx\.data"):
        write(tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_companions_come_along_or_are_named(tmp_path: Path) -> None:
    config, gone = tmp_path / "config.json", tmp_path / "gone.json"
    config.write_text("{}")
    stage = Staging(tmp_path / "out", tmp_path / "stage")
    stage.folder.mkdir()
    stage.copy({"config.json": config, "own.json": b"[]"})
    assert (stage.folder / "config.json").read_text() == "{}"
    assert (stage.folder / "own.json").read_bytes() == b"[]"
    with pytest.raises(BadInput, match=rf"{gone}: cannot be read"):
        stage.copy({"gone.json": gone})


def test_a_companion_that_fills_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def copy(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(shutil, "copyfile", copy)
    with pytest.raises(OutOfResources, match="the disk is full"):
        Staging(tmp_path / "out", tmp_path).copy({"config.json": tmp_path / "config.json"})


@pytest.mark.parametrize("name", ["other.gguf", "m-00002-of-00002.GGUF", "model.safetensors"])
def test_overwrite_deletes_no_checkpoint(name: str, tmp_path: Path) -> None:
    """Neither the model in its own folder, nor its shards, nor another one."""
    (tmp_path / name).write_bytes(b"precious")
    with pytest.raises(BadInput, match=f"holds the checkpoint '{name}'"):
        check_target(tmp_path, tmp_path / name, overwrite=True)
    with pytest.raises(BadInput, match=f"holds the checkpoint '{name}'"):
        check_target(tmp_path, tmp_path.parent / "m.gguf", overwrite=True)
