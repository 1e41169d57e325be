"""Which functions another worker may call: by default the program's own and torch's operators, and no other."""

from __future__ import annotations

import builtins
import collections
import importlib.util
import os
import pkgutil
import subprocess
import sys
import sysconfig
import types
from pathlib import Path
from typing import Any

import hypothesis
import numpy
import pytest
import torch

from trystate.impl.rpc.allowed import DEFAULT, SERVICES, Modules, check_name
from trystate.impl.rpc.functions import find, name_of
from trystate.model.errors import UsageError
from trystate.property_tests.support.rpc.worlds import world
from trystate.rpc import FunctionSet, NotAllowed, Options

LIMIT = 512
system = os.system  # this module imports it, so the program does


def offered(function: Any) -> Any:
    return function


def made_by_default(factory: Any = os.system) -> Any:
    return collections.defaultdict(factory)


OPERATORS = [
    torch.add, torch.ones, torch.tensor, torch.einsum, torch.Tensor.add, torch.Tensor.norm, torch.linalg.inv,
    torch.fft.fft, torch.special.erf, torch.nn.functional.relu, torch.nn.functional.linear, torch.sparse.mm,
    torch.nn.init.zeros_, torch.nn.Linear,
]  # fmt: skip
OTHERS = [
    os.system, os.remove, os.path.join, subprocess.run, subprocess.Popen, eval, exec, open, __import__, getattr,
    torch.load, torch.save, torch.hub.load, torch.from_file, torch.import_ir_module, torch.set_num_threads,
    torch.ops.load_library, torch.compile, torch.nn.Module.compile, torch.Tensor.new, numpy.load,
    hypothesis.find, pytest.main,
]  # fmt: skip


def name_of_any(function: Any) -> str:
    """The name that a hostile worker would send, without a check that the function has a name."""
    home = getattr(function, "__module__", None) or builtins.__name__
    return f"{home}:{getattr(function, '__qualname__', None) or function.__name__}"


@pytest.mark.parametrize("function", [*OPERATORS, offered], ids=name_of_any)
def test_the_default_allows_the_program_and_operators(function: Any) -> None:
    assert find(name_of(function), DEFAULT, LIMIT) == function


def test_the_program_has_another_name_in_a_spawned_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = types.ModuleType("__mp_main__")
    exec("import os\ndef offered(): pass", vars(program))
    monkeypatch.setitem(sys.modules, "__mp_main__", program)
    assert find("__mp_main__:offered", DEFAULT, LIMIT) is program.offered
    for name in ("__mp_main__:os.system", "__mp_main__x:offered"):
        with pytest.raises(NotAllowed):
            find(name, DEFAULT, LIMIT)


@pytest.mark.parametrize("function", OTHERS, ids=name_of_any)
def test_the_default_allows_nothing_else(function: Any) -> None:
    for name in {name_of_any(function), f"torch:{function.__name__}"}:
        with pytest.raises(NotAllowed, match=r"may not be called here|cannot be found here"):
            find(name, DEFAULT, LIMIT)


@pytest.mark.parametrize("name", [
    f"{__name__}:system", f"{__name__}:os.system", f"{__name__}:subprocess.run", "__main__:__builtins__.eval",
    f"{__name__}:Path", f"{__name__}:OTHERS.append", f"{__name__}:offered.__globals__.get", f"{__name__}:Kept.__new__",
    "torch:serialization.load", "torch:os.system", "torch:hub.load", "torch:classes",
    "torch.nn.modules.module:register_module_forward_hook", "torch._C:Node", "torch._C:TensorBase.__reduce_ex__",
    "trystate.impl.rpc.allowed:sys.exit",
])  # fmt: skip
def test_no_way_round_leads_to_another_function(name: str) -> None:
    with pytest.raises(NotAllowed):
        find(name, DEFAULT, LIMIT)


def test_no_module_of_python_is_the_programs() -> None:
    """Python's own tests are not in sys.stdlib_module_names, and can run anything."""
    places = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}
    names = {each.name for each in pkgutil.iter_modules([*places, *(f"{place}/lib-dynload" for place in places)])}
    assert {"test", "_testcapi", "os"} <= names
    for name in (*names, "test.support.script_helper", "torch.utils.cpp_extension", "trystate.impl.host.parent_death"):
        with pytest.raises(NotAllowed, match="may not be called here"):
            check_name(f"{name}:main", (FunctionSet.PROGRAM,))


