"""R1 to R13, and R15: what torch 2.13's dynamic rendezvous does wrong, and ours does not: a docstring names the defect.

Each is one schedule and one claim, for both libraries: real handlers in threads, beside a real store. Nothing of them
is replaced; a schedule decides who is slow, who dies, and what a wall clock shows. Defects around the rendezvous, A1 to
A11, are in `tests/agent/test_defects.py`; `trystate replay` shows the same on torch, step by step.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping

import pytest
from torch._C._distributed_c10d import TCPStore
from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler
from torch.distributed.elastic.rendezvous.registry import _create_c10d_handler

from trystate.property_tests.support.rendezvous.clusters import require
from trystate.property_tests.support.rendezvous.sides import (
    Cluster,
    Node,
    Settings,
    agreed,
    claim,
    cluster_of,
    happens,
    limit,
    patience,
    seats,
)
from trystate.property_tests.support.stores.defects import defective, sound
from trystate.property_tests.tests.agent import test_defects as test_agent_defects

PATIENT = {"beat_s": 1, "beats_missed_max": 10}  # nobody is silent for so long here
WINDOW = {"beat_s": 1, "beats_missed_max": 3}


def both(why: str) -> pytest.MarkDecorator:
    """The claim is made of both libraries; torch's breaks it, and `why` says how."""
    return pytest.mark.parametrize("library", [sound("trystate"), defective("torch", why)])


def until_listed(cluster: Cluster, *names: str) -> float:
    """Wait until these have joined; the time then."""
    cluster.until(lambda peek: set(names) <= set(peek.beats), f"{', '.join(names)} joined")
    return time.monotonic()


def sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))


@both("who keeps rank 0 publishes no master for the new round: the newcomer waits until the store's timeout")
def test_a_newcomer_learns_the_master(library: str) -> None:
    """R1. Ordinary scale-up, from one node to two."""
    settings = Settings(1, 2, **PATIENT, store_s=2)
    with cluster_of(library) as cluster:
        a, b = cluster.node("A", 1, settings), cluster.node("B", 2, settings)
        agreed(seats(a.join()), 1)
        newcomer = b.join()
        claim("A is asked to restart", lambda: a.nodes_waiting() > 0)
        agreed(seats(a.join(), newcomer), 2)


@both("the old members stay with the master of the round before")
def test_all_members_know_one_master_when_a_newcomer_is_rank_0(library: str) -> None:
    """R2. C sorts first."""
    settings = Settings(2, 3, **PATIENT)
    with cluster_of(library) as cluster:
        a, b = cluster.node("A", 2, settings), cluster.node("B", 3, settings)
        agreed(seats(a.join(), b.join()), 2)
        newcomer = cluster.node("C", 1, settings).join()
        claim("they are asked to restart", lambda: a.nodes_waiting() > 0 and b.nodes_waiting() > 0)
        agreed(seats(a.join(), b.join(), newcomer), 3)


@both("it is removed from the round that is complete, and who looks later gets a smaller world")
def test_members_agree_on_the_world_though_one_leaves_it_at_once(library: str) -> None:
    """R3. B is slow to look at the round that A completes; A's worker fails before that, if it begins before that."""
    settings = Settings(2, 2, **PATIENT)
    with cluster_of(library) as cluster:
        a, b = cluster.node("A", 1, settings), cluster.node("B", 2, settings)
        look = b.backend.hold("get", after_writes=1)
        slow = b.join()
        until_listed(cluster, "B")
        quick = a.join()
        cluster.until(lambda peek: peek.complete, "A has completed the round")
        if happens(lambda: not quick.running, limit(library, 1.0)):
            a.join()
            cluster.until(lambda peek: "A" not in peek.participants, "A has left")
        look.open()
        agreed(seats(quick, slow), 2)


