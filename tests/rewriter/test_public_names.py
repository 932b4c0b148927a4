"""What other packages may rely on: listed once, documented, typed."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import rewriter

ROOT = Path(__file__).parents[2]
PACKAGES = ("capabilities", "frontends", "rewriter")
NAMES = [(p, n) for p in PACKAGES for n in import_module(p).__all__ if n != "__version__"]


def test_the_list_in_the_docstring_is_the_list() -> None:
    assert rewriter.__doc__ is not None
    listed = rewriter.__doc__.partition("To rewrite a model:")[2]
    assert set(re.findall(r"``(\w+)``", listed)) == set(rewriter.__all__) - {"__version__"}


def test_names_are_sorted_and_known_to_the_type_checker() -> None:
    source = (ROOT / "rewriter" / "__init__.py").read_text(encoding="utf-8")
    block = source.partition("if TYPE_CHECKING:")[2].partition("__version__")[0]
    imported = re.findall(r"import (.+)", block)
    typed = {name.strip() for line in imported for name in line.split(",")}
    assert typed == set(rewriter.__all__) - {"__version__"}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_says_that_it_is_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()


@pytest.mark.parametrize(("package", "name"), NAMES, ids=[f"{p}.{n}" for p, n in NAMES])
def test_a_public_name_is_documented_and_typed(package: str, name: str) -> None:
    found: Any = getattr(import_module(package), name)
    assert not name.startswith("_")
    own = [found]
    if inspect.isclass(found):
        members = (m for k, m in vars(found).items() if not k.startswith("_"))
        own += [m for m in members if inspect.isfunction(m)]
    for one in own:
        text = inspect.getdoc(one) or ""
        assert len(text.split()) > 2, one
        assert not text.startswith(f"{name}("), "a docstring that dataclass wrote"
        if not inspect.isfunction(one):
            continue
        signature = inspect.signature(one)
        assert signature.return_annotation is not inspect.Signature.empty, one
        for parameter in signature.parameters.values():
            assert parameter.name == "self" or parameter.annotation is not parameter.empty, one
