"""An environment for each version that pip offers; pip itself is a stand-in."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from rewriter.errors import BadInput
from rewriter.probe import environments as module
from rewriter.probe.environments import environments, offered

OFFERED = "onnxruntime-qnn (2.7.0)\nAvailable versions: 2.7.0, 2.10.0, 2.3.0, 1.22.0\n"


class Pip:
    """Notes what is run; a Python that it has made has the version that it was told."""

    def __init__(self, said: str = OFFERED) -> None:
        self.said, self.ran, self.made = said, list[list[str]](), dict[Path, str]()

    def __call__(self, words: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        self.ran.append(list(words))
        if "venv" in words:
            python = Path(words[-1]) / "bin" / "python"
            python.parent.mkdir(parents=True)
            python.touch()
        if "install" in words:
            name = next(word for word in words if "onnxruntime-qnn==" in word)
            self.made[Path(words[0])] = name.partition("==")[2]
        return subprocess.CompletedProcess(words, 0, self.said, "")

    def installed(self, _ep: str, python: Path | None = None) -> str | None:
        return self.made.get(python) if python else None


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch) -> Pip:
    made = Pip()
    monkeypatch.setattr(subprocess, "run", made)
    monkeypatch.setattr(module, "installed", made.installed)
    return made


def test_versions_from_the_oldest_measured_on(pip: Pip) -> None:
    assert offered("qnn") == ["2.3.0", "2.7.0", "2.10.0"]
    assert pip.ran[0][1:] == [
        "-m", "pip", "--disable-pip-version-check", "index", "versions", "onnxruntime-qnn",
    ]  # fmt: skip


def test_each_is_made_once(pip: Pip, tmp_path: Path) -> None:
    said: list[str] = []
    first = list(environments("qnn", tmp_path, said.append))
    assert [python.parts[-3] for python in first] == ["qnn-2.3.0", "qnn-2.7.0", "qnn-2.10.0"]
    assert pip.made == dict(zip(first, ["2.3.0", "2.7.0", "2.10.0"], strict=True))
    installs = [words for words in pip.ran if "install" in words]
    assert "onnxruntime==1.27.0" in installs[0]  # of its time
    assert not [word for word in installs[1] if word.startswith("onnxruntime==")]
    assert len(said) == 3
    count = len(pip.ran)
    assert list(environments("qnn", tmp_path, said.append)) == first
    assert (len(pip.ran), len(said)) == (count + 1, 3)  # pip is asked what it offers, no more


def test_nothing_offered_is_an_error(pip: Pip) -> None:
    pip.said = "ERROR: No matching distribution found for onnxruntime-qnn"
    with pytest.raises(BadInput, match="pip offers no version of onnxruntime-qnn here: ERROR"):
        offered("qnn")


def test_a_pip_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(words: list[str], **_: Any) -> None:
        raise subprocess.CalledProcessError(1, words, stderr="no network\nERROR: cannot connect\n")

    monkeypatch.setattr(subprocess, "run", fail)
    with pytest.raises(BadInput, match=r"index versions onnxruntime-qnn' failed: ERROR: cannot"):
        offered("qnn")