@both("each drops the dead from its own copy of the round when it looks: they see different worlds")
def test_members_agree_on_the_world_though_one_dies_before_it_begins(library: str) -> None:
    """R4. B dies unseen; C completes the round, and A looks at it only when B's heartbeats are missed."""
    settings = Settings(3, 3, **WINDOW)
    with cluster_of(library) as cluster:
        a, b, c, d = (cluster.node(name, number, settings) for name, number in zip("ABCD", (3, 2, 1, 4), strict=True))
        b.backend.hold("get", after_writes=1)
        b.join()
        born = until_listed(cluster, "B")
        b.die()
        sleep_until(born + 1.2)  # torch's A would find itself dead as well
        look = a.backend.hold("get", after_writes=1)
        slow = a.join()
        until_listed(cluster, "A")
        quick = c.join()
        until_listed(cluster, "C")
        sleep_until(born + settings.window_s + 0.1)
        look.open()
        d.join()  # the node that lost B needs another one
        agreed(seats(slow, quick), 3)


@both("heartbeats are times of one clock, judged by another one: to B all others are long dead")
def test_members_agree_on_the_world_though_their_wall_clocks_differ(library: str) -> None:
    """R5. B's wall clock is a minute ahead."""
    settings = Settings(2, 2, **WINDOW)
    with cluster_of(library) as cluster:
        a, b = cluster.node("A", 1, settings), cluster.node("B", 2, settings)
        cluster.shift_clock(b, 60.0)
        agreed(seats(a.join(), b.join()), 2)
        time.sleep(1.5 * settings.beat_s)
        assert cluster.peek().participants.keys() == {"A", "B"}
        assert [a.nodes_waiting(), b.nodes_waiting()] == [0, 0]


@both("its heartbeats write nothing and succeed; nobody waits, and nothing is closed")
def test_who_was_removed_knows_it_before_the_others_begin_without_it(library: str) -> None:
    """R6. A is stopped for longer than its window, and another one takes its place."""
    settings = Settings(2, 2, **WINDOW)
    with cluster_of(library) as cluster:
        a, b, c = (cluster.node(name, number, settings) for number, name in enumerate("ABC", 1))
        agreed(seats(a.join(), b.join()), 2)
        pause = a.backend.hold("get", "set")
        pause.wait_reached()
        learnt: list[float] = []
        over = threading.Event()
        a.call(lambda: happens(lambda: over.is_set() or _told(a, learnt), 60.0))
        other = c.join()
        claim("B is asked to restart", lambda: b.nodes_waiting() > 0)
        agreed(seats(b.join(), other), 2)
        began = time.monotonic()
        pause.open()
        happens(lambda: learnt, patience(library, 2.0))
        over.set()
        assert learnt, "A reaches the store again, and does not learn that it is out"
        assert learnt[0] <= began


def _told(node: Node, when: list[float]) -> bool:
    if node.handler.num_nodes_waiting() > 0:
        when.append(time.monotonic())
    return bool(when)


@both("every node finds its own heartbeat too old, drops itself and never beats again: newcomers form another group")
def test_a_pause_of_the_store_ends_no_heartbeats_and_makes_no_second_group(library: str) -> None:
    """R7. The store answers nobody for longer than the window."""
    settings = Settings(2, 2, **WINDOW)
    with cluster_of(library) as cluster:
        members = a, b = cluster.node("A", 1, settings), cluster.node("B", 2, settings)
        agreed(seats(a.join(), b.join()), 2)
        pauses = [node.backend.hold("get") for node in members]
        for pause in pauses:
            pause.wait_reached()
        time.sleep(settings.window_s + 0.1)
        reads = [node.backend.reads for node in members]
        for pause in pauses:
            pause.open()
        for node, before in zip(members, reads, strict=True):
            require(happens(lambda: node.backend.reads > before), f"{node} reads again")  # noqa: B023 (called at once)
        written = [node.backend.writes_won for node in members]
        newcomers = [cluster.node(name, number, settings).join() for number, name in enumerate("CD", 3)]
        happens(lambda: {"C", "D"} == cluster.peek().redundant or not any(call.running for call in newcomers))
        assert any(call.running for call in newcomers) or all(node.nodes_waiting() for node in members), "two groups"
        for node, before in zip(members, written, strict=True):
            claim(f"{node} beats", lambda: node.backend.writes_won > before, patience(library, 3.0))  # noqa: B023


