"""R11 and R17: a write that was lost is reported as won; a node that backs off loses its next write as well.

Rule: the truth about a write is what the store held right before it, never what the backend reports.
`C10dRendezvousBackend.set_state` infers success from the store holding the wanted bytes afterwards, which is
also so when another node has written the same bytes. Closing hides it; a counter would not.

In R17 the executor pauses between the reply of a lost write, which brings the state, and its decision on that state.
"""

import pickle
from datetime import UTC, datetime
from functools import partial

from torch.distributed.elastic.rendezvous.dynamic_rendezvous import _RendezvousCloseOp, _RendezvousExitOp

from ...replays import Observation, Say, judge
from .nodes import Cluster, Node, Settings, replaced, require

LOST_IS_LOST = "a compare-and-set that was lost is reported as lost"
FRESH_RETRY = "a write is lost only to a write that came after the pause before it"
BEAT_S = 60  # no heartbeat may change the state between the two writes
BACK_OFF_S = 0.5
PAUSES = 5


def lost_write_reported_won(say: Say, *, benign: bool = False) -> Observation:
    """R11. Two writers with one token write the same bytes: the second is told that it won.

    Shown twice: on two backends, and on two executors that run the close operation and are held at their
    `set_state`. Benign: the second writer writes something else.
    """
    settings = Settings(min_nodes=2, max_nodes=2, beat_s=BEAT_S)
    with Cluster(say) as cluster:
        a, b = cluster.node("A", 1, settings), cluster.node("B", 2, settings)
        direct = _direct(a, b, benign=benign)
        say(f"two backends: the lost write was reported as {_word(direct)}")
    with Cluster(say) as cluster:
        a, b = cluster.node("A", 1, settings), cluster.node("B", 2, settings)
        executed = _executed(cluster, a, b, benign=benign)
        say(f"two executors: the lost write was reported as {_word(executed)}")

    facts = [
        f"two backends: B's write, with a stale token, was reported as {_word(direct)}",
        f"two executors: B's write, with a stale token, was reported as {_word(executed)}",
    ]
    return judge(direct and executed, LOST_IS_LOST, facts)


def _direct(a: Node, b: Node, *, benign: bool) -> bool:
    """Whether the second of two `set_state` with one token is reported as won."""
    a.call(lambda: a.backend.set_state(b"start")).value()
    found = a.backend.get_state()
    token = found[1] if found else None
    first = a.call(lambda: a.backend.set_state(b"next", token)).value()
    second = b.call(lambda: b.backend.set_state(b"other" if benign else b"next", token)).value()
    require(first is not None and first[2], "the first write is really won: nobody else wrote")
    require(first is not None and first[1] != token, "the second write is really lost: its token is stale")
    return second is not None and second[2]


def _executed(cluster: Cluster, a: Node, b: Node, *, benign: bool) -> bool:
    """The same with the real operators; both are held until both have read the state that they change."""
    cluster.join_together(a, b)
    gates = [node.backend.hold("set") for node in (a, b)]
    operators = [_RendezvousCloseOp(), _RendezvousExitOp() if benign else _RendezvousCloseOp()]
    calls = []
    for node, gate, operator in zip((a, b), gates, operators, strict=True):
        calls.append(node.call(partial(_execute, node, operator)))
        gate.wait_reached()
    cluster.say("A and B have decided on a write; both have read the same state")
    started = cluster.raw()
    counts = [len(node.backend.writes) for node in (a, b)]
    gates[0].open()
    calls[0].value()
    before = cluster.raw()
    gates[1].open()
    calls[1].value()
    first, second = (node.backend.writes[count] for node, count in zip((a, b), counts, strict=True))
    require(first.token == second.token, "both started from the same state")
    require(before == first.state != started, "the first write is really won, and the second's token stale")
    return second.reported_won


def _execute(node: Node, operator: _RendezvousCloseOp | _RendezvousExitOp) -> None:
    deadline = node.handler._get_deadline(node.handler.settings.timeout.close)
    node.handler._op_executor.run(operator, deadline)


def _word(reported_won: bool) -> str:
    return "won" if reported_won else "lost"


def back_off_retries_stale(say: Say, *, benign: bool = False) -> Observation:
    """R17. B closes, and pauses after each lost write. A beats once in each pause, and B loses its next write too.

    A never writes between the end of a pause and B's write. Benign: A beats before B's first write, and in no pause.
    """
    settings = Settings(min_nodes=2, max_nodes=2, beat_s=BEAT_S, back_off_s=BACK_OFF_S)
    with Cluster(say) as cluster:
        a, b = cluster.node("A", 1, settings), cluster.node("B", 2, settings)
        cluster.join_together(a, b)
        paused = 0

        def pause(seconds: tuple[float, float]) -> None:
            nonlocal paused
            paused += 1
            if paused <= PAUSES and not benign:
                _beat(cluster, a)

        before = len(b.backend.writes)
        with replaced("_delay", pause):
            gate = b.backend.hold("set")
            call = b.call(partial(_execute, b, _RendezvousCloseOp()))
            gate.wait_reached()
            _beat(cluster, a)
            say("B has decided to close; A beats first")
            gate.open()
            call.value()
        won = [write.reported_won for write in b.backend.writes[before:]]
        require(not won[0] and won[-1], "B's first write is lost, and its last is won")

    stale = won.count(False) - 1
    facts = [
        f"B paused {paused} times, and A beat in {0 if benign else PAUSES} of the pauses",
        f"B then lost {stale} writes, before which nobody had written since the pause",
    ]
    return judge(stale > 0, FRESH_RETRY, facts)


def _beat(cluster: Cluster, node: Node) -> None:
    """The write of a heartbeat of this node, from beside."""
    found = cluster.observer.get_state()
    state = pickle.loads(found[0] if found else b"")
    state.last_heartbeats[node.descriptor] = datetime.now(UTC)
    reply = cluster.observer.set_state(pickle.dumps(state), found[1] if found else None)
    require(reply is not None and reply[2], "the heartbeat is written")
