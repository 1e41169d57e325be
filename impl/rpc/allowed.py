"""Which functions other workers may call here, or name in their arguments.

Another worker has shown the secret and has no other rights: it may call each function that `Options.modules` allows,
with arguments of its choice. A name is judged twice. Before its module is imported, the module of the name must
be allowed: an import runs code, and the program's own modules are the only ones that a name can import by default.
Afterwards, the module that defines the function must be allowed: a program that imports `os.system` has not offered it
to others. A method that is called through an RRef is judged by the module that defines it, once there is a value.

Rule: this module judges names and functions; `functions` finds them.
"""

from __future__ import annotations

import enum
import functools
import importlib.util
import sys
import sysconfig
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

import torch

from trystate.model.errors import UsageError

from .errors import NotAllowed


class FunctionSet(enum.Enum):
    """A set of functions that `Options.modules` can allow besides the names of modules."""

    PROGRAM = "functions of modules that are neither Python's, torch's or trystate's nor installed in site-packages"
    TORCH = "torch's public operators, the classes of torch.nn, and the methods of tensors, modules and optimizers"
    ANY = "the functions of all modules: other workers can then run anything here, os.system too"


Modules = tuple[str | FunctionSet, ...]
DEFAULT: Modules = (FunctionSet.PROGRAM, FunctionSet.TORCH)
INSTALLED = {"site-packages", "dist-packages"}  # folders of installed packages; Debian uses the second name
PYTHON = tuple(PurePath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib"))  # with Python's own tests
NEVER_THE_PROGRAM = ("torch", __name__.partition(".")[0])  # not the program, wherever they are installed
MAIN = ("__main__", "__mp_main__")  # the second name is for a process that multiprocessing has spawned
# Functions that a DistributedOptimizer calls on the owners of its parameters, whatever `modules` allows.
SERVICES = frozenset(f"{__name__.rpartition('.rpc.')[0]}.autograd.optimizer:{part}" for part in ("_make", "_step"))

OPERATORS = tuple(
    f"torch._C.{home}" for home in ("_nn", "_special", "_linalg", "_fft", "_sparse")
)  # these contain operators only
WRAPPERS = ("torch.functional", "torch.nn.functional", "torch.nn.init", "torch._tensor")  # operators written in Python
BUILTIN_HOMES = ("torch", *OPERATORS, "math", "operator")  # modules of builtins that do not name their module
CLASSES = ("torch.nn.modules", "torch.optim")  # modules of classes whose methods may be called
# from_file opens a file; options of compile are a command line of the C++ compiler; new takes the address of a tensor.
NEVER = {"from_file", "compile", "new"}


def check_modules(modules: object) -> None:
    """Raises UsageError unless it is a tuple of names and function sets."""
    if not isinstance(modules, tuple) or not all(isinstance(each, str | FunctionSet) for each in modules):
        raise UsageError(
            f"modules is {modules!r}: give a tuple of names of modules and of FunctionSet's members; "
            "(FunctionSet.ANY,) allows the functions of all modules"
        )


def check_name(name: str, modules: Modules) -> None:
    """Raises NotAllowed unless a function of this name may be allowed; nothing is imported."""
    home = name.partition(":")[0]
    _check(name, home, modules, lambda: home in sys.modules and _is_below(home, "torch"))


def check_function(name: str, function: Any, home: str | None, modules: Modules) -> None:
    """Raises NotAllowed unless this function is allowed, which `home` defines."""
    _check(name, home or "", modules, lambda: _is_of_torch(function, home or ""))


def _check(name: str, home: str, modules: Modules, is_of_torch: Callable[[], bool]) -> None:
    def has(allowed: str | FunctionSet) -> bool:
        if isinstance(allowed, str):
            return name == allowed or _is_below(home, allowed)
        if allowed is FunctionSet.TORCH:
            return is_of_torch()
        return allowed is FunctionSet.ANY or _is_of_the_program(home)

    if name not in SERVICES and not any(map(has, modules)):
        _refuse(name, home, modules)


def _is_below(home: str, module: str) -> bool:
    """Whether `home` is `module` or is in it. A module may have two names: os.path does."""
    real = getattr(sys.modules.get(module), "__name__", module)
    return any(f"{home}.".startswith(f"{name}.") for name in (module, real))


def _is_of_torch(function: Any, home: str) -> bool:
    if isinstance(function, type):
        return issubclass(function, torch.nn.Module) and _is_below(home, "torch.nn.modules")
    name: str = getattr(function, "__name__", "_")
    if home in OPERATORS:
        return True
    if name.startswith("_") or name in NEVER:
        return False
    if any(_is_below(home, module) for module in CLASSES):  # they also have functions: hooks for all modules at once
        return "." in function.__qualname__
    if home == "torch":  # torch also exports functions that are not operators, import_ir_module() too
        return bool(getattr(torch._C._VariableFunctions, name, None) == function)
    return home in WRAPPERS or getattr(function, "__objclass__", None) is torch._C.TensorBase


def _is_of_the_program(home: str) -> bool:
    top = home.partition(".")[0]
    return top in MAIN or (top not in (*sys.stdlib_module_names, *NEVER_THE_PROGRAM) and _is_own(top))


@functools.lru_cache(maxsize=1024)
def _is_own(top: str) -> bool:
    """Whether all files of a top-level module are outside of the places of installed packages. It is not imported."""
    try:
        spec = getattr(sys.modules.get(top), "__spec__", None) or importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return False
    if spec is None:
        return False
    found = [spec.origin] if spec.has_location else [*(spec.submodule_search_locations or ())]
    places = [PurePath(place) for place in found if place]
    installed = (INSTALLED.intersection(place.parts) or any(map(place.is_relative_to, PYTHON)) for place in places)
    return bool(places) and not any(installed)


def _refuse(name: str, home: str, modules: Modules) -> None:
    allowed = [repr(each) if isinstance(each, str) else f"FunctionSet.{each.name}" for each in modules]
    module = home or name.partition(":")[0]
    advice = f"Options(modules=({', '.join([*allowed, repr(name)])},)) on this worker"
    # To allow a whole module of Python's or torch's would allow too much: `posix` runs commands.
    if module.partition(".")[0] not in (*sys.stdlib_module_names, *NEVER_THE_PROGRAM):
        advice = f"{advice} for this function alone, or {module!r} for all of its module"
    raise NotAllowed(
        f"{name!r} may not be called here: `modules` of the options allows {', '.join(allowed) or 'nothing'}; give "
        f"{advice}"
    )
