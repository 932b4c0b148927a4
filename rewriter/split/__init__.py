"""A transformer cut between layers into models that run one after the other."""

from rewriter.split.check import check
from rewriter.split.parts import Name, Part, foresee, split
from rewriter.split.report import Cut, Handed, cut_at
from rewriter.split.written import Written, write_parts

__all__ = [
    "Cut",
    "Handed",
    "Name",
    "Part",
    "Written",
    "check",
    "cut_at",
    "foresee",
    "split",
    "write_parts",
]
