"""Pages of HTML that need nothing else: ``--report FILE.html`` and ``rewrite matrix --html``."""

from rewriter.report.html.matrix_page import matrix_page
from rewriter.report.html.page import html_page

__all__ = ["html_page", "matrix_page"]
