"""Groups that meet at URLs: torch's grammar, the stores of each scheme, and errors; and groups that are made again.

Real gloo groups have each rank in its own process. The server ends with the group, as torch's does. In addition, no
rank reads a key of an older group, in any order of the ranks' arrivals, departures and deaths.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed
from torch.distributed.rendezvous import rendezvous as torch_rendezvous

from trystate import rendezvous
from trystate.impl.store import base, generations, urls
from trystate.impl.store.errors import InvalidArgument, NotSupported
from trystate.impl.store.tcp_server import TCPStoreServer
from trystate.impl.store.urls import HANDLERS, env_rendezvous
from trystate.model.errors import UsageError
from trystate.property_tests.adapters.forked import Program
from trystate.property_tests.adapters.torch_store.server import free_port
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.property_tests.support.stores import group_member
from trystate.property_tests.support.stores.client.common import until
from trystate.store import ConnectionLost, HashStore, PrefixStore, StoreTimeout, TCPStore

dist: Any = torch.distributed  # its stubs lack most names
SECONDS = 300.0 if NIGHTLY else 120.0  # limit for all groups of a test
SOON = timedelta(seconds=20)
HOST = "127.0.0.1"


@contextlib.contextmanager
def meeting_place(kind: str) -> Iterator[tuple[str, dict[str, str]]]:
    """A URL where groups meet, and the environment that it needs."""
    port = free_port()
    match kind:
        case "tcp":
            yield f"trystate-tcp://{HOST}:{port}", {}
        case "env":
            yield "trystate-env://", {"MASTER_ADDR": HOST, "MASTER_PORT": str(port)}
        case _:
            with TCPStoreServer() as server:
                yield f"trystate-tcp://{HOST}:{server.port}?hosted=0", {}


@pytest.mark.parametrize("kind", ["tcp", "env", "hosted"])
def test_successive_groups_meet_no_address_of_an_older_group(kind: str, tmp_path: Path) -> None:
    with meeting_place(kind) as (url, variables), contextlib.ExitStack() as ends:
        jobs = [{"url": url, "sizes": [2] * 4, "pause": 0.15, "seed": 1, "rank": rank} for rank in range(2)]
        running = [
            ends.enter_context(Program(tmp_path / f"log.{n}", group_member.again, json.dumps(job), variables=variables))
            for n, job in enumerate(jobs)
        ]
        assert [one.said for one in running if one.ends(SECONDS)] == []


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
    with meeting_place("hosted") as (url, _), contextlib.ExitStack() as ends:
        logs = (tmp_path / "log.0", tmp_path / "log.1")
        members = [ends.enter_context(Program(log, group_member.meet, url, k, 2)) for k, log in enumerate(logs)]
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


torch_module: Any = importlib.import_module("torch.distributed.rendezvous")  # not its function of that name
VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "TORCHELASTIC_USE_AGENT_STORE")
WITHIN = timedelta(seconds=10)


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with TCPStoreServer() as server:
        yield server.port


def yielded(url: str, *given: Any, **more: Any) -> tuple[Any, int, int]:
    """The store, rank and size that torch's rendezvous yields for a URL."""
    found: tuple[Any, int, int] = next(torch_rendezvous(url, *given, timeout=WITHIN, **more))
    return found


@contextlib.contextmanager
def group_of(*urls: str, given: Sequence[tuple[int, int]] = ()) -> Iterator[list[tuple[Any, int, int]]]:
    """The stores, ranks and sizes of a group, from one URL for each rank, or from one with `given` pairs."""
    calls: list[tuple[Any, ...]] = [(urls[0], *each) for each in given] or [(url,) for url in urls]
    with contextlib.ExitStack() as stores, ThreadPoolExecutor(len(calls)) as threads:
        triplets = [each.result() for each in [threads.submit(yielded, *call) for call in calls]]
        for store, _, _ in triplets:
            stores.enter_context(store)
        yield triplets


