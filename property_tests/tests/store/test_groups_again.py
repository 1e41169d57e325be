"""Process groups that are destroyed and made again at one URL: real gloo groups, each rank in its own process.

The server ends with the group, as torch's does. In addition, no rank reads a key of an older group, in any order of the
ranks' arrivals, departures and deaths.
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed

from trystate import rendezvous
from trystate.impl.store import base, generations
from trystate.impl.store.tcp_server import TCPStoreServer
from trystate.model.errors import UsageError
from trystate.property_tests.adapters.forked import Program
from trystate.property_tests.adapters.torch_store.server import free_port
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.property_tests.support.stores import group_member
from trystate.property_tests.support.stores.client.common import until
from trystate.store import ConnectionLost, HashStore, StoreTimeout

dist: Any = torch.distributed  # its stubs lack most names
SECONDS = 300.0 if NIGHTLY else 120.0  # limit for all groups of a test
SOON = timedelta(seconds=20)
HOST = "127.0.0.1"


@contextlib.contextmanager
def meeting_place(kind: str, folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """A URL where groups meet, and the environment that it needs."""
    port = free_port()
    match kind:
        case "tcp":
            yield f"trystate-tcp://{HOST}:{port}", {}
        case "env":
            yield "trystate-env://", {"MASTER_ADDR": HOST, "MASTER_PORT": str(port)}
        case "file":
            yield f"trystate-file://{folder}/store", {}
        case _:
            with TCPStoreServer() as server:
                yield f"trystate-tcp://{HOST}:{server.port}?hosted=0", {}


@pytest.mark.parametrize("kind", ["tcp", "env", "file", "hosted"])
def test_successive_groups_meet_no_address_of_an_older_group(kind: str, tmp_path: Path) -> None:
    with meeting_place(kind, tmp_path) as (url, variables):
        told = {"url": url, "sizes": [2] * 4, "pause": 0.15, "seed": 1}
        running = [
            Program(
                tmp_path / f"log.{rank}", group_member.again, json.dumps({**told, "rank": rank}), variables=variables
            )
            for rank in range(2)
        ]
        try:
            assert [one.said for one in running if one.ends(SECONDS)] == []
        finally:
            for one in running:
                one.kill()


def group_of_one(url: str, backend: str = "gloo") -> None:
    dist.init_process_group(backend, init_method=url, rank=0, world_size=1, timeout=SOON)


def listens(port: int) -> bool:
    try:
        socket.create_connection((HOST, port)).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.fixture
def url() -> str:
    rendezvous.register()
    return f"trystate-tcp://{HOST}:{free_port()}"


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def test_the_server_ends_with_the_group_and_nothing_of_it_is_left(url: str) -> None:
    open_before = len(base._LIVING)
    for _ in range(2):
        group_of_one(url)
        try:
            dist.all_reduce(torch.ones(1), group=dist.new_group([0]))
            assert listens(port_of(url))
        finally:
            dist.destroy_process_group()
        assert not listens(port_of(url))
        assert len(base._LIVING) == open_before


def test_a_group_that_could_not_be_made_leaves_no_server(url: str) -> None:
    open_before = len(base._LIVING)
    with pytest.raises((AssertionError, RuntimeError, ValueError)):  # torch makes the store before it raises
        group_of_one(url, "ucc")
    until(lambda: not listens(port_of(url)))
    assert len(base._LIVING) == open_before


# Agreement of the ranks; each rank is a thread of this process.


def meet(below: HashStore, rank: int, size: int = 2, seconds: float = 20.0, **more: Any) -> generations.Group:
    return generations.meet(lambda within: below.clone(), rank, size, timedelta(seconds=seconds), **more)


def met(below: HashStore, threads: ThreadPoolExecutor) -> str:
    with contextlib.ExitStack() as stores:
        found = [stores.enter_context(each.result()) for each in [threads.submit(meet, below, r) for r in (0, 1)]]
        found[0].set("address", "of this group")
        assert found[1].get("address") == b"of this group"
        assert found[0].prefix == found[1].prefix
        return str(found[0].prefix)


@pytest.mark.parametrize("early", [0, 1])
def test_a_rank_that_gave_up_names_the_missing_and_misses_the_next_group(below: HashStore, early: int) -> None:
    with ThreadPoolExecutor(2) as threads:
        with pytest.raises(
            StoreTimeout, match=rf"after 0\.1 s the group of 2 is not complete, missing: rank {1 - early} "
        ):
            meet(below, early, seconds=0.1)
        met(below, threads)


def test_a_rank_that_returns_at_the_release_finds_its_list(below: HashStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The arrival of its earlier call completed the barrier. The list with its own token appears during its arrival."""
    arrive = HashStore._arrive

    def formed_now(store: HashStore, *rest: Any) -> bool:
        below.set("groups-of-2/formed/0", " ".join(below.get(f"groups-of-2/here/0/{rank}").decode() for rank in (0, 1)))
        return arrive(store, *rest)

    below.set("groups-of-2/here/0/0", "of-rank-0")
    monkeypatch.setattr(HashStore, "_arrive", formed_now)
    with meet(below, 1, seconds=5.0) as store:
        assert store.prefix == "group-0-of-2"


