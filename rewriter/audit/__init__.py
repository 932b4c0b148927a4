"""Where two models that should be one function drift apart: ``rewrite audit``."""

from rewriter.audit.dump import Dump, dump
from rewriter.audit.find import Audit, Drift, audit
from rewriter.audit.values import Pair

__all__ = ["Audit", "Drift", "Dump", "Pair", "audit", "dump"]
