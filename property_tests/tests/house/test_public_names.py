"""The modules that users import: they load nothing, have every name that they list, and no other.

`mypy --strict` reads this file too. It reports a `type: ignore` that hides no error, so each misspelt name below must
be an error in a user's program.
"""

from __future__ import annotations

import importlib
import inspect
import runpy
import subprocess
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

import pytest

import trystate

TOOLS = Path(__file__).resolve().parents[3] / "tools"
MODULES = [f"trystate.{name}" for name in trystate.__all__ if name.islower() and not name.startswith("_")]

if TYPE_CHECKING:
    MISSPELT = (
        trystate.TryStateError,  # type: ignore[attr-defined]
        trystate.agent.lunch,  # type: ignore[attr-defined]
        trystate.autograd.bakward,  # type: ignore[attr-defined]
        trystate.check.chek,  # type: ignore[attr-defined]
        trystate.diagrams.rendr,  # type: ignore[attr-defined]
        trystate.language.transision,  # type: ignore[attr-defined]
        trystate.rendezvous.registr,  # type: ignore[attr-defined]
        trystate.rpc.rpc_snc,  # type: ignore[attr-defined]
        trystate.store.TCPStroe,  # type: ignore[attr-defined]
        trystate.systems.Rendevous,  # type: ignore[attr-defined]
        trystate.testing.state_mashine,  # type: ignore[attr-defined]
    )


def test_importing_a_public_module_loads_no_heavy_package() -> None:
    heavy = ("torch", "numpy", "dd", "rich", "transitions", "hypothesis", "pytest")
    for name in (*MODULES, "trystate.model.rendezvous"):
        program = f"import sys, {name}; print([m for m in {heavy!r} if m in sys.modules])"
        done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True)
        assert (name, done.stdout, done.stderr) == (name, "[]\n", "")


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_can_be_had_and_another_is_refused(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__
    assert {*module.__all__} <= {*dir(module)}
    assert [n for n in module.__all__ if getattr(module, n, None) is None] == []
    with pytest.raises(AttributeError, match="has no attribute 'no_such_name'"):
        _ = module.no_such_name


# The types of whole arguments and results of public functions: docs/api.md promises nothing about their parts.
WHOLE = {"Broken", "Exploration", "Explored", "Graph", "Incoming", "State", "Summary"}
# RPC's own modules call these on an agent.
INTERNAL = {"Agent.caused_by", "Agent.connect", "Agent.transmit", "Agent.wait"}


def public_functions(name: str) -> Iterator[tuple[str, FunctionType]]:
    """The functions, constructors and methods of a public module, without the steps of systems, with their names."""
    module = importlib.import_module(name)
    for public in sorted({*module.__all__} - WHOLE):
        value = getattr(module, public)
        if isinstance(value, FunctionType):
            yield public, value
        members = dir(value) if isinstance(value, type) and name != "trystate.systems" else ()
        for member in ("__init__", *(m for m in members if not m.startswith("_"))) if members else ():
            found = inspect.getattr_static(value, member)
            found = getattr(found, "fget", None) or getattr(found, "__func__", found)
            if isinstance(found, FunctionType) and f"{public}.{member}" not in INTERNAL:
                yield f"{public}.{member}", found


def types_in(hint: Any) -> Iterator[type]:
    """The classes that an annotation names."""
    if isinstance(hint, type):
        yield hint
    for part in (typing.get_origin(hint), *typing.get_args(hint)):
        for each in part if isinstance(part, list) else (part,):
            if each is not None:
                yield from types_in(each)


@pytest.mark.parametrize("name", MODULES)
def test_each_class_of_a_public_signature_can_be_imported(name: str) -> None:
    modules = [trystate, *map(importlib.import_module, MODULES)]
    names = {each: getattr(module, each) for module in modules for each in module.__all__}
    public = {id(getattr(module, each)) for module in modules for each in module.__all__}
    lacking = set()
    for where, function in public_functions(name):
        within = {**names, **inspect.unwrap(function).__globals__}  # some modules import names for type checkers only
        hints = typing.get_type_hints(function, within)
        for hint in hints.values():
            own = (each for each in types_in(hint) if each.__module__.startswith("trystate."))
            lacking |= {f"{where}: {each.__module__}.{each.__qualname__}" for each in own if id(each) not in public}
    assert lacking == set()


def test_a_name_that_was_public_warns_for_a_version() -> None:
    with pytest.warns(DeprecationWarning, match=r"trystate\.autograd\.messages is internal"):
        assert trystate.autograd.messages.Backward is trystate.autograd.Backward  # type: ignore[attr-defined]


@pytest.mark.skipif(not TOOLS.is_dir(), reason="needs a clone: a wheel holds packages only")
def test_public_names_arguments_and_sentences_equal_the_committed_list() -> None:
    """After an intended change: `python tools/public_names.py`. docs/api.md describes the allowed changes."""
    committed = (TOOLS / "public_names.txt").read_text(encoding="utf-8")
    now = runpy.run_path(str(TOOLS / "public_names.py"))["names"]()
    assert now.splitlines() == committed.splitlines(), "run python tools/public_names.py, and look at what changes"
