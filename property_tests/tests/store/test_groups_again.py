"""Process groups that are destroyed and made again at one URL: real gloo groups, in processes of their own.

torch's group takes its server with it. Ours has to, and more: no rank may meet what an older group left, in whatever
order the ranks come, go and die.
"""

from __future__ import annotations

import contextlib
import gc
import json
import signal
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from trystate import rendezvous
from trystate.impl.store import base, generations
from trystate.impl.store.tcp_server import TCPStoreServer
from trystate.model.errors import UsageError
from trystate.property_tests.adapters.forked import Program
from trystate.property_tests.adapters.torch_store.server import free_port
from trystate.property_tests.support.nightly import NIGHTLY, examples
from trystate.property_tests.support.stores import group_again
from trystate.property_tests.support.stores.client.common import until
from trystate.store import ConnectionLost, FileStore, HashStore, PrefixStore, StoreTimeout, TCPStore

dist: Any = torch.distributed  # its stubs leave most of it out
SECONDS = 300.0 if NIGHTLY else 120.0  # for all groups of a test
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


def made_again(kind: str, sizes: Sequence[int], pause: float, seed: int, dies: Any = None) -> list[list[str]]:
    """Run groups of these sizes one after the other; what failed, by rank. A rank that is killed comes again."""
    with tempfile.TemporaryDirectory() as name, meeting_place(kind, Path(name)) as (url, variables):
        job = {"url": url, "sizes": sizes, "pause": pause, "timeout": 10.0 if dies else 30.0}

        def start(rank: int, attempt: int) -> Program:
            death = {"dies": {**dies, "self": rank == dies["rank"]}} if dies and not attempt else {}
            told = json.dumps({**job, **death, "rank": rank, "seed": f"{seed} {rank} {attempt}"})
            return Program(Path(name, f"log.{rank}.{attempt}"), group_again.main, told, variables=variables)

        running = [start(rank, 0) for rank in range(max(sizes))]
        try:
            if dies:
                killed = running[dies["rank"]]
                assert killed.ends(SECONDS) == -signal.SIGKILL, killed.said
                running[dies["rank"]] = start(dies["rank"], 1)
            codes = [one.ends(SECONDS) for one in running]
            assert not any(codes), [one.said for one in running]
            return [json.loads(one.said.splitlines()[-1])["failures"] for one in running]
        finally:
            for one in running:
                one.kill()


@pytest.mark.parametrize("kind", ["tcp", "env", "file", "hosted"])
def test_groups_one_after_the_other_meet_none_of_the_addresses_of_an_older_one(kind: str) -> None:
    assert made_again(kind, [2] * 4, 0.15, seed=1) == [[], []]


@pytest.mark.parametrize("kind", ["tcp", "file"])
def test_the_next_group_may_have_another_size(kind: str) -> None:
    """The third rank comes while the others are in a group of two."""
    assert made_again(kind, [2, 3, 1, 3], 0.15, seed=2) == [[], [], []]


def group_of_one(url: str, backend: str = "gloo") -> None:
    dist.init_process_group(backend, init_method=url, rank=0, world_size=1, timeout=SOON)


def listens(port: int) -> bool:
    try:
        socket.create_connection((HOST, port)).close()
    except ConnectionRefusedError:
        return False
    return True


def test_torch_counts_a_group_that_it_did_not_make_until_a_group_of_one_is_destroyed() -> None:
    """Else a rank that waited in vain, and one that was started again, name each later group differently."""

    def name_of_the_next() -> str:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        return str(dist.group.WORLD.group_name)

    timeout = timedelta(seconds=0.2)
    name_of_the_next()
    group_again.leave()  # the count is 0, whatever other tests have made in this process
    with pytest.raises(RuntimeError, match="timeout"):
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=2, timeout=timeout)
    with pytest.raises(AssertionError):
        dist.destroy_process_group()
    assert name_of_the_next() == "1"
    group_again.leave()
    assert name_of_the_next() == "0"
    group_again.leave()


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
    with pytest.raises((AssertionError, RuntimeError, ValueError)):  # torch finds out when it has the store
        group_of_one(url, "ucc")
    until(lambda: not listens(port_of(url)))
    assert len(base._LIVING) == open_before


