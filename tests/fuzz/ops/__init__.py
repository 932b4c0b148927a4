"""A strategy for the nodes of every op that has a lowering rule; importing registers them."""

from importlib import import_module
from pkgutil import iter_modules

FILES = sorted(module.name for module in iter_modules(__path__))

for _name in FILES:
    import_module(f"{__name__}.{_name}")
