"""Writing the result: whole or not at all, self-contained, and looked at before it counts."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import onnx_ir as ir

from rewriter.errors import BadInput, OutOfResources, RewriteError
from rewriter.leftovers import Claim, aside_of, claim, is_of_a_run, put_right
from rewriter.shared_weights import missing_weights, save_beside
from rewriter.wellformed import faults

Told = Callable[[str, int], None]
"""Is told the name and the bytes of each weight that is about to be written."""

_DATA = "model.onnx.data"
"""Where the weights of a folder are."""

_CHECKPOINTS = frozenset({".gguf", ".safetensors"})
"""Endings of files that only a person can have put into a folder."""

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_SHORT = "requested and"
"""In what numpy says of a file that took less than it was given: it has no number for that."""


class Staging:
    """A folder that is filled out of sight, and becomes the final one when everything is well.

    It lies beside the final folder, or inside where that exists already: a folder that is a mount
    point, a link or somebody's working directory must stay the folder it is.

    Attributes:
        folder: where files are written meanwhile.
        final: where they will be.
        claimed: what tells other runs of the folder, where it is to be published.
    """

    def __init__(self, final: Path, folder: Path, claimed: Claim | None = None) -> None:
        self.final = final
        self.folder = folder
        self.claimed = claimed

    def write(
        self,
        model: ir.Model,
        name: str,
        beside: Path | None = None,
        told: Told | None = None,
    ) -> tuple[Path, int]:
        """Write a model with its weights in ``model.onnx.data``, and read it back.

        Args:
            model: what to write.
            name: of its file.
            beside: a model written before, whose stored weights it uses where they are equal.
            told: see :data:`Told`.

        Returns:
            The file, and the bytes of weights that were stored already.

        Raises:
            OutOfResources: the disk is full.
            RewriteError: what was read back is not what was written.
        """
        path, shared = self.folder / name, 0
        with disk(self.final):
            if beside is not None:
                shared = save_beside(model, path, ir.load(beside))
            else:
                ir.save(
                    model,
                    path,
                    external_data=_DATA,
                    max_workers=2,
                    callback=told and (lambda tensor, _: told(tensor.name or "", tensor.nbytes)),
                )
        _check_written(path, model)
        return path, shared

    def copy(self, files: Mapping[str, Path | bytes]) -> None:
        """Take tokenizer and configuration files along: by name, a file or its content."""
        for name, source in files.items():
            if isinstance(source, bytes):
                with disk(self.final):
                    (self.folder / name).write_bytes(source)
            else:
                with disk(self.final, source):
                    shutil.copyfile(source, self.folder / name)

    def publish(self) -> None:
        """Become the final folder."""
        with disk(self.final):
            if self.claimed is not None and self.folder.parent == self.final:
                _replace_files(self.claimed, self.final)
            else:
                self.folder.rename(self.final)


@contextmanager
def staging(
    final: Path,
    *,
    overwrite: bool,
    model: Path | None = None,
    companions: Collection[str] = (),
) -> Generator[Staging, None, None]:
    """A staging folder for an output folder; removed unless it was published.

    Args:
        final: the output folder.
        overwrite: it may hold something, which is then replaced.
        model: the file that is read, so that it is not lost by mistake.
        companions: as in :func:`check_target`.

    Raises:
        BadInput: the output folder holds something already, or cannot be made.
        OutOfResources: the disk is full.
    """
    final = final.absolute()
    check_target(final, model, overwrite=overwrite, companions=companions)
    made: list[Path] = []
    try:
        with disk(final):
            claimed = _make(final, made)
        try:
            yield Staging(final, claimed.folder, claimed)
        finally:
            shutil.rmtree(claimed.folder, ignore_errors=True)
            claimed.release()
    finally:
        for parent in reversed(made):
            if parent.is_dir() and not any(parent.iterdir()):
                parent.rmdir()


def check_target(
    final: Path,
    model: Path | None = None,
    *,
    overwrite: bool,
    companions: Collection[str] = (),
) -> None:
    """Whether an output folder may be written, before any work is done.

    What runs that were killed left of it is put right first.

    Args:
        final: the folder.
        model: the file that is read, so that it is not lost by mistake.
        overwrite: the folder may hold something.
        companions: names of files that the run writes again.

    Raises:
        BadInput: it may not; the message says why.
    """
    final = final.absolute()
    if final.is_symlink() and not final.exists():
        raise BadInput(f"-o {final}: is a link to nothing; give another folder")
    if final.exists() and not final.is_dir():
        raise BadInput(f"-o {final}: is a file; -o names a folder")
    existing = next(folder for folder in (final, *final.parents) if folder.exists())
    if not existing.is_dir():
        raise BadInput(f"-o {final}: {existing} is a file; -o names a folder in a folder")
    if not writable(existing):
        raise BadInput(f"-o {final}: {existing} is read-only; give a folder that can be written")
    with disk(final):
        put_right(final)
    held = sorted(final.iterdir()) if final.is_dir() else []
    for path in held:
        if is_of_a_run(path):
            raise BadInput(
                f"-o {final}: another run is writing there; wait for its end, or, if there is "
                f"none, delete {path}"
            )
    if held and not overwrite:
        raise BadInput(
            f"-o {final}: is not empty; give another folder, or --overwrite to replace it"
        )
    _check_expendable(final, held, model, companions)


def _check_expendable(
    final: Path, held: Sequence[Path], model: Path | None, companions: Collection[str]
) -> None:
    """Replacing a folder must not lose what no run of ours has put there."""
    for path in held:
        if path.is_dir() and not path.is_symlink():
            raise BadInput(
                f"-o {final}: holds the folder '{path.name}', which --overwrite would delete; "
                "give another folder"
            )
        if path.suffix.lower() in _CHECKPOINTS:
            raise BadInput(
                f"-o {final}: holds the checkpoint '{path.name}', which --overwrite would delete; "
                "give another folder"
            )
    if model is None or model.resolve().parent != final.resolve():
        return
    own = {model.name, *(path.name for path in data_files(model)), *companions}
    others = [p.name for p in held if p.name not in own]
    if others:
        raise BadInput(
            f"-o {final}: is the model's own folder, and --overwrite would delete '{others[0]}' "
            "there; give another folder"
        )


def data_files(model: Path) -> list[Path]:
    """The files beside an ONNX file that its weights are in; none if it cannot be read."""
    try:
        graphs = list(ir.load(model).graphs())
    except Exception:  # whatever is wrong with it is said by its reader
        return []
    stored = [v.const_value for graph in graphs for v in graph.initializers.values()]
    found = (Path(tensor.path) for tensor in stored if isinstance(tensor, ir.ExternalTensor))
    return sorted(set(found))


def writable(path: Path) -> bool:
    """Whether a file or folder can be written; root is held to the mode bits as well."""
    return bool(path.stat().st_mode & 0o222) and os.access(path, os.W_OK)


def _make(final: Path, made: list[Path]) -> Claim:
    """Make the staging folder, and the parents that are missing, which ``made`` notes."""
    home = final if final.is_dir() else final.parent
    for parent in reversed([p for p in (home, *home.parents) if not p.exists()]):
        parent.mkdir()
        made.append(parent)
    return claim(home, final)


def _replace_files(claimed: Claim, final: Path) -> None:
    """Swap the files of a folder for those of a folder inside it; on any error all goes back.

    Models leave first and come last: at no moment is there one with another's weights.
    """
    aside, marked = (aside_of(claimed, final, all_left=left) for left in (False, True))
    aside.mkdir()
    gone: list[Path] = []
    come: list[Path] = []
    try:
        for path in sorted(final.iterdir(), key=lambda p: p.suffix != ".onnx"):
            if not is_of_a_run(path):
                gone.append(path)
                path.rename(aside / path.name)
        aside.rename(marked)
        for path in sorted(claimed.folder.iterdir(), key=lambda p: p.suffix == ".onnx"):
            come.append(path)
            path.rename(final / path.name)
    except BaseException:
        for path in reversed(come):
            if not path.exists():
                (final / path.name).rename(path)
        if marked.is_dir():
            marked.rename(aside)  # from now on it goes back
        for path in reversed(gone):
            if not path.exists():
                (aside / path.name).rename(path)
        aside.rmdir()
        raise
    shutil.rmtree(marked, ignore_errors=True)


def _check_written(path: Path, model: ir.Model) -> None:
    written = ir.load(path)
    problem = next(faults(written), None) or missing_weights(written)
    names = [
        [v.name for v in m.graph.inputs] + [v.name for v in m.graph.outputs]
        for m in (model, written)
    ]
    if names[0] != names[1]:
        problem = f"inputs and outputs {names[1]} are not {names[0]}"
    if problem:
        raise RewriteError(f"{path.name} was written wrong: {problem}")


@contextmanager
def disk(where: Path, source: Path | None = None) -> Generator[None, None, None]:
    """Turn errors of the file system into ours.

    Args:
        where: what is written.
        source: what it is copied from, if it is the likelier culprit.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _FULL or (error.errno is None and _SHORT in str(error)):
            raise OutOfResources(
                f"{where}: the disk is full; nothing was written, make room and run it again"
            ) from None
        if error.errno == errno.ENOMEM:
            raise OutOfResources(
                f"{where}: out of memory while it was written; nothing was kept, run it with more"
            ) from None
        if source is not None and error.filename == str(source):
            raise BadInput(f"{source}: cannot be read: {error.strerror or error}") from None
        raise BadInput(f"{where}: cannot be written: {error.strerror or error}") from None