def test_a_store_that_somebody_else_asked_for_is_theirs_to_close(url: str) -> None:
    store, _, _ = next(dist.rendezvous(url, 0, 1, timeout=SOON))
    gc.collect()
    with store:
        store.set("k", "v")
        assert store.get("k") == b"v"


# Agreement of the ranks, in one process: a thread is a rank.


def meet(below: HashStore, rank: int, size: int = 2, seconds: float = 20.0, **more: Any) -> generations.Group:
    return generations.meet(lambda within: below.clone(), rank, size, timedelta(seconds=seconds), **more)


@pytest.fixture
def below() -> Iterator[HashStore]:
    with HashStore(SOON) as made:
        yield made


def met(below: HashStore, threads: ThreadPoolExecutor) -> str:
    with contextlib.ExitStack() as stores:
        found = [stores.enter_context(each.result()) for each in [threads.submit(meet, below, r) for r in (0, 1)]]
        found[0].set("address", "of this group")
        assert found[1].get("address") == b"of this group"
        assert found[0].prefix == found[1].prefix
        return str(found[0].prefix)


def test_each_group_has_keys_of_its_own(below: HashStore) -> None:
    with ThreadPoolExecutor(2) as threads:
        assert len({met(below, threads) for _ in range(5)}) == 5


@pytest.mark.parametrize("early", [0, 1])
def test_a_rank_that_gave_up_is_told_who_is_missing_and_is_no_member_of_the_next_group(
    below: HashStore, early: int
) -> None:
    with ThreadPoolExecutor(2) as threads:
        with pytest.raises(
            StoreTimeout, match=rf"after 0\.1 s the group of 2 is not complete, missing: rank {1 - early} "
        ):
            meet(below, early, seconds=0.1)
        met(below, threads)


def test_a_rank_that_comes_again_takes_the_place_of_its_earlier_call(below: HashStore) -> None:
    """The earlier call left its token, and no arrival: its process was killed."""
    below.set("groups-of-2/here/0/1", "of the dead")
    with ThreadPoolExecutor(2) as threads:
        assert met(below, threads) == "group-0-of-2"


@pytest.mark.parametrize("again", [0, 1])
@pytest.mark.parametrize("kind", ["file", "hosted"])
def test_a_rank_that_comes_again_counts_once_while_its_earlier_process_is_frozen(
    kind: str, again: int, tmp_path: Path
) -> None:
    """Its connection, or its place in the file, is that of a process that lives."""
    with meeting_place(kind, tmp_path) as (url, _), ThreadPoolExecutor(3) as threads:
        rendezvous.register()

        def come(rank: int) -> PrefixStore:
            store: PrefixStore = next(dist.rendezvous(url, rank, 3, timeout=timedelta(seconds=6)))[0]
            return store

        place = url.removeprefix("trystate-file://")
        with (
            FileStore(place, 1)
            if kind == "file"
            else TCPStore(HOST, int(url.partition("?")[0].rpartition(":")[2])) as store
        ):
            frozen = Program(tmp_path / "log", group_again.meet, url, again, 3)
            try:
                until(lambda: store.check([f"groups-of-3/here/0/{again}"]), 20.0)
                time.sleep(0.3)  # now it is at the barrier
                with frozen.stopped():
                    early = [threads.submit(come, again), threads.submit(come, 1 - again)]
                    time.sleep(0.5)
                    assert not any(each.done() for each in early)
                    met = [each.result() for each in (*early, threads.submit(come, 2))]
                assert {each.prefix for each in met} == {"group-0-of-3"}
                assert "group-" not in frozen.said
                for each in met:
                    each.close()
            finally:
                frozen.kill()


