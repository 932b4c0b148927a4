"""An environment for each version of a runtime that pip offers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from capabilities import eps, parse_version
from rewriter.errors import BadInput
from rewriter.runtime.versions import distribution, installed

_OFFERED = re.compile(r"^Available versions: (.+)$", re.MULTILINE)
_OF_THEIR_TIME = {
    "onnxruntime-qnn": {"2.3.0": ("onnxruntime==1.27.0",), "2.4.0": ("onnxruntime==1.27.0",)},
}
"""What else an old version was released with, where pip would install what came much later."""


def offered(ep: str) -> list[str]:
    """The versions that pip offers for this machine, from the oldest measured one on.

    Raises:
        BadInput: pip cannot be asked.
    """
    name = distribution(ep)
    said = _pip(sys.executable, "index", "versions", name)
    listed = _OFFERED.search(said)
    if listed is None:
        raise BadInput(f"pip offers no version of {name} here: {said.strip().splitlines()[-1]}")
    oldest = min(parse_version(v) for one in eps() if one.name == ep for v in one.measured)
    found = [version.strip() for version in listed[1].split(",")]
    return sorted((v for v in found if parse_version(v) >= oldest), key=parse_version)


def environments(ep: str, folder: Path, say: Callable[[str], None]) -> Iterator[Path]:
    """The interpreter of each version's environment, which is made where it is not there yet.

    Args:
        ep: of the runtime.
        folder: of the environments, each ``<ep>-<version>``.
        say: told what is being installed.

    Raises:
        BadInput: pip fails.
    """
    name = distribution(ep)
    for version in offered(ep):
        home = folder / f"{ep}-{version}"
        python = home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
        if not python.exists() or installed(ep, python) != version:
            say(f"installing {name} {version} into {home}")
            _run(sys.executable, "-m", "venv", str(home))
            beside = _OF_THEIR_TIME.get(name, {}).get(version, ())
            _pip(str(python), "install", "--quiet", f"{name}=={version}", "numpy", *beside)
        yield python


def _pip(python: str, *words: str) -> str:
    return _run(python, "-m", "pip", "--disable-pip-version-check", *words)


def _run(*words: str) -> str:
    try:
        done = subprocess.run(
            words, capture_output=True, check=True, stdin=subprocess.DEVNULL, text=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", "") or str(error)
        last = said.strip().splitlines()[-1]
        raise BadInput(f"'{' '.join(words[1:])}' failed: {last}") from error
    return done.stdout
