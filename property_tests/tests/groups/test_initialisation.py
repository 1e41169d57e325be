"""The tables of init_process_group and of rendezvous URLs agree with torch's functions and ours in every context."""

from __future__ import annotations

from datetime import timedelta
from functools import cache
from typing import Any
from unittest.mock import Mock

import pytest

pytest.importorskip("torch", reason="the functions are torch's")

import torch.distributed as dist
from torch.distributed.constants import default_pg_timeout

from trystate import registry
from trystate.impl.store import urls
from trystate.impl.store.tcp_server import TCPStoreServer
from trystate.model.groups.initialisation import INITIALISATION
from trystate.model.groups.vocabulary import Edition
from trystate.model.language import DecisionTable
from trystate.property_tests.adapters.torch_groups import initialisation
from trystate.property_tests.adapters.torch_rendezvous.conformance import gaps
from trystate.property_tests.adapters.torch_rendezvous.contexts import Observed, compare
from trystate.property_tests.support.mutants import planted, rewritten
from trystate.property_tests.support.rendezvous.tables import unnoticed

torch_module = initialisation.rendezvous
TORCH, TRYSTATE = Edition.TORCH, Edition.TRYSTATE
# table, contexts
COMPARED = {
    (TORCH, "init_process_group"): 432, (TORCH, "rendezvous_url"): 60, (TORCH, "env_url"): 864,
    (TORCH, "tcp_url"): 72, (TORCH, "file_url"): 12,
    (TRYSTATE, "env_url"): 1728, (TRYSTATE, "tcp_url"): 432,
}  # fmt: skip
compared = pytest.mark.parametrize(("edition", "name"), COMPARED, ids=str)


@cache
def observed(edition: Edition) -> dict[str, Observed]:
    found = initialisation.handlers(edition)
    if edition is TORCH:
        found |= {"init_process_group": initialisation.init(), "rendezvous_url": initialisation.merge()}
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


ENV, MADE = torch_module._env_rendezvous_handler, torch_module._create_c10d_store
MUTANTS = {
    "another variable": (ENV, '_get_env_or_raise("RANK")', '_get_env_or_raise("WORLD_SIZE")'),
    "another rank serves": (MADE, "rank == 0", "rank == 1"),
    "the agent's store is not used": (MADE, "if _torchelastic_use_agent_store()", "if False"),
    "a rank is optional": (torch_module._file_rendezvous_handler, 'if "rank" not in query_dict', "if False"),
    "a store and a URL": (dist.init_process_group, "(store is None) or (init_method is None)", "True"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mistake_in_torch_is_noticed(name: str) -> None:
    function, right, wrong = MUTANTS[name]
    with planted(rewritten(function, right, wrong)):
        seen = observed.__wrapped__(TORCH)
        assert any(differences(INITIALISATION[TORCH][table], seen[table]) for table in seen)


def test_a_handler_of_ours_that_always_serves_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(urls, "agent_serves", lambda port: False)
    seen = initialisation.handlers(TRYSTATE)
    assert all(differences(INITIALISATION[TRYSTATE][name], seen[name]) for name in ("env_url", "tcp_url"))


HALF_AN_HOUR = timedelta(minutes=30)


def told_timeout(**given: Any) -> Any:
    """The timeout that init_process_group passes to the handler of its URL."""
    meet = Mock(side_effect=ZeroDivisionError)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setitem(torch_module._rendezvous_handlers, "told", meet)
        dist.init_process_group("gloo", "told://", rank=0, world_size=1, **given)
    return meet.call_args.kwargs["timeout"]


def test_init_process_group_gives_up_after_30_minutes_unless_told() -> None:
    assert default_pg_timeout == HALF_AN_HOUR
    assert told_timeout() == HALF_AN_HOUR
    assert told_timeout(timeout=timedelta(seconds=7)) == timedelta(seconds=7)


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