@both("a spare that was about to get a seat stays on the wait list for good: the agents restart for ever")
def test_a_full_round_comes_to_rest_after_a_restart_beside_a_spare(library: str) -> None:
    """R8. A's worker fails; the spare is slower than both members to take the place."""
    settings = Settings(2, 2, **PATIENT)
    with cluster_of(library) as cluster:
        a, b, spare = (cluster.node(name, number, settings) for number, name in enumerate("ABS", 1))
        agreed(seats(a.join(), b.join()), 2)
        spare.join()
        cluster.until(lambda peek: "S" in peek.redundant, "S is a spare")
        again = a.join()
        happens(lambda: "S" in cluster.peek().waiting, limit(library, 1.0))
        pause = spare.backend.hold("get", "set")
        agreed(seats(again, b.join()), 2)
        looks = spare.backend.reads
        pause.open()
        require(happens(lambda: spare.backend.reads > looks), "the spare has looked")
        claim("nobody waits", lambda: [a.nodes_waiting(), b.nodes_waiting()] == [0, 0], patience(library, 2.0))


@both("it clears the deadline when it goes, by its own min_nodes: the others wait without one")
def test_enough_nodes_complete_a_round_though_one_has_other_settings(library: str) -> None:
    """R9. A and B would begin with two; C, which wants three, comes and gives up."""
    settings = Settings(2, 4, **PATIENT, last_call_s=2, join_s=3)
    with cluster_of(library) as cluster:
        a, b = cluster.node("A", 1, settings), cluster.node("B", 2, settings)
        c = cluster.node("C", 3, Settings(3, 4, **PATIENT, last_call_s=2, join_s=1))
        calls = [a.join(), b.join()]
        cluster.until(lambda peek: len(peek.participants) == 2, "the last call of A and B")
        c.join()
        agreed(seats(*calls), 2)


@both("who gives up closes the rendezvous, and the others' next restart is their end")
def test_a_late_node_that_gives_up_closes_nothing(library: str) -> None:
    """R10. As torch's launcher does it: whatever ends an agent, `shutdown` is called."""
    settings = Settings(2, 3, **PATIENT)
    with cluster_of(library) as cluster:
        a, b = cluster.node("A", 1, settings), cluster.node("B", 2, settings)
        agreed(seats(a.join(), b.join()), 2)
        late = cluster.node("L", 3, Settings(2, 3, **PATIENT, join_s=1))
        require(late.join().finish() is not None, "L has given up")
        late.call(late.handler.shutdown).finish()
        agreed(seats(a.join(), b.join()), 2)


@both("`set_state` compares what is there with what it wrote: another's equal bytes are taken for its own")
def test_of_two_writers_who_read_the_same_state_one_is_told_that_it_lost(library: str) -> None:
    """R11. Both close, on the state that both have read."""
    settings = Settings(2, 2, beat_s=60)  # nobody else writes
    with cluster_of(library) as cluster:
        nodes = a, b = cluster.node("A", 1, settings), cluster.node("B", 2, settings)
        agreed(seats(a.join(), b.join()), 2)
        gates = [node.backend.hold("set") for node in nodes]
        calls = [node.call(node.handler.set_closed) for node in nodes]
        for gate in gates:
            gate.wait_reached()
        counts = [len(node.backend.writes) for node in nodes]
        for gate, call in zip(gates, calls, strict=True):
            gate.open()
            assert call.finish() is None
        first, second = (node.backend.writes[count] for node, count in zip(nodes, counts, strict=True))
        require(first.token == second.token, "both have read the same state")
        assert (first.reported_won, second.reported_won) == (True, False)


