"""Names of groups: torch gives the names of the model, and of two groups with one name our stores create only one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import timedelta
from importlib.metadata import version
from multiprocessing.connection import Connection
from typing import Any

import pytest

from trystate.model.groups.creation import Groups
from trystate.model.groups.vocabulary import Edition
from trystate.property_tests.adapters.torch_groups.names import TorchNames
from trystate.property_tests.harness.paths import replay_every_edge

pytest.importorskip("torch", reason="the groups are torch's")

from trystate.impl.store import group_ranks
from trystate.property_tests.adapters.torch_store.isolated import Child, silence
from trystate.property_tests.adapters.torch_store.server import TorchServer
from trystate.property_tests.support.rpc.worlds import eventually
from trystate.store import GroupsDiffer, HashStore, PrefixStore, TCPStore, TCPStoreServer

RANKS, SECONDS = 4, 60.0
PAIRS = {0: [0, 1], 1: [0, 1], 2: [2, 3], 3: [2, 3]}


def _member(line: Connection, port: int, rank: int) -> None:
    """On request, create the group of this rank's pair, and sum ten to the power of the rank over it."""
    import torch
    import torch.distributed as dist

    from trystate import rendezvous

    silence()
    rendezvous.register()
    url, limit = f"trystate-tcp://127.0.0.1:{port}?hosted=0", timedelta(seconds=SECONDS)
    dist.init_process_group("gloo", url, rank=rank, world_size=RANKS, timeout=limit)
    line.send("joined")
    line.recv()
    try:
        group = dist.new_group(PAIRS[rank])
        line.send("made")
        line.recv()
        total = torch.tensor([10.0**rank])
        dist.all_reduce(total, group=group)
        line.send(total.item())
    except GroupsDiffer as error:
        line.send(str(error))
    line.recv()


def test_of_two_groups_of_one_name_the_later_raises_and_names_both() -> None:
    """Rank 0 has written its address for {0, 1}. Rank 3 of {2, 3} would read it and give its own address to rank 0."""
    with TCPStoreServer() as server, TCPStore("127.0.0.1", server.port) as look, contextlib.ExitStack() as stack:
        children = [stack.enter_context(Child(_member, server.port, rank)) for rank in range(RANKS)]
        assert [child.hear(SECONDS) for child in children] == ["joined"] * RANKS
        children[0].tell("make")
        assert eventually(lambda: any(key.endswith("//1//cpu//0/0") for key in look.list_keys()))
        for rank in (3, 2):
            children[rank].tell("make")
            said = children[rank].hear(SECONDS)
            assert "the group of the ranks 2, 3 and the group of the ranks 0, 1 have one name ('1')" in said
        children[1].tell("make")
        for rank in (0, 1):
            assert children[rank].hear(SECONDS) == "made"
            children[rank].tell("sum")
        assert [children[rank].hear(SECONDS) for rank in (0, 1)] == [11.0, 11.0]


def made(store: Any, key: str, global_ranks_in_group: list[int], group_desc: str | None = None) -> None:
    """Imitates torch's function that creates a group; our stores inspect its frame."""
    group_name = "1"
    store.set(key, f"an address in {group_name}")


@pytest.mark.parametrize("kind", ["hash", "tcp", "prefix"])
def test_every_store_of_ours_compares_ranks_and_descriptions(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_ranks, "MADE_BY", made.__code__)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(TCPStoreServer())
        kinds: dict[str, Callable[[], Any]] = {
            "hash": HashStore,
            "tcp": lambda: TCPStore("127.0.0.1", server.port),
            "prefix": lambda: PrefixStore("a", HashStore()),
        }
        store = stack.enter_context(kinds[kind]())
        made(store, "default_pg/0//1//cpu//0/0", [0, 1])
        made(store, "default_pg/0//1//cpu//0/1", [0, 1])
        for ranks, description in (([2, 3], None), ([1, 0], None), ([0, 1], "mine"), ([0, 1, 2], None)):
            with pytest.raises(GroupsDiffer):
                made(store, "default_pg/0//1//cpu//0/0", ranks, description)
        assert store.get("default_pg/0//1//cpu//0/0") == b"an address in 1"
        made(store, "default_pg/0//2//cpu//0/0", [2, 3])  # another name
        made(store, "default_pg/0//cpu//0/0", [])  # the default group
        many = [*range(20)]
        made(store, "default_pg/0//3//cpu//0/0", many)
        with pytest.raises(GroupsDiffer, match="15 and 4 more"):
            made(store, "default_pg/0//3//cpu//0/0", [*many, 20])
        before = store.num_keys()
        store.set("a program's//own", "key")
        assert store.num_keys() == before + 1


# ---- the keys that torch's groups leave in their store


def _lists(line: Connection, port: int, rank: int) -> None:
    """Join a world of two over torch's own store, and list its keys on request."""
    import torch.distributed as dist
    from torch._C._distributed_c10d import TCPStore as TorchStore

    silence()
    store = TorchStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=SECONDS))
    line.send("joined")
    line.recv()
    line.send(sorted(store.list_keys()))


@pytest.mark.skipif(not version("torch").startswith("2.13"), reason="the model is of 2.13")
def test_a_group_leaves_an_address_of_each_member_and_no_sequence_number() -> None:
    """torch 1.9 (edition SEED) writes a sequence number too. The model has the same names of keys."""
    with TorchServer() as server, Child(_lists, server.port, 0) as one, Child(_lists, server.port, 1) as other:
        assert [child.hear(SECONDS) for child in (one, other)] == ["joined"] * 2
        one.tell("list")
        keys = one.hear(SECONDS)
    assert keys == ["0//cpu//0/0", "0//cpu//0/1"]


# ---- names and counters


# edition, sizes, faults: number of edges
EDGES = {
    (Edition.TORCH, 3, 1, ("skip",)): 408,
    (Edition.TORCH, 2, 0, ("threads",)): 222,
    (Edition.TORCH, 2, 0, ("again", "restart")): 1190,
    (Edition.LOCAL, 3, 1, ("skip",)): 396,
}


@pytest.mark.parametrize(("edition", "processes", "outsiders", "faults"), EDGES, ids=str)
def test_torch_gives_the_names_of_the_model(
    edition: Edition, processes: int, outsiders: int, faults: tuple[str, ...]
) -> None:
    system = Groups(edition=edition, faults=faults, process=processes, group=2, outsiders=outsiders)
    with TorchNames(system) as subject:
        seen = replay_every_edge(system, subject, repeats=False)
    assert seen.disagreements == ()
    assert seen.edges == seen.edges_of_all == EDGES[edition, processes, outsiders, faults]


@pytest.mark.parametrize("edition", [Edition.TORCH, Edition.LOCAL], ids=str)
def test_names_of_the_other_edition_are_noticed(edition: Edition) -> None:
    system = Groups(edition=edition, process=3, group=2, outsiders=1)
    with TorchNames(system, local=edition is Edition.TORCH) as subject:
        assert replay_every_edge(system, subject, repeats=False).disagreements