@pytest.mark.parametrize("scheme", ["tcp", "trystate-tcp"])
def test_torch_refuses_a_scheme_that_is_registered_and_keeps_its_handler(scheme: str, port: int) -> None:
    with pytest.raises(RuntimeError, match=f"handler for {scheme}:// already registered"):
        torch_module.register_rendezvous_handler(scheme, print)
    place = f"127.0.0.1:{port if scheme == 'trystate-tcp' else free_port()}"  # until 2.6, torch refuses port 0
    store, rank, world_size = yielded(f"{scheme}://{place}?rank=0&world_size=1" + "&hosted=0" * (scheme != "tcp"))
    with contextlib.closing(store) if scheme != "tcp" else contextlib.nullcontext():
        assert (rank, world_size, store.check(["k"])) == (0, 1, False)


def test_a_scheme_of_ours_that_somebody_else_has_registered_is_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call of `register` raises torch's error, and the scheme keeps its handler."""
    known: dict[str, Any] = {"trystate-tcp": print}
    monkeypatch.setattr(torch_module, "_rendezvous_handlers", known)
    monkeypatch.setattr(urls, "_registered", set())
    for _ in range(2):
        with pytest.raises(RuntimeError, match="handler for trystate-tcp:// already registered"):
            rendezvous.register()
    assert known == {"trystate-env": env_rendezvous, "trystate-tcp": print}


def test_the_schemes_are_registered_only_by_who_asks() -> None:
    program = (
        "from torch.distributed.rendezvous import _rendezvous_handlers as known\n"
        "from trystate import rendezvous\n"
        "print(sorted(known)); rendezvous.register(); print(sorted(known))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines() == [
        "['env', 'file', 'tcp']",
        "['env', 'file', 'tcp', 'trystate-env', 'trystate-tcp']",
    ]


def test_a_tcp_url_yields_our_store_with_the_rank_and_size_of_its_query(port: int) -> None:
    urls = [f"trystate-tcp://127.0.0.1:{port}?rank={rank}&world_size=2&hosted=0" for rank in (1, 0)]
    with group_of(*urls) as ((store, rank, world_size), _):
        assert isinstance(store, PrefixStore)
        assert (rank, world_size, store.timeout) == (1, 2, WITHIN)
        assert isinstance(store.underlying_store, TCPStore)
        assert (store.underlying_store.port, store.underlying_store.timeout) == (port, WITHIN)


def test_rank_and_world_size_may_be_given_beside_the_url(port: int) -> None:
    with group_of(f"trystate-tcp://127.0.0.1:{port}?hosted=0", given=[(rank, 3) for rank in range(3)]) as group:
        assert [(rank, world_size) for _, rank, world_size in group] == [(0, 3), (1, 3), (2, 3)]


