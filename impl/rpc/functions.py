"""Functions by name: `module:qualified.name`, looked up anew for each call, as pickle would.

Rule: a name that leads to something else than the function itself is refused where the call begins.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

from torch.futures import Future

from .errors import LimitExceeded, NotAllowed

F = TypeVar("F", bound=Callable[..., Any])
BUILTIN_HOMES = ("torch", "torch._C._nn", "torch._C._special", "torch._C._linalg", "torch._C._fft", "math", "operator")


@functools.lru_cache(maxsize=4096)
def name_of(function: Callable[..., Any]) -> str:
    """Its name for other workers. Raises NotAllowed if it has none: a lambda, a nested function, a bound method."""
    path = getattr(function, "__qualname__", None)
    defined = _home(function)
    for home in BUILTIN_HOMES if defined is None else (defined,):
        for candidate in (path, getattr(function, "__name__", None)):
            if home and candidate and "<" not in candidate and _same(home, candidate, function):
                return f"{home}:{candidate}"
    raise NotAllowed(f"{function!r} cannot be called on another worker: it is not to be found by its name "
                     f"({defined}.{path}); pass a function of a module, and not a lambda, a nested function or the "
                     "method of an object (for those use an RRef)")  # fmt: skip


def _same(home: str, path: str, function: Callable[..., Any]) -> bool:
    try:
        return bool(_walk(sys.modules[home], path) == function)
    except (KeyError, AttributeError):
        return False


def _home(function: Any) -> str | None:
    """The module that defines it, or the class that it is a method of."""
    owner = getattr(function, "__objclass__", None)
    return getattr(function, "__module__", None) or getattr(owner, "__module__", None)


def _walk(at: Any, path: str) -> Any:
    """What a module has by that name; not what is in the modules that it has imported."""
    for step in path.split("."):
        at = getattr(at, step)
        if isinstance(at, ModuleType):
            raise AttributeError(f"{step!r} is a module of its own")
    return at


def find(name: str, modules: tuple[str, ...] | None, limit: int) -> Callable[..., Any]:
    """The function of a name that another worker sent. Raises NotAllowed and LimitExceeded."""
    if len(name) > limit:
        raise LimitExceeded(f"the name of a function has {len(name)} characters > {limit}")
    home, _, path = name.partition(":")
    _check(name, home, modules)  # before it is imported
    try:
        module = sys.modules.get(home) or importlib.import_module(home)
        found = _walk(module, path)
    except (ImportError, AttributeError, ValueError) as error:
        raise NotAllowed(
            f"{name!r} is not to be found here ({error}): see that all workers have the same code"
        ) from None
    if not callable(found):
        raise NotAllowed(f"{name!r} is no function")
    # What a module has imported from others is theirs. Some builtins do not say whose they are.
    _check(name, _home(found) or (home if home in BUILTIN_HOMES and "." not in path else None), modules)
    return found  # type: ignore[no-any-return]


def _check(name: str, home: str | None, modules: tuple[str, ...] | None) -> None:
    """Raises NotAllowed unless `home` is one of the modules, or below one. They may go by two names: os.path does."""
    if modules is None:
        return
    real = (getattr(sys.modules.get(module), "__name__", module) for module in modules)
    if not any(f"{home}.".startswith(f"{module}.") for module in (*modules, *real)):
        raise NotAllowed(f"{name!r} may not be called here: `modules` of the options allows {', '.join(modules)}")


def async_execution(function: F) -> F:
    """For a function that returns a `torch.futures.Future`: the call is answered when that is set, and no thread waits.

    It may stand outside or inside of `staticmethod` and `classmethod`. As torch's (rpc/functions.py).
    """
    inner: Any = getattr(function, "__func__", function)  # of a staticmethod or a classmethod

    @functools.wraps(inner)
    def checked(*args: Any, **kwargs: Any) -> Any:
        future = inner(*args, **kwargs)
        if not isinstance(future, Future):
            raise NotAllowed(f"{inner.__qualname__} is an async_execution function, but returned "
                             f"a {type(future).__name__}: return a torch.futures.Future")  # fmt: skip
        return future

    made: Any = checked
    return made if inner is function else type(function)(made)  # type: ignore[no-any-return, misc]
