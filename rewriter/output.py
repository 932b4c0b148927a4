"""Writing the result: whole or not at all, self-contained, and looked at before it counts."""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import onnx_ir as ir

from rewriter.errors import BadInput, OutOfResources, RewriteError
from rewriter.wellformed import faults


class Staging:
    """A folder beside the final one, which becomes it when everything is well.

    Attributes:
        folder: where files are written meanwhile.
        final: what it will be renamed to.
    """

    def __init__(self, final: Path, folder: Path) -> None:
        self.final = final
        self.folder = folder

    def write(self, model: ir.Model, name: str) -> Path:
        """Write a model with its weights in ``<name>.data``, and read it back.

        Raises:
            OutOfResources: the disk is full.
            RewriteError: what was read back is not what was written.
        """
        path = self.folder / name
        with _disk(self.final):
            ir.save(model, path, external_data=f"{name}.data", max_workers=2)
        _check_written(path, model)
        return path

    def copy(self, companions: Sequence[Path]) -> None:
        """Take tokenizer and configuration files along."""
        with _disk(self.final):
            for path in companions:
                shutil.copyfile(path, self.folder / path.name)

    def publish(self) -> None:
        """Become the final folder."""
        with _disk(self.final):
            if self.final.exists():
                old = Path(tempfile.mkdtemp(prefix=f".{self.final.name}.", dir=self.final.parent))
                self.final.rename(old / "old")
                self.folder.rename(self.final)
                shutil.rmtree(old)
            else:
                self.folder.rename(self.final)


@contextmanager
def staging(final: Path, *, overwrite: bool) -> Generator[Staging, None, None]:
    """A staging folder for an output folder; removed unless it was published.

    Raises:
        BadInput: the output folder holds something already, or cannot be made.
        OutOfResources: the disk is full.
    """
    final = final.absolute()
    _check_target(final, overwrite=overwrite)
    created = _make_parents(final.parent)
    try:
        with _disk(final):
            folder = Path(tempfile.mkdtemp(prefix=f".{final.name}.partial-", dir=final.parent))
            folder.chmod(0o755)
        try:
            yield Staging(final, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        for parent in created:
            if not any(parent.iterdir()):
                parent.rmdir()


def _check_target(final: Path, *, overwrite: bool) -> None:
    if final.exists() and not final.is_dir():
        raise BadInput(f"{final}: is a file; -o names a folder")
    if final.is_dir() and any(final.iterdir()) and not overwrite:
        raise BadInput(f"{final}: is not empty; give another folder, or --overwrite to replace it")
    existing = final
    while not existing.exists():
        existing = existing.parent
    if not existing.is_dir():
        raise BadInput(f"{final}: {existing} is a file")
    if not existing.stat().st_mode & 0o222:  # also for root, whom nothing else stops
        raise BadInput(f"{final}: {existing} is read-only; give -o a folder that can be written")


def _make_parents(parent: Path) -> list[Path]:
    missing = []
    while not parent.exists():
        missing.append(parent)
        parent = parent.parent
    with _disk(parent):
        for folder in reversed(missing):
            folder.mkdir()
    return missing


def _check_written(path: Path, model: ir.Model) -> None:
    written = ir.load(path)
    problem = next(faults(written), None)
    for value in written.graph.initializers.values():
        tensor = value.const_value
        if isinstance(tensor, ir.ExternalTensor):
            end = (tensor.offset or 0) + (tensor.length or 0)
            if Path(tensor.path).stat().st_size < end:
                problem = f"'{value.name}' lies past the end of its data file"
    names = [
        [v.name for v in m.graph.inputs] + [v.name for v in m.graph.outputs]
        for m in (model, written)
    ]
    if names[0] != names[1]:
        problem = f"inputs and outputs {names[1]} are not {names[0]}"
    if problem:
        raise RewriteError(f"{path.name} was written wrong: {problem}")


@contextmanager
def _disk(where: Path) -> Generator[None, None, None]:
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
            raise OutOfResources(f"{where}: the disk is full; nothing was kept") from None
        raise BadInput(f"{where}: cannot be written: {error.strerror or error}") from None
