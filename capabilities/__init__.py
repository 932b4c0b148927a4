"""What execution providers can run, as a table with evidence. Standard library only.

>>> target("qnn", "2.7.0").judge(Facts("TensorScatter")).verdict
<Verdict.ILLEGAL: 'illegal'>
"""

from capabilities.facts import Facts, Tensor
from capabilities.forms import Form, term
from capabilities.model import Judgement, Row, Target, Verdict
from capabilities.plugins import BadPlugin
from capabilities.records import Record, evidence_of, records
from capabilities.table import BadRow, parse_rows, read_rows
from capabilities.targets import EP, UnknownTarget, eps, register, target
from capabilities.versions import VersionRange, parse_version

__all__ = [
    "EP",
    "BadPlugin",
    "BadRow",
    "Facts",
    "Form",
    "Judgement",
    "Record",
    "Row",
    "Target",
    "Tensor",
    "UnknownTarget",
    "Verdict",
    "VersionRange",
    "eps",
    "evidence_of",
    "parse_rows",
    "parse_version",
    "read_rows",
    "records",
    "register",
    "target",
    "term",
]