@both("a heartbeat is judged by the settings of who looks: the spare drops members that beat in time")
def test_nobody_expels_members_that_beat_in_time(library: str) -> None:
    """R12. A and B beat every 5 s; S was started with a window of 3 s."""
    patient, impatient = Settings(2, 2, beat_s=5, beats_missed_max=3), Settings(2, 2, beat_s=1, beats_missed_max=3)
    with cluster_of(library) as cluster:
        a, b = cluster.node("A", 1, patient), cluster.node("B", 2, patient)
        agreed(seats(a.join(), b.join()), 2)
        time.sleep(impatient.window_s + 0.1)
        call = cluster.node("S", 3, impatient).join()
        require(happens(lambda: not call.running or "S" in cluster.peek().beats), "S has come")
        assert cluster.peek().participants.keys() == {"A", "B"}
        assert [a.nodes_waiting(), b.nodes_waiting()] == [0, 0]


@both("it sees no need to beat until its clock is again where it was, and is expelled")
def test_a_wall_clock_that_steps_back_stops_no_heartbeats(library: str) -> None:
    """R13. A's is set back by a minute."""
    settings = Settings(2, 2, **WINDOW)
    with cluster_of(library) as cluster:
        a, b = cluster.node("A", 1, settings), cluster.node("B", 2, settings)
        agreed(seats(a.join(), b.join()), 2)
        cluster.shift_clock(a, -60.0)
        happens(lambda: "A" not in cluster.peek().participants, limit(library, settings.window_s + 1.0))
        assert cluster.peek().participants.keys() == {"A", "B"}
        assert [a.nodes_waiting(), b.nodes_waiting()] == [0, 0]


@both("it waits with the one client that its heartbeats need: it does not beat, and is expelled")
def test_a_member_that_waits_for_its_master_goes_on_beating(library: str) -> None:
    """R15. For longer than the window: A, which keeps rank 0, publishes no master for the new round."""
    settings = Settings(1, 2, **WINDOW, store_s=6)
    with cluster_of(library) as cluster:
        a, b = cluster.node("A", 1, settings), cluster.node("B", 2, settings)
        agreed(seats(a.join()), 1)
        b.join()
        claim("A is asked to restart", lambda: a.nodes_waiting() > 0)
        a.join()
        cluster.until(lambda peek: peek.complete and "B" in peek.participants, "B is a member")
        happens(lambda: "B" not in cluster.peek().participants, limit(library, settings.window_s + 1.2))
        assert cluster.peek().participants.keys() == {"A", "B"}
        assert a.nodes_waiting() == 0


def test_torchs_c10d_handler_and_its_backend_have_one_client() -> None:
    """The assumption of R15: a node here has a handler and a backend of one client, as torch gives them."""
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    made = _create_c10d_handler(RendezvousParameters("c10d", f"127.0.0.1:{server.port}", "job", 1, 2, is_host="0"))
    assert isinstance(made, DynamicRendezvousHandler)
    assert made._store is made._state_holder._backend._store  # type: ignore[attr-defined]


# ---- what is listed is tested


def named(*modules: Mapping[str, object]) -> dict[str, list[str]]:
    """The names of the tests of each defect, by the docstrings of these modules."""
    found: dict[str, list[str]] = {}
    for module in modules:
        for name, function in module.items():
            listed = re.match(r"([RA]\d+)\. ", function.__doc__ or "") if name.startswith("test_") else None
            if listed is not None:
                found.setdefault(listed[1], []).append(name)
    return found


def test_each_defect_has_a_test() -> None:
    found = named(globals(), vars(test_agent_defects))
    rounds, agents = (*range(1, 14), 15), (*range(1, 12), 17)
    assert found.keys() == {f"R{number}" for number in rounds} | {f"A{number}" for number in agents}
