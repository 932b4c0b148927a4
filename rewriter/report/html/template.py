"""What the pages share: one way to fill a template, one stylesheet, one frame."""

from __future__ import annotations

from typing import Any

from rewriter.report.clean import printable


def rendered(template: str, **values: Any) -> str:
    """A page as text, with the stylesheet in it.

    Args:
        template: its file beside this one; ``frame.html.jinja`` is what it extends.
        values: by the names that the template uses.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined  # for pages only

    environment = Environment(
        loader=PackageLoader("rewriter.report", "html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["words"] = printable
    style = environment.get_template("page.css").render()
    return environment.get_template(template).render(style=style, **values)
