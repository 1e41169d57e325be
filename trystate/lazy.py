"""Public modules that load nothing: a name is imported from its own module when it is first used.

A public module imports its names below `if TYPE_CHECKING:`. A type checker reads them there: a misspelt name is an
error. `lazily` reads them there when a name is first used. Each name is written twice, in its import and in `__all__`.
One import may be `*`, from the module that has all names of `__all__` without their own import.
(`lazy_loader` reads a stub file in the same way, but only for names that live below the package that offers them.)
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from importlib.util import resolve_name
from types import MappingProxyType, ModuleType
from typing import Any


def lazily(
    name: str, deprecated: Mapping[str, str] = MappingProxyType({})
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` for the module called `name`, which imports its public names for type checkers.

    `deprecated`: names of modules that were public in the last minor version, and the modules; their use warns.
    """
    module = sys.modules[name]

    def get(attribute: str) -> Any:
        if attribute in deprecated:
            warnings.warn(
                f"{name}.{attribute} is internal and will be removed in the next minor version: import what you need "
                f"from {name}",
                DeprecationWarning,
                stacklevel=2,
            )
            return importlib.import_module(deprecated[attribute])
        if attribute not in module.__all__:
            names = ", ".join(module.__all__)
            raise AttributeError(f"module {name!r} has no attribute {attribute!r}: it has {names}")
        home = homes(module)[attribute]
        if home == name:  # a module of this package: `from . import attribute` would call this function again
            return importlib.import_module(f"{home}.{attribute}")
        value = getattr(__import__(home, fromlist=[attribute]), attribute)
        setattr(module, attribute, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(module), *module.__all__})

    return get, names


@cache
def homes(module: ModuleType) -> dict[str, str]:
    """The module that each name of a public module is imported from, read in its source."""
    import ast  # takes 2 ms: a program that only imports the module does not pay for it

    spec: Any = module.__spec__
    imports = [n for n in ast.walk(ast.parse(spec.loader.get_source(spec.name))) if isinstance(n, ast.ImportFrom)]
    found = {
        alias.asname or alias.name: resolve_name("." * node.level + (node.module or ""), spec.parent)
        for node in imports
        for alias in node.names
    }
    return {**dict.fromkeys(module.__all__, found["*"]), **found} if "*" in found else found
