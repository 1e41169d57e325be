"""R6, R7, R12, R13, R15, R18 and R19: a live node is expelled, and two groups run at once; or its heartbeats end.

Rule: no process dies here; every node that is removed is alive, and can reach the store when it matters.
The cause of the first four: a heartbeat is a wall-clock time judged by whoever looks (`_sanitize`). The keep-alive
operation of a node that is gone from the state has nothing to do, and succeeds (`_should_keep_alive`). In R15 and R19
the heartbeat waits for the store client, which is in use. In R18 an error ends the thread that beats.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial

from torch.distributed.elastic.rendezvous.api import RendezvousStoreInfo
from torch.distributed.elastic.utils.store import barrier

from ...replays import Observation, Say, judge
from ...stores.servers import cloned
from .nodes import Cluster, Node, Peek, Settings, is_oblivious, require, wait_for, wait_until_aged

ALWAYS_TOLD = "a removed member is told before another group starts"
ONE_GROUP = "there are never two groups at once"
NEVER_EXPELLED = "a live node is never expelled"
BEATS_GO_ON = "a heartbeat that failed is followed by the next one"


def never_told(say: Say, *, benign: bool = False) -> Observation:
    """R6. B is silent for longer than its window; it is replaced, and nothing ever tells it.

    B's calls are held at its backend, as in a process that was stopped for some seconds. A replaces B, and is first in
    the second group: up to torch 2.12 C, led by B before, could not be (R16). Benign: B is held for less than the
    window.
    """
    settings = Settings(min_nodes=2, max_nodes=2, beats_missed_max=3)
    with Cluster(say) as cluster:
        b, c = cluster.node("B", 2, settings), cluster.node("C", 3, settings)
        first = cluster.join_together(b, c)
        pause = b.backend.hold("get", "set")
        pause.wait_reached()
        say("B is stopped")
        if benign:
            pause.open()
        else:
            cluster.until(lambda peek: "B" not in peek.participants, "C has removed B")
        a = cluster.node("A", 1, settings)
        a_call = a.join()
        groups = [f"B and C formed a group in round {first[0].round}"]
        if benign:
            cluster.until(lambda peek: "A" in peek.redundant, "A is a spare: the round is full")
        else:
            wait_for(lambda: c.nodes_waiting() > 0, "C sees A waiting")
            second = [c.join(), a_call]
            groups += [str(call.value()) for call in second]
            say("; ".join(groups[1:]))
        pause.open()
        facts, oblivious = is_oblivious(b)
        for fact in facts:
            say(fact)
        peek = cluster.peek()
        replaced = peek.complete and "B" not in peek.participants and peek.round > first[0].round

    return judge(replaced and oblivious, ALWAYS_TOLD, groups + facts)


def store_pause(say: Say, *, benign: bool = False) -> Observation:
    """R7. The store answers nobody for longer than the window; then both members stop beating for ever.

    Every node's calls are held at its backend. At its first answer each member finds its own heartbeat
    expired, removes itself from its local copy, and has nothing to write. Benign: a pause within the window.
    """
    settings = Settings(min_nodes=2, max_nodes=2, beats_missed_max=3)
    with Cluster(say) as cluster:
        members = [cluster.node("A", 1, settings), cluster.node("B", 2, settings)]
        old_group = cluster.join_together(*members)
        pauses = [member.backend.hold("get") for member in members]
        for pause in pauses:
            pause.wait_reached()
        say("the store pauses")
        if not benign:
            wait_until_aged(max(cluster.peek().beats.values()), settings.window_s + 0.05)
        reads = [member.backend.reads for member in members]
        writes = [member.backend.writes_won for member in members]
        for pause in pauses:
            pause.open()
        say("the store answers again")
        # The first read is the one that was held, the second that of the next heartbeat.
        wait_for(lambda: all(m.backend.reads >= n + 2 for m, n in zip(members, reads, strict=True)), "two reads")
        beats = sum(m.backend.writes_won - n for m, n in zip(members, writes, strict=True))
        say(f"A and B have read the state twice or more each, and written it {beats} times")

        newcomers = [cluster.node("C", 3, settings), cluster.node("D", 4, settings)]
        calls = [newcomer.join() for newcomer in newcomers]
        if benign:
            cluster.until(lambda peek: peek.redundant == {"C", "D"}, "C and D are spares: the round is full")
            new_group = []
        else:
            new_group = [call.value() for call in calls]
        told = any(m.nodes_waiting() > 0 or m.is_closed() or not m.alive for m in members)

    facts = [str(seat) for seat in (*old_group, *new_group)]
    facts.append(f"after the pause A and B read the state and wrote {beats} heartbeats")
    facts.append(f"A and B were {'' if told else 'not '}told that anything is wrong")
    return judge(beats == 0 and len(new_group) == 2 and not told, ONE_GROUP, facts)


def impatient_observer(say: Say, *, benign: bool = False) -> Observation:
    """R12. A and B beat every 5 s; spare S, started with 1 s x 2, finds both dead after two seconds.

    The settings are each node's own (`_sanitize` uses the observer's). Benign: S has the group's settings.
    """
    patient = Settings(min_nodes=2, max_nodes=2, beat_s=5, beats_missed_max=3)
    impatient = patient if benign else Settings(min_nodes=2, max_nodes=2, beat_s=1, beats_missed_max=2)
    with Cluster(say) as cluster:
        members = [cluster.node("A", 1, patient), cluster.node("B", 2, patient)]
        cluster.join_together(*members)
        beats = cluster.peek().beats
        wait_until_aged(max(beats.values()), 2.1)
        say("A's and B's heartbeats are two seconds old; they beat every five")
        cluster.node("S", 3, impatient).join()
        peek = cluster.until(lambda peek: "S" in peek.beats, "S has joined, somewhere")
        facts = [_standing(peek, member) for member in members]
        facts.append(f"S looks with a window of {impatient.window_s} s; it is {_place(peek, 'S')}")
        expelled = all(m.alive and m.name not in peek.participants for m in members)
        oldest_s = _age_s(min(beats.values()))

    return judge(expelled and oldest_s < patient.window_s, NEVER_EXPELLED, facts)


def clock_steps_back(say: Say, *, benign: bool = False) -> Observation:
    """R13. A's wall clock is set back by a minute: A sees no need to beat for a minute, and B expels it.

    `_should_keep_alive` compares A's last heartbeat with A's clock. The `datetime` of dynamic_rendezvous.py
    is replaced by one that is shifted for A's threads only. Benign: the clock does not step.
    """
    settings = Settings(min_nodes=2, max_nodes=2, beats_missed_max=3)
    with Cluster(say) as cluster:
        a, b = cluster.node("A", 1, settings), cluster.node("B", 2, settings)
        cluster.join_together(a, b)
        cluster.shift_clock(a, 0 if benign else -60)
        beats = cluster.peek().beats
        reads, writes = a.backend.reads, a.backend.writes_won
        say(f"A's clock {'goes on' if benign else 'steps back by 60 s'}")
        if benign:
            wait_until_aged(beats["A"], settings.window_s + 0.2)
        else:
            cluster.until(lambda peek: "A" not in peek.participants, "B has removed A")
        peek = cluster.peek()
        asked = a.backend.reads - reads
        expelled = a.alive and asked > 0 and "A" not in peek.participants
        facts = [
            f"A then read the state {asked} times and wrote {a.backend.writes_won - writes} heartbeats",
            _standing(peek, a),
        ]
    return judge(expelled, NEVER_EXPELLED, facts)


def connecting_node_expelled(say: Say, *, benign: bool = False) -> Observation:
    """R15. B waits for the master's address for longer than its window: it does not beat, and A expels it.

    It waits for the reason of R1. `_create_c10d_handler` (registry.py) gives the handler and its backend one TCPStore
    client, and `TCPStore::get` holds that client's lock until the key is there: the keep-alive thread waits for it.
    When B has the address, it returns as a member of a round that does not list it. Benign: its backend has a client
    of its own.
    """
    settings = Settings(min_nodes=1, max_nodes=2, beats_missed_max=3, store_s=8)
    with Cluster(say) as cluster:
        a, b = cluster.node("A", 1, settings), cluster.node("B", 2, settings)
        cluster.join_together(a)
        store = b.handler._store
        require(b.backend._store is store, "the handler and the backend have one client")
        if benign:
            b.backend._store = cloned(store)
        b_call = b.join()
        cluster.until(lambda peek: "B" in peek.waiting, "B waits for the next round")
        seat_a = a.join().value()
        wait_for(lambda: b.alive, "B's heartbeats")
        say(f"{seat_a}; B has joined, and waits for the address, which A does not publish again")
        began_s, writes = time.monotonic(), b.backend.writes_won
        if benign:
            time.sleep(settings.window_s + 1)
        else:
            cluster.until(lambda peek: "B" not in peek.participants, "A has removed B from the shared state")
        own, clone = (b.call(partial(client.check, ["any"])) for client in (store, cloned(store)))
        clone.value()
        peek, beats = cluster.peek(), b.backend.writes_won - writes
        facts = [
            _standing(peek, b),
            f"B wrote {beats} heartbeats in {time.monotonic() - began_s:.1f} s of waiting",
            f"a clone of B's client is answered; B's client {'is not' if own.running else 'is'}",
        ]
        expelled = b.alive and b_call.running and "B" not in peek.participants
        for key in (RendezvousStoreInfo.MASTER_ADDR_KEY, RendezvousStoreInfo.MASTER_PORT_KEY):
            a.handler._get_store().set(key, "0")
        facts.append(f"with the address {b_call.value()}")
        own.value()
    for fact in facts:
        say(fact)
    return judge(expelled and beats == 0, NEVER_EXPELLED, facts)


def done_node_replaced(say: Say, *, benign: bool = False) -> Observation:
    """R19. A's workers are done: A waits in torch's exit barrier, does not beat, and S is to take its place.

    The barrier waits with the store client of the heartbeats. B, whose workers run, is told of a node that waits, for
    which its agent restarts them. Benign: A's backend has a client of its own.
    """
    settings = Settings(min_nodes=2, max_nodes=2, beats_missed_max=3, store_s=20)
    with Cluster(say) as cluster:
        a, b = cluster.node("A", 1, settings), cluster.node("B", 2, settings)
        cluster.join_together(a, b)
        store = a.handler._store
        require(a.backend._store is store, "the handler and the backend have one client")
        if benign:
            a.backend._store = cloned(store)
        cluster.node("S", 3, settings).join()
        cluster.until(lambda peek: "S" in peek.redundant, "S is a spare")
        barriers = [
            partial(barrier, node.handler._get_store(), 2, "terminal_state", settings.store_s) for node in (a, b)
        ]
        waits = a.call(barriers[0])
        say("A's workers are done: A waits in the exit barrier; B's run")
        began_s, writes = time.monotonic(), a.backend.writes_won
        if benign:
            time.sleep(settings.window_s + 1)
        else:
            cluster.until(lambda peek: "S" in peek.waiting, "S waits for A's place")
            wait_for(lambda: b.nodes_waiting() > 0, "B is told")
        peek, beats, told = cluster.peek(), a.backend.writes_won - writes, b.nodes_waiting()
        facts = [
            _standing(peek, a),
            f"A wrote {beats} heartbeats in {time.monotonic() - began_s:.1f} s of waiting",
            f"S is {_place(peek, 'S')}; B is told of {told} nodes that wait",
        ]
        replaced = a.alive and waits.running and "A" not in peek.participants and told > 0
        b.call(barriers[1]).value()
        waits.value()
    return judge(replaced, NEVER_EXPELLED, facts)


def corruption_ends_heartbeats(say: Say, *, benign: bool = False) -> Observation:
    """R18. The shared state has no bytes for a while: no thread beats any more when it is back.

    Benign: for that while it has bytes that the module pickle calls by its own error.
    """
    settings = Settings(min_nodes=2, max_nodes=2)
    with Cluster(say) as cluster, _ends_of_threads() as ended:
        a, b = cluster.node("A", 1, settings), cluster.node("B", 2, settings)
        cluster.join_together(a, b)
        store, key = cluster.observer._store, cluster.observer._key
        state = store.get(key).decode()
        store.set(key, "bm8gcGlja2xl" if benign else "")
        say("the shared state is corrupt")
        if benign:
            time.sleep(2 * settings.beat_s)
        else:
            wait_for(lambda: not a.alive and not b.alive, "no thread beats")
        time.sleep(1.1)  # the copy that num_nodes_waiting may serve again has grown old
        told = type(a.call(a.handler.num_nodes_waiting).finish()).__name__
        store.set(key, state)
        back = cluster.peek().beats
        say("the shared state is back, as it was")
        time.sleep(2.5 * settings.beat_s)
        beats = cluster.peek().beats
        waiting = a.nodes_waiting()
        silent = [node.name for node in (a, b) if not node.alive and beats[node.name] == back[node.name]]

    facts = [
        f"num_nodes_waiting raised {told}; it returns {waiting} now",
        f"threads that beat ended with {', '.join(ended) or 'nothing'}",
        f"after {2.5 * settings.beat_s:g} s with the state back, {' and '.join(silent) or 'nobody'} had not beaten",
    ]
    return judge(silent == ["A", "B"], BEATS_GO_ON, facts)


@contextmanager
def _ends_of_threads() -> Iterator[list[str]]:
    """The errors that end threads while the block runs, in the place of their tracebacks."""
    ended: list[str] = []
    usual = threading.excepthook
    threading.excepthook = lambda end: ended.append(end.exc_type.__name__)
    try:
        yield ended
    finally:
        threading.excepthook = usual


def _standing(peek: Peek, node: Node) -> str:
    alive = "alive (its keep-alive thread runs)" if node.alive else "whose keep-alive thread has ended"
    place = "still" if node.name in peek.participants else "no longer"
    return f"{node}, {alive}, is {place} a participant; its window is {node.settings.window_s} s"


def _age_s(beat: datetime) -> float:
    return (datetime.now(UTC) - beat).total_seconds()


def _place(peek: Peek, name: str) -> str:
    if name in peek.participants:
        return f"a participant of round {peek.round}"
    return "on the redundancy list" if name in peek.redundant else "on the wait list"
