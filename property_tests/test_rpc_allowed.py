"""Which functions another worker may call: by default the program's own and torch's operators, and no other."""

from __future__ import annotations

import builtins
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import hypothesis
import numpy
import pytest
import torch
from trystate.impl.rpc import FunctionSet, NotAllowed, Options
from trystate.impl.rpc.allowed import DEFAULT, SERVICES, Modules
from trystate.impl.rpc.functions import find, name_of
from trystate.model.errors import UsageError

from .rpc import functions as f
from .rpc.worlds import world

LIMIT = 512
system = os.system  # imported by this module, and so by the program


def offered(function: Any) -> Any:
    return function


OPERATORS = [
    torch.add, torch.ones, torch.tensor, torch.einsum, torch.Tensor.add, torch.Tensor.norm, torch.linalg.inv,
    torch.fft.fft, torch.special.erf, torch.nn.functional.relu, torch.nn.functional.linear, torch.sparse.mm,
    torch.nn.init.zeros_, torch.nn.Linear,
]  # fmt: skip
OTHERS = [
    os.system, os.remove, os.path.join, subprocess.run, subprocess.Popen, eval, exec, open, __import__, getattr,
    torch.load, torch.save, torch.hub.load, torch.from_file, torch.import_ir_module, torch.set_num_threads,
    torch.ops.load_library, torch.compile, numpy.load, hypothesis.find, pytest.main,
]  # fmt: skip


@pytest.mark.parametrize("function", [*OPERATORS, f.add, f.Counter, offered], ids=str)
def test_the_default_allows_the_program_and_operators(function: Any) -> None:
    assert find(name_of(function), DEFAULT, LIMIT) == function


def name_of_any(function: Any) -> str:
    """The name that a hostile worker would send, which asks nobody whether there is one."""
    home = getattr(function, "__module__", None) or builtins.__name__
    return f"{home}:{getattr(function, '__qualname__', None) or function.__name__}"


@pytest.mark.parametrize("function", OTHERS, ids=str)
def test_the_default_allows_nothing_else(function: Any) -> None:
    for name in {name_of_any(function), f"torch:{function.__name__}"}:
        with pytest.raises(NotAllowed, match=r"may not be called here|is not to be found here"):
            find(name, DEFAULT, LIMIT)


@pytest.mark.parametrize("name", [
    f"{__name__}:system", f"{__name__}:os.system", f"{__name__}:subprocess.run", "__main__:__builtins__.eval",
    "torch:serialization.load", "torch:os.system", "torch:hub.load", "torch:classes",
    "torch.nn.modules.module:register_module_forward_hook", "torch._C:Node", "torch._C:TensorBase.__reduce_ex__",
    "trystate.impl.rpc.allowed:sys.exit",
])  # fmt: skip
def test_no_way_round_leads_to_another_function(name: str) -> None:
    with pytest.raises(NotAllowed):
        find(name, DEFAULT, LIMIT)


def test_a_refused_module_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An import runs code: the name is judged first."""
    installed = tmp_path / "site-packages"
    installed.mkdir()
    (installed / "installed_elsewhere.py").write_text("def serve(): return 1\n")
    monkeypatch.syspath_prepend(str(installed))
    with pytest.raises(NotAllowed, match=r"'installed_elsewhere',\)\) on this worker"):
        find("installed_elsewhere:serve", DEFAULT, LIMIT)
    assert "installed_elsewhere" not in sys.modules
    assert find("installed_elsewhere:serve", (*DEFAULT, "installed_elsewhere"), LIMIT)() == 1


def test_the_text_of_a_refusal_is_the_option_that_allows_it() -> None:
    with pytest.raises(NotAllowed) as caught:
        find("json:loads", ("mine",), LIMIT)
    assert "Options(modules=('mine', 'json',)) on this worker, or 'json:loads' for this function alone" in str(
        caught.value
    )
    for modules in (("mine", "json"), ("json:loads",), (FunctionSet.ANY,)):
        assert find("json:loads", modules, LIMIT)("[1]") == [1]
    with pytest.raises(NotAllowed):
        find("json:dumps", ("json:loads",), LIMIT)


def test_a_peer_cannot_run_a_command_by_default(tmp_path: Path) -> None:
    """On real connections."""
    made = tmp_path / "made"
    with world(2) as calls:
        with pytest.raises(NotAllowed, match="'posix:system' may not be called here"):
            calls[0].sync(1, os.system, (f"touch {made}",), None, None)
        with pytest.raises(NotAllowed, match="'posix:system' may not be called here"):
            calls[0].sync(1, f.applied, (os.system, f"touch {made}"), None, None)
    assert not made.exists()
    with world(2, Options(modules=(FunctionSet.ANY,), arena_bytes=0)) as calls:
        assert calls[0].sync(1, os.system, (f"touch {made}",), None, None) == 0
    assert made.exists()


@pytest.mark.parametrize("modules", [None, "mine", ["mine"], (1,)])
def test_what_is_no_tuple_of_modules_is_refused(modules: Any) -> None:
    with pytest.raises(UsageError, match=r"modules is .*: give a tuple .*\(FunctionSet.ANY,\) allows"):
        Options(modules=modules)


@pytest.mark.parametrize("modules", [DEFAULT, ("mine",), ()])
def test_the_parts_of_an_optimizer_may_always_be_called(modules: Modules) -> None:
    for name in SERVICES:
        assert callable(find(name, modules, LIMIT))
