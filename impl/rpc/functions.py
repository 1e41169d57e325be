"""Functions by name: `module:qualified.name`, looked up for each call, like in pickle.

Rule: a name that leads to anything but the function itself is refused where the call begins.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

from torch._C import Future, ScriptFunction

from .allowed import BUILTIN_HOMES, Modules, check_function, check_name
from .errors import LimitExceeded, NotAllowed

F = TypeVar("F", bound=Callable[..., Any])


@functools.lru_cache(maxsize=4096)
def name_of(function: Callable[..., Any]) -> str:
    """The function's name for other workers. Raises NotAllowed for a lambda, a nested function and a bound method."""
    path = _path(function)
    defined = _home(function)
    for home in BUILTIN_HOMES if defined is None else (defined,):
        for candidate in (path, getattr(function, "__name__", None)):
            if home and candidate and "<" not in candidate and _same(home, candidate, function):
                return f"{home}:{candidate}"
    raise NotAllowed(f"{function!r} cannot be called on another worker: it cannot be found by its name "
                     f"({defined}.{path}); pass a function of a module, or a method of an object that can be sent, "
                     "and not a lambda or a nested function")  # fmt: skip


def _same(home: str, path: str, function: Callable[..., Any]) -> bool:
    try:
        return bool(_walk(sys.modules[home], path) == function)
    except (KeyError, AttributeError):
        return False


def _path(function: Any) -> str | None:
    """The function's name in its module."""
    return _scripted(function)[1] if isinstance(function, ScriptFunction) else getattr(function, "__qualname__", None)


def _scripted(function: Any) -> tuple[str, str]:
    """The module and name of a function of torch.jit.script, whose `__module__` and `__qualname__` are its class's."""
    home, _, name = function.qualified_name.removeprefix("__torch__.").rpartition(".")
    return home or "__main__", name


def _home(function: Any) -> str | None:
    """The module that defines the function, or the class that it is a method of."""
    if isinstance(function, ScriptFunction):
        return _scripted(function)[0]
    owner = getattr(function, "__objclass__", None)
    return getattr(function, "__module__", None) or getattr(owner, "__module__", None)


def _walk(at: Any, path: str) -> Any:
    """The module's attribute of that name. Names in modules that it has imported are not found."""
    for step in path.split("."):
        at = getattr(at, step)
        if isinstance(at, ModuleType):
            raise AttributeError(f"{step!r} is itself a module")
    return at


def find(name: str, modules: Modules, limit: int) -> Callable[..., Any]:
    """The function of a name that another worker sent. Raises NotAllowed and LimitExceeded."""
    if len(name) > limit:
        raise LimitExceeded(f"the name of a function has {len(name)} characters, the limit is {limit}")
    home, _, path = name.partition(":")
    check_name(name, modules)  # before its module is imported
    try:
        try:
            found = _walk(sys.modules.get(home) or importlib.import_module(home), path)
        except AttributeError:
            # Another thread has begun to import the module: wait until it has finished.
            found = _walk(importlib.import_module(home), path)
    except (ImportError, AttributeError, ValueError) as error:
        raise NotAllowed(
            f"the RPC pickler does not serialize code, and {name!r} cannot be found here ({error}): start all workers "
            "with the same code"
        ) from None
    if not callable(found):
        raise NotAllowed(f"{name!r} is not a function")
    # A function that a module imports belongs to the module that defines it. Some builtins do not name that module.
    defined = _home(found) or (home if home in BUILTIN_HOMES and "." not in path else None)
    check_function(name, found, defined, modules)
    return found  # type: ignore[no-any-return]


def method_of(value: object, method: str, modules: Modules) -> Callable[..., Any]:
    """A method of a value that another worker names. Raises NotAllowed, and AttributeError for an unknown method."""
    bound = getattr(value, method)
    function = getattr(bound, "__func__", bound)
    home = getattr(function, "__module__", None)
    if home is None:  # the type is written in C, and its own attribute has the module
        function = inspect.getattr_static(type(value), method, bound)
        home = _home(function)
    kind = type(value)
    check_function(f"{home or kind.__module__}:{kind.__qualname__}.{method}", function, home, modules)
    return bound  # type: ignore[no-any-return]


def async_execution(function: F) -> F:
    """Decorate a function that returns a future of torch's: the future's result is the answer, and no thread waits.

    The future may be a `torch.futures.Future`, or the `torch._C.Future` that `then()` and `collect_all()` return. The
    decorator may be outside or inside of `staticmethod` and `classmethod`. Like torch's (rpc/functions.py).
    """
    inner: Any = getattr(function, "__func__", function)  # the function of a staticmethod or a classmethod

    @functools.wraps(inner)
    def checked(*args: Any, **kwargs: Any) -> Any:
        future = inner(*args, **kwargs)
        if not isinstance(future, Future):
            raise NotAllowed(
                "Functions decorated with @rpc.async_function must return a torch.futures.Future object, or the future "
                f"that then() or collect_all() returns: {inner.__qualname__} returned a {type(future).__name__}"
            )
        return future

    made: Any = checked
    return made if inner is function else type(function)(made)  # type: ignore[no-any-return, misc]