def test_our_packages_and_torchs_are_never_the_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """`pip install -e` and `--target` put them next to a program's own modules."""
    spec = importlib.util.spec_from_file_location("torch", "/opt/libraries/torch/__init__.py")
    monkeypatch.setattr(torch, "__spec__", spec)
    for name in ("torch.serialization:load", "trystate.impl.host.parent_death:main"):
        with pytest.raises(NotAllowed, match="may not be called here"):
            find(name, DEFAULT, LIMIT)


class Kept(dict[str, int]):
    """A value of the program, with a method of its class and a function of Python's."""

    run = os.system

    def twice(self, number: int) -> int:
        return 2 * number


def test_methods_of_values_are_judged_as_functions_are(tmp_path: Path) -> None:
    path = str(tmp_path / "made")
    with world(2) as calls:
        tensor = calls[0].remote(1, torch.ones, (4,), None, None)
        assert tensor.rpc_sync().add(1).tolist() == [2.0] * 4
        with pytest.raises(NotAllowed, match=r"'numpy:ndarray\.tofile' may not be called here"):
            tensor.remote().numpy().rpc_sync().tofile(path)
        with pytest.raises(NotAllowed, match=r"'torch\.storage:UntypedStorage\.from_file' may"):
            tensor.remote().untyped_storage().rpc_sync().from_file(path)
        module = calls[0].remote(1, torch.nn.Linear, (2, 3), None, None)
        assert module.rpc_sync().forward(torch.ones(2)).shape == (3,)
        module.rpc_sync().zero_grad()
        kept = calls[0].remote(1, Kept, (), None, None)
        assert kept.rpc_sync().twice(2) == 4
        with pytest.raises(NotAllowed, match=r"'posix:Kept\.run' may not be called here"):
            kept.rpc_sync().run(f"touch {path}")
        plain = calls[0].remote(1, offered, ({"a": 1},), None, None)
        assert plain.rpc_sync().get("a") == 1
        text = plain.remote().setdefault("b", "{0.__globals__}")
        with pytest.raises(NotAllowed, match=r"str\.format' may not be called here"):
            text.rpc_sync().format(offered)
        counts = calls[0].remote(1, made_by_default, (), None, None)
        with pytest.raises(NotAllowed, match=r"'posix:defaultdict\.default_factory' may not be called here"):
            counts.rpc_sync().default_factory(f"touch {path}")
    assert not Path(path).exists()


def test_a_refused_module_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An import runs code, so the name is checked first."""
    installed = tmp_path / "site-packages"
    installed.mkdir()
    (installed / "installed_elsewhere.py").write_text("def serve(): return 1\n")
    monkeypatch.syspath_prepend(str(installed))
    advice = (
        r"'installed_elsewhere:serve',\)\) on this worker for this function alone, or 'installed_elsewhere' for all"
    )
    with pytest.raises(NotAllowed, match=advice):
        find("installed_elsewhere:serve", DEFAULT, LIMIT)
    assert "installed_elsewhere" not in sys.modules
    assert find("installed_elsewhere:serve", (*DEFAULT, "installed_elsewhere"), LIMIT)() == 1
    monkeypatch.setattr(torch, "__path__", [*torch.__path__, str(installed)])
    with pytest.raises(NotAllowed, match="may not be called here"):
        find("torch.installed_elsewhere:serve", DEFAULT, LIMIT)
    assert "torch.installed_elsewhere" not in sys.modules


@pytest.mark.parametrize("modules", [None, "mine", ["mine"], (1,)])
def test_a_wrong_tuple_of_modules_is_refused(modules: Any) -> None:
    with pytest.raises(UsageError, match=r"modules is .*: give a tuple .*\(FunctionSet.ANY,\) allows"):
        Options(modules=modules)


@pytest.mark.parametrize("modules", [DEFAULT, ("mine",), ()])
def test_the_parts_of_an_optimizer_may_always_be_called(modules: Modules) -> None:
    for name in SERVICES:
        assert callable(find(name, modules, LIMIT))