def test_a_rank_that_comes_again_at_the_release_finds_the_list_of_which_it_is(
    below: HashStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its earlier call's arrival completed the barrier, its own token is in the list, which comes as it arrives."""
    arrive = HashStore._arrive

    def formed_now(store: HashStore, *rest: Any) -> bool:
        below.set("groups-of-2/formed/0", " ".join(below.get(f"groups-of-2/here/0/{rank}").decode() for rank in (0, 1)))
        return arrive(store, *rest)

    below.set("groups-of-2/here/0/0", "of-rank-0")
    monkeypatch.setattr(HashStore, "_arrive", formed_now)
    with meet(below, 1, seconds=5.0) as store:
        assert store.prefix == "group-0-of-2"


def test_a_rank_0_whose_arrival_was_withdrawn_forms_no_group(below: HashStore) -> None:
    """Its later call overwrote the token; the earlier one goes on in time for the next group."""
    with ThreadPoolExecutor(4) as threads:
        calls = []
        for _ in range(2):
            calls.append(threads.submit(meet, below, 0, 3))
            time.sleep(0.2)
        others = [threads.submit(meet, below, 1, 3)]
        time.sleep(0.2)
        assert not any(each.done() for each in (*calls, *others))
        others.append(threads.submit(meet, below, 2, 3))
        with contextlib.ExitStack() as stores:
            found = [stores.enter_context(each.result()) for each in (calls[1], *others)]
            assert {each.prefix for each in found} == {"group-0-of-3"}
            assert not calls[0].done()
            more = [threads.submit(meet, below, rank, 3) for rank in (1, 2)]
            found = [stores.enter_context(each.result()) for each in (calls[0], *more)]
            assert {each.prefix for each in found} == {"group-1-of-3"}


def test_a_rank_that_was_taken_for_its_earlier_call_is_in_the_next_group(below: HashStore) -> None:
    """A list with the token of a process that was killed: its group fails, and nobody else is in it."""
    below.set("groups-of-2/formed/0", "some other")
    with ThreadPoolExecutor(2) as threads:
        assert met(below, threads) == "group-1-of-2"


def test_a_rank_that_lost_its_connection_when_the_group_had_been_formed_is_in_it(
    below: HashStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer was lost; the second call has the token of the first."""
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
                generations.TwoJobs, match=r"rank 0 is of job 'job 0 at port 1', and rank 1 of job 'job 1"
            ):
                call.result()
        calls = [threads.submit(meet, below, rank, job=name) for rank, name in ((0, "job"), (1, ""))]
        assert {call.result().prefix for call in calls} == {"group-1-of-2"}, "one of them has no agent"


def test_a_rank_whose_member_lives_is_refused_to_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two jobs at one URL: each rank of the second is refused, while the first has its group, and not longer."""
    rendezvous.register()
    monkeypatch.setattr(generations, "HELD_SECONDS", 0.2)
    with meeting_place("hosted", tmp_path) as (url, _), contextlib.ExitStack() as ends:
        members = [Program(tmp_path / f"log.{rank}", group_again.meet, url, rank, 2, True) for rank in (0, 1)]
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


def test_a_rank_that_was_started_twice_is_refused_in_one_process(tmp_path: Path) -> None:
    """The later process is a member of the group; the earlier one names it, and does not wait for its timeout."""
    with meeting_place("hosted", tmp_path) as (url, _), contextlib.ExitStack() as ends:

        def start(name: str, rank: int) -> Program:
            program = Program(tmp_path / f"log.{name}", group_again.meet, url, rank, 2, True)
            ends.callback(program.kill)
            return program

        refused = start("first", 1)
        with TCPStore(HOST, int(url.partition("?")[0].rpartition(":")[2])) as store:
            until(lambda: store.check(["groups-of-2/here/0/1"]), 60.0)
        member = start("second", 1)
        assert refused.ends(50.0) == 1
        assert f"process {member.pid} on" in refused.said
        assert "has come as rank 1 of the group of 2 that forms here" in refused.said
        other = start("other", 0)
        until(lambda: all("group-0-of-2" in one.said for one in (member, other)), 60.0)


def test_a_process_comes_again_while_it_has_its_group(tmp_path: Path) -> None:
    with meeting_place("hosted", tmp_path) as (url, _):
        rendezvous.register()
        with contextlib.ExitStack() as stores:
            for number in range(2):
                store = stores.enter_context(next(dist.rendezvous(url, 0, 1, timeout=SOON))[0])
                assert store.prefix == f"group-{number}-of-1"


@pytest.mark.parametrize("numbers", [(3, 0), (0, 1), (2, 2)])
def test_a_group_has_one_name_for_all_of_its_ranks(below: HashStore, numbers: tuple[int, int]) -> None:
    with ThreadPoolExecutor(2) as threads, contextlib.ExitStack() as stores:
        calls = [threads.submit(meet, below, rank, number=numbers[rank]) for rank in (0, 1)]
        found = [stores.enter_context(call.result()) for call in calls]
        assert [each.agree(number) for each, number in zip(found, numbers, strict=True)] == [max(numbers)] * 2
        for one, other in ((0, 1), (1, 0)):
            found[one].set(f"default_pg/{numbers[one]}//cpu//0/{one}", "address")
            assert found[other].get(f"default_pg/{numbers[other]}//cpu//0/{one}") == b"address"


def test_ranks_that_try_again_after_a_timeout_make_a_group(tmp_path: Path) -> None:
    """Rank 1 comes when rank 0 has given up once: torch counts that, and names the next group by the count."""
    with meeting_place("hosted", tmp_path) as (url, _):
        given_up = tmp_path / "given up"
        members = [
            Program(tmp_path / f"log.{rank}", group_again.try_again, url, rank, str(given_up)) for rank in (0, 1)
        ]
        try:
            for member in members:
                assert member.ends(SECONDS) == 0, member.said
        finally:
            for member in members:
                member.kill()


def test_rank_0_waits_for_the_end_of_the_server_that_its_killed_predecessor_had(url: str) -> None:
    with socket.create_server((HOST, port_of(url))) as old, ThreadPoolExecutor(1) as threads:
        begun = threads.submit(next, dist.rendezvous(url, 0, 1, timeout=SOON))
        time.sleep(0.3)
        assert not begun.done()
        old.close()
        begun.result(20)[0].close()


def test_a_port_that_another_program_keeps_is_refused_before_the_timeout(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generations, "HANDOVER_SECONDS", 0.2)
    with socket.create_server((HOST, port_of(url))), pytest.raises(UsageError, match="stop who uses it"):
        next(dist.rendezvous(url, 0, 1, timeout=timedelta(minutes=5)))


# Any order of coming, going and dying.


PLANS = st.fixed_dictionaries({
    "kind": st.sampled_from(["tcp", "file", "hosted"]),
    "size": st.integers(2, 4 if NIGHTLY else 3),
    "pause": st.sampled_from([0.0, 0.1, 0.3]),
    "seed": st.integers(0, 2**32),
    "rank": st.integers(0, 3),
    "group": st.integers(0, 2),
    # At any moment: a gloo that waits for the dead rank takes five times its timeout to give up.
    "when": st.sampled_from(["waiting", "working", *((0.0, 0.02, 0.05, 0.1, 0.2, 0.4) if NIGHTLY else ())]),
})  # fmt: skip


@given(PLANS)
@settings(
    max_examples=examples(4),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow],
)
def test_after_a_rank_was_killed_and_came_again_the_groups_go_on(plan: dict[str, Any]) -> None:
    size, groups = plan["size"], 4 if not NIGHTLY else 6
    dies = {"rank": plan["rank"] % size, "group": plan["group"], "when": plan["when"]}
    made_again(plan["kind"], [size] * groups, plan["pause"], plan["seed"], dies)