def test_a_rank_that_lost_its_connection_after_forming_is_in_the_group(
    below: HashStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to the first call was lost. The second call has the same token."""
    lost, agreed = [0], generations._agreed

    def lose_the_first(store: HashStore, rank: int, *rest: Any) -> tuple[str, list[str]]:
        prefix = agreed(store, rank, *rest)
        if rank == 0 and not lost[0]:
            lost[0] = 1
            raise ConnectionLost("the server hung up")
        return prefix

    monkeypatch.setattr(generations, "_agreed", lose_the_first)
    with ThreadPoolExecutor(2) as threads:
        assert met(below, threads) == "group-0-of-2"
    assert lost == [1]


# Two jobs, and a rank that tries again.


def test_ranks_of_two_jobs_are_no_group(below: HashStore) -> None:
    with ThreadPoolExecutor(2) as threads:
        calls = [threads.submit(meet, below, rank, job=f"job {rank} at port 1") for rank in (0, 1)]
        for call in calls:
            with pytest.raises(
                generations.TwoJobs, match=r"rank 0 belongs to job 'job 0 at port 1', but rank 1 to job 'job 1"
            ):
                call.result()
        calls = [threads.submit(meet, below, rank, job=name) for rank, name in ((0, "job"), (1, ""))]
        assert {call.result().prefix for call in calls} == {"group-1-of-2"}, "one of them has no agent"


def test_a_rank_whose_member_lives_is_refused_to_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two jobs at one URL: the ranks of the second job are refused while the first job has its group."""
    rendezvous.register()
    monkeypatch.setattr(generations, "HELD_SECONDS", 0.2)
    with meeting_place("hosted", tmp_path) as (url, _), contextlib.ExitStack() as ends:
        members = [Program(tmp_path / f"log.{rank}", group_member.meet, url, rank, 2, True) for rank in (0, 1)]
        for member in members:
            ends.callback(member.kill)
        until(lambda: all("group-0-of-2" in member.said for member in members), 60.0)
        for rank, member in enumerate(members):
            why = rf"process {member.pid} on .* is rank {rank} of a group of 2 .*\?prefix=NAME"
            with pytest.raises(generations.TwoJobs, match=why):
                next(dist.rendezvous(url, rank, 2, timeout=timedelta(seconds=5)))
            member.kill()
            member.process.join()
        with ThreadPoolExecutor(2) as threads:
            calls = [threads.submit(next, dist.rendezvous(url, rank, 2, timeout=SOON)) for rank in (0, 1)]
            for call in calls:
                with call.result()[0] as store:
                    assert store.prefix == "group-1-of-2"


@pytest.mark.parametrize("numbers", [(3, 0), (0, 1), (2, 2)])
def test_a_group_has_one_name_for_all_of_its_ranks(below: HashStore, numbers: tuple[int, int]) -> None:
    with ThreadPoolExecutor(2) as threads, contextlib.ExitStack() as stores:
        calls = [threads.submit(meet, below, rank, number=numbers[rank]) for rank in (0, 1)]
        found = [stores.enter_context(call.result()) for call in calls]
        assert [each.agree(number) for each, number in zip(found, numbers, strict=True)] == [max(numbers)] * 2
        for one, other in ((0, 1), (1, 0)):
            found[one].set(f"default_pg/{numbers[one]}//cpu//0/{one}", "address")
            assert found[other].get(f"default_pg/{numbers[other]}//cpu//0/{one}") == b"address"


def test_a_port_that_another_program_keeps_is_refused_before_the_timeout(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generations, "HANDOVER_SECONDS", 0.2)
    with socket.create_server((HOST, port_of(url))), pytest.raises(UsageError, match="stop the process that uses it"):
        next(dist.rendezvous(url, 0, 1, timeout=timedelta(minutes=5)))
