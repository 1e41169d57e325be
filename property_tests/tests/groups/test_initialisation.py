"""The tables of init_process_group and of rendezvous URLs agree with torch's functions and ours in every context."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the functions are torch's")

import torch
import torch.distributed as dist
from torch.distributed import Backend
from torch.distributed.constants import default_pg_timeout

from trystate import registry
from trystate.impl.store import urls
from trystate.impl.store.tcp_server import TCPStoreServer
from trystate.model.groups.initialisation import INITIALISATION, NEW_GROUP
from trystate.model.groups.vocabulary import Edition
from trystate.model.language import DecisionTable
from trystate.property_tests.adapters.torch_groups import backends, initialisation
from trystate.property_tests.adapters.torch_rendezvous.conformance import gaps
from trystate.property_tests.adapters.torch_rendezvous.contexts import Observed, compare
from trystate.property_tests.support.mutants import planted, rewritten
from trystate.property_tests.support.rendezvous.tables import unnoticed

torch_module = initialisation.rendezvous
TORCH, TRYSTATE = Edition.TORCH, Edition.TRYSTATE
# table, contexts
COMPARED = {
    (TORCH, "init_process_group"): 432, (TORCH, "new_process_group"): 648, (TORCH, "rendezvous_url"): 60,
    (TORCH, "env_url"): 864, (TORCH, "tcp_url"): 72, (TORCH, "file_url"): 12,
    (TRYSTATE, "env_url"): 1728, (TRYSTATE, "tcp_url"): 432,
}  # fmt: skip
OF_2_13 = pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="the table is of torch 2.13")
LATER = {(TORCH, "new_process_group"): OF_2_13}  # the table is of one release
compared = pytest.mark.parametrize(
    ("edition", "name"), [pytest.param(*key, marks=LATER.get(key, ())) for key in COMPARED], ids=str
)


@cache
def observed(edition: Edition) -> dict[str, Observed]:
    found = initialisation.handlers(edition)
    if edition is TORCH:
        found |= {"init_process_group": initialisation.init(), "new_process_group": backends.new_group()}
        found |= {"rendezvous_url": initialisation.merge()}
    return found


def differences(table: DecisionTable, seen: Observed) -> list[str]:
    """The contexts in which the decisions differ, and the rows or valuations that no context reaches."""
    found = compare(table, seen)
    return [*found.disagreements, *gaps(table.name, found)]


@compared
def test_a_table_says_what_the_functions_do_in_every_context(edition: Edition, name: str) -> None:
    seen = observed(edition)[name]
    assert differences(INITIALISATION[edition][name], seen) == []
    assert seen.contexts == COMPARED[edition, name]


@compared
def test_every_wrong_row_is_noticed(edition: Edition, name: str) -> None:
    assert unnoticed(INITIALISATION[edition][name], observed(edition)[name]) == []


def test_every_table_of_torch_2_and_ours_is_compared() -> None:
    ours = {(TRYSTATE, name) for name, table in INITIALISATION[TRYSTATE].items()
            if table is not INITIALISATION[TORCH].get(name)}  # fmt: skip
    assert {*COMPARED} == ours | {(TORCH, name) for name in INITIALISATION[TORCH]}


HELPER = dist.distributed_c10d._new_process_group_helper
ENV, MADE = torch_module._env_rendezvous_handler, torch_module._create_c10d_store
MUTANTS = {
    "another variable": (ENV, '_get_env_or_raise("RANK")', '_get_env_or_raise("WORLD_SIZE")'),
    "another rank serves": (MADE, "rank == 0", "rank == 1"),
    "the agent's store is not used": (MADE, "if _torchelastic_use_agent_store()", "if False"),
    "a rank is optional": (torch_module._file_rendezvous_handler, 'if "rank" not in query_dict', "if False"),
    "a store and a URL": (dist.init_process_group, "(store is None) or (init_method is None)", "True"),
    "outsiders are members": (HELPER, "if global_rank not in global_ranks_in_group", "if False"),
    "a name twice": (HELPER, "if group_name in _world.pg_names.values()", "if False"),
    "options for XCCL": (HELPER, "= ProcessGroupXCCL.Options()", "= backend_options or ProcessGroupXCCL.Options()"),
    "no numbers for gloo": (HELPER, "if backend_str == Backend.GLOO and not", "if False and not"),
    "the keys of all devices": (HELPER, 'PrefixStore(f"{device}/", prefix_store)', "prefix_store"),
}
OBSERVERS: dict[object, Callable[[], dict[str, Observed]]] = {
    HELPER: lambda: {"new_process_group": backends.new_group()},
    dist.init_process_group: lambda: {"init_process_group": initialisation.init()},
    torch_module._rendezvous_helper: lambda: {"rendezvous_url": initialisation.merge()},
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=OF_2_13 if each[0] is HELPER else ()) for name, each in MUTANTS.items()]
)
def test_a_mistake_in_torch_is_noticed(name: str) -> None:
    function, right, wrong = MUTANTS[name]
    with planted(rewritten(function, right, wrong)):
        observe = OBSERVERS.get(function)
        seen = initialisation.handlers(TORCH) if observe is None else observe()
        assert any(differences(INITIALISATION[TORCH][table], seen[table]) for table in seen)


def test_a_handler_of_ours_that_always_serves_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(urls, "agent_serves", lambda port: False)
    seen = initialisation.handlers(TRYSTATE)
    assert all(differences(INITIALISATION[TRYSTATE][name], seen[name]) for name in ("env_url", "tcp_url"))


PAGE = Path(__file__).parents[3] / "docs" / "groups.md"
PLUGIN = "of a plug-in"


def row_of_page(backend: str) -> str:
    """A backend's row: its devices and defaults in the installed torch, and the decision of the table."""
    registered = Backend._plugins.get(backend.upper())
    held = dict.fromkeys((atom.name for atom in NEW_GROUP.atoms), False)
    held |= {"plugin": backend == PLUGIN or registered is not None, backend: True}
    held |= {"extended": registered is not None and registered.extended_api}
    made, without = (NEW_GROUP.decide({**held, "built": built}).value for built in (True, False))
    defaults = [device for device, name in Backend.default_device_backend_map.items() if name == backend]
    cells = (
        backend if backend == PLUGIN else f"`{backend}`",
        ", ".join(Backend.backend_capability.get(backend, ["as registered"])),
        ", ".join(defaults),
        made,
        without if without != made else "",
    )
    return "| " + " | ".join(cells) + " |"


