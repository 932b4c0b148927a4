"""Our rules: ``lower/<op>.py`` lowers an op, ``fuse/<op>.py`` raises patterns to it.

Importing this package registers them all; :func:`rewriter.rule.registry` does so.
"""

from importlib import import_module
from pkgutil import walk_packages

for _module in walk_packages(__path__, f"{__name__}."):
    import_module(_module.name)
