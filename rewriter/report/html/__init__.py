"""The report as one HTML page that needs nothing else: ``--report FILE.html``."""

from rewriter.report.html.page import html_page

__all__ = ["html_page"]