@OF_2_13
def test_the_page_says_what_makes_each_backend_of_torch() -> None:
    assert "FAKE" in Backend._plugins, "torch's module for tests is imported here"
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith(("| `", "| of"))]
    wanted = [*(name for name in Backend.backend_list if name != Backend.UNDEFINED), PLUGIN]
    first = rows.index(row_of_page(wanted[0]))
    assert rows[first : first + len(wanted)] == [row_of_page(name) for name in wanted]


HALF_AN_HOUR = timedelta(minutes=30)


class _Told(Exception):
    """Carries the timeout that a handler received."""


def told_timeout(init: Callable[..., None], **given: Any) -> timedelta:
    """The timeout that init_process_group passes to the handler of its URL."""

    def meet(url: str, timeout: timedelta, **_: Any) -> Iterator[Any]:
        raise _Told(timeout)
        yield

    with pytest.MonkeyPatch.context() as patch, pytest.raises(_Told) as told:
        patch.setitem(torch_module._rendezvous_handlers, "told", meet)
        init("gloo", "told://", rank=0, world_size=1, **given)
    found: timedelta = told.value.args[0]
    return found


def test_init_process_group_gives_up_after_30_minutes_unless_told() -> None:
    assert default_pg_timeout == HALF_AN_HOUR
    assert told_timeout(dist.init_process_group) == HALF_AN_HOUR
    assert told_timeout(dist.init_process_group, timeout=timedelta(seconds=7)) == timedelta(seconds=7)


def test_a_store_of_a_url_waits_for_30_minutes_unless_told() -> None:
    """torch's handler of file:// leaves its store's 5 minutes, which init_process_group sets to the group's timeout."""
    with TCPStoreServer() as server:
        url = f"trystate-tcp://127.0.0.1:{server.port}?hosted=0&rank=0&world_size=1"
        with next(torch_module.rendezvous(url))[0] as store:
            assert store.timeout == HALF_AN_HOUR
    assert next(torch_module.rendezvous("tcp://127.0.0.1:0?rank=0&world_size=1"))[0].timeout == HALF_AN_HOUR


def test_the_command_line_has_the_tables() -> None:
    for edition, tables in INITIALISATION.items():
        assert all(registry.TABLES[edition.name][name] is table for name, table in tables.items())
