"""The tables of init_process_group and of rendezvous URLs agree with torch's functions and ours in every context."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the functions are torch's")

import torch.distributed as dist
from torch.distributed.constants import default_pg_timeout
from trystate.impl.store import urls
from trystate.impl.store.tcp_server import TCPStoreServer
from trystate.model.groups.initialisation import INITIALISATION
from trystate.model.groups.vocabulary import Edition
from trystate.model.language import DecisionTable
from trystate.property_tests.adapters.seed_store import urls as urls_1_9
from trystate.property_tests.adapters.torch_groups import initialisation
from trystate.property_tests.adapters.torch_rendezvous.conformance import gaps
from trystate.property_tests.adapters.torch_rendezvous.contexts import Observed, compare
from trystate.property_tests.support.mutants import planted, rewritten
from trystate.property_tests.support.rendezvous.tables import unnoticed

from trystate import registry

torch_module = initialisation.rendezvous
SEED, TORCH, TRYSTATE = Edition.SEED, Edition.TORCH, Edition.TRYSTATE
# table, contexts
COMPARED = {
    (SEED, "rendezvous_url"): 60, (SEED, "env_url"): 864, (SEED, "tcp_url"): 72,
    (TORCH, "init_process_group"): 432, (TORCH, "rendezvous_url"): 60,
    (TORCH, "env_url"): 864, (TORCH, "tcp_url"): 72, (TORCH, "file_url"): 12,
    (TRYSTATE, "env_url"): 1728, (TRYSTATE, "tcp_url"): 432, (TRYSTATE, "file_url"): 12,
}  # fmt: skip
compared = pytest.mark.parametrize(("edition", "name"), COMPARED, ids=str)


@cache
def observed(edition: Edition) -> dict[str, Observed]:
    found = initialisation.handlers(edition)
    if edition is not TRYSTATE:
        found |= {"rendezvous_url": initialisation.merge(edition)}
    if edition is TORCH:
        found |= {"init_process_group": initialisation.init()}
    return found


def differences(table: DecisionTable, seen: Observed) -> list[str]:
    """A context that is decided otherwise, a row or valuation that no context reaches."""
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


def test_every_table_is_compared() -> None:
    ours = {(TRYSTATE, name) for name, table in INITIALISATION[TRYSTATE].items()
            if table is not INITIALISATION[TORCH].get(name)}  # fmt: skip
    assert {*COMPARED} == ours | {(of, name) for of in (SEED, TORCH) for name in INITIALISATION[of]}


ENV, MADE = torch_module._env_rendezvous_handler, torch_module._create_c10d_store
MUTANTS = {
    "another variable": (ENV, '_get_env_or_raise("RANK")', '_get_env_or_raise("WORLD_SIZE")'),
    "the variable first": (ENV, 'if "rank" in query_dict:', 'if "RANK" not in os.environ:'),
    "a daemon elsewhere": (MADE, "rank == 0", "rank == 1"),
    "no agent": (MADE, "if _torchelastic_use_agent_store()", "if False"),
    "no rank is needed": (torch_module._file_rendezvous_handler, 'if "rank" not in query_dict', "if False"),
    "both are merged": (torch_module._rendezvous_helper, 'if "rank" in query_dict or', "if False and"),
    "a store and a URL": (dist.init_process_group, "(store is None) or (init_method is None)", "True"),
    "no rank with a store": (dist.init_process_group, "rank >= 0", "rank >= -1"),
}
MUTANTS_OF_1_9: dict[str, tuple[Callable[..., Any], str, str, str]] = {
    "a daemon elsewhere": (urls_1_9.tcp, "serves=rank == 0", "serves=rank == 1", "tcp_url"),
    "a host that is not needed": (urls_1_9.tcp, "assert parts.hostname is not None", "assert True", "tcp_url"),
    "no agent": (urls_1_9.env, '== "True"', '== "False"', "env_url"),
    "no prefix": (urls_1_9.env, "False, OF_WORKERS", 'False, ""', "env_url"),
    "the URL first": (urls_1_9.rendezvous, "_query(url) | said", "said | _query(url)", "rendezvous_url"),
}


@pytest.mark.parametrize("name", MUTANTS_OF_1_9)
def test_a_mistake_in_the_program_of_torch_1_9_is_noticed(name: str) -> None:
    function, right, wrong, table = MUTANTS_OF_1_9[name]
    with planted(rewritten(function, right, wrong)):
        seen = {**initialisation.handlers(SEED), "rendezvous_url": initialisation.merge(SEED)}[table]
    assert differences(INITIALISATION[SEED][table], seen)


OBSERVERS: dict[object, Callable[[], dict[str, Observed]]] = {
    dist.init_process_group: lambda: {"init_process_group": initialisation.init()},
    torch_module._rendezvous_helper: lambda: {"rendezvous_url": initialisation.merge()},
}


@pytest.mark.parametrize("name", MUTANTS)
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


HALF_AN_HOUR = timedelta(minutes=30)


class _Told(Exception):
    """The timeout that a handler was told."""


def told_timeout(init: Callable[..., None], **given: Any) -> timedelta:
    """The timeout that init_process_group hands to the handler of its URL."""

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


def test_a_group_that_gives_up_after_another_time_is_noticed() -> None:
    function, right = dist.distributed_c10d._get_default_timeout, "else:\n        return default_pg_timeout"
    with planted(rewritten(function, right, f"{right} * 2")):
        assert told_timeout(dist.init_process_group) == 2 * HALF_AN_HOUR


def test_a_store_of_a_url_waits_for_30_minutes_unless_told(tmp_path: Path) -> None:
    """torch's handler of file:// leaves its store's 5 minutes, which init_process_group sets to the group's timeout."""
    with TCPStoreServer() as server:
        tcp, file = f"trystate-tcp://127.0.0.1:{server.port}?hosted=0&", f"trystate-file://{tmp_path}/store?"
        for url in (tcp, file):
            with next(torch_module.rendezvous(f"{url}rank=0&world_size=1"))[0] as store:
                assert store.timeout == HALF_AN_HOUR
    assert next(torch_module.rendezvous("tcp://127.0.0.1:0?rank=0&world_size=1"))[0].timeout == HALF_AN_HOUR


def test_the_command_line_has_the_tables() -> None:
    for edition, tables in INITIALISATION.items():
        assert all(registry.TABLES[edition.name][name] is table for name, table in tables.items())