def test_the_environment_says_what_the_query_does_not(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in zip(VARIABLES, ("127.0.0.1", str(port), "0", "2", "True"), strict=True):
        monkeypatch.setenv(name, value)
    with group_of("trystate-env://", "trystate-env://?rank=1") as group:
        assert [(rank, world_size, store.underlying_store.port) for store, rank, world_size in group] == [
            (0, 2, port), (1, 2, port),
        ]  # fmt: skip


def test_with_an_agents_store_rank_0_is_a_client_too(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    with group_of(f"trystate-tcp://127.0.0.1:{port}?rank=0&world_size=1") as ((store, _, _),):
        assert store.underlying_store.port == port  # a second server could not listen on this port


@pytest.mark.parametrize("scheme", ["tcp", "env"])
@pytest.mark.parametrize(
    ("ours", "error", "text"),
    [("trystate-", NotSupported, "good for one rendezvous"), ("", RuntimeError, "Unable to perform re-?rendezvous")],
    ids=["ours", "torch"],
)
def test_a_url_is_good_for_one_rendezvous(
    ours: str, error: type[Exception], text: str, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "0")
    place = "127.0.0.1:0" if scheme == "tcp" else ""
    handler = torch_rendezvous(f"{ours}{scheme}://{place}?rank=0&world_size=1", timeout=WITHIN)
    assert next(handler)[1:] == (0, 1)
    with pytest.raises(error, match=text):
        next(handler)
    assert issubclass(error, RuntimeError)


@pytest.mark.parametrize(
    ("url", "texts"),
    [
        ("trystate-tcp://127.0.0.1?rank=0&world_size=1", ("has no port", "HOST:PORT")),
        ("trystate-tcp://127.0.0.1:99999?rank=0&world_size=1", ("no port from 0 to 65535",)),
        ("trystate-tcp://:29500?rank=0&world_size=1", ("has no host",)),
        ("trystate-tcp://::1:29416?rank=0&world_size=1", ("needs brackets", "write [::1]:29416")),
        ("trystate-tcp://[::1:29500?rank=0&world_size=1", ("not a URL",)),
        ("trystate-tcp://h:1?world_size=1", ("rank is missing; give rank=... with the URL, or ?rank=... in it",)),
        ("trystate-tcp://h:1?rank=2&world_size=2", ("rank=2", "0 to 1")),
        ("trystate-tcp://h:1?rank=one&world_size=2", ("rank='one'", "whole number")),
        ("trystate-tcp://h:1?rank=0&world_size=0", ("world_size=0",)),
        ("trystate-tcp://h:1?rank=0&rank=1&world_size=2", ("twice",)),
        ("trystate-tcp://h:1?rank=0&world_size=2&worldsize=3", ("worldsize", "it may have", "hosted")),
        ("trystate-tcp://h:1?rank=0&world_size=2&hosted=maybe", ("hosted='maybe'", "runs already")),
        ("trystate-tcp://h:1?rank=0&world_size=2&secret_file=/no/such", ("secret_file='/no/such'", "No such file")),
        ("trystate-tcp://h:1/job?rank=0&world_size=1", ("'job' in it has no meaning", "trystate-tcp://HOST:PORT")),
        ("trystate-env://h:1?rank=0&world_size=1", ("'h:1' in it has no meaning", "everything else in the query")),
        ("trystate-tcp://h:1#2?rank=0&world_size=1", ("'2?rank=0&world_size=1' in it has no meaning",)),
    ],
)
def test_a_wrong_url_is_refused_with_what_is_wrong_and_the_remedy(url: str, texts: tuple[str, ...]) -> None:
    with pytest.raises(InvalidArgument) as raised:
        next(HANDLERS[url.partition(":")[0]](url))
    assert isinstance(raised.value, UsageError | ValueError)
    assert [text for text in (url, *texts) if text not in str(raised.value)] == []
    assert "init_process_group" not in str(raised.value)  # init_rpc meets at URLs too


def test_each_missing_variable_is_named_with_its_meaning(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("WORLD_SIZE", "1"), ("RANK", "0"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "port")):
        with pytest.raises(InvalidArgument, match=f"variable {name} is not set; set it to .*torchrun"):
            next(env_rendezvous("trystate-env://"))
        monkeypatch.setenv(name, value)
    with pytest.raises(InvalidArgument, match=r"MASTER_PORT='port' is not a whole number; give 0 to 65535"):
        next(env_rendezvous("trystate-env://"))


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_master_addr_is_an_ipv6_address_with_or_without_brackets(monkeypatch: pytest.MonkeyPatch) -> None:
    with TCPStoreServer("::1") as server:
        for name, value in zip(VARIABLES, ("::1", str(server.port), "0", "1", "True"), strict=True):
            monkeypatch.setenv(name, value)
        for host in ("::1", "[::1]"):
            monkeypatch.setenv("MASTER_ADDR", host)
            with group_of("trystate-env://") as ((store, _, _),):
                assert store.underlying_store.host == "::1"
        monkeypatch.setenv("MASTER_ADDR", "[::1]:29500")
        with pytest.raises(InvalidArgument, match=r"MASTER_ADDR: .* is not a host"):
            next(env_rendezvous("trystate-env://"))
