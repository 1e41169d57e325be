"""R8, R9 and R10: one node too many, one with other settings, or one that is late harms a healthy group.

Rule: every node does what torch's agent does, and no process dies, pauses or reads another clock.
"""

from torch.distributed.elastic.rendezvous.api import RendezvousClosedError, RendezvousTimeoutError

from ...replays import Observation, Say, judge
from .nodes import Call, Cluster, Node, Settings, wait_for
from .observation import Seat

ENOUGH_COMPLETE = "if enough live nodes keep trying, a round completes"
RESTARTS_MIN = 3  # in a row, to speak of a group that does not come to rest


def restless_spare(say: Say, *, benign: bool = False) -> Observation:
    """R8. After one ordinary restart the spare is on the wait list for good, and the group restarts for ever.

    The spare moves from the redundancy list to the wait list when a member leaves, loses the race for the
    next round, and is never demoted: in `_RendezvousJoinOp` that needs "not in the wait list". That it loses
    is arranged by holding its poll while the members restart. Benign: the ordinary restart does not happen.
    """
    settings = Settings(min_nodes=2, max_nodes=2)
    with Cluster(say) as cluster:
        a, b = cluster.node("A", 1, settings), cluster.node("B", 2, settings)
        spare = cluster.node("S", 3, settings)
        cluster.join_together(a, b)
        spare.join()
        cluster.until(lambda peek: "S" in peek.redundant, "S is a spare, and not counted as waiting")
        if not benign:
            a_call = a.join()
            cluster.until(lambda peek: "S" in peek.waiting, "A's worker fails, A restarts; S sees a place")
            _restart(cluster, spare, [b], [a_call])

        causeless = 0
        while causeless < RESTARTS_MIN and all(node.nodes_waiting() > 0 for node in (a, b)):
            causeless += 1
            seats = _restart(cluster, spare, [a, b], [])
            say(f"A and B restart because of S: {seats[0]}; {seats[1]}")
        waiting, peek = a.nodes_waiting(), cluster.peek()

    facts = [
        f"the full group restarted {causeless} times in a row for a node that it has no place for",
        f"in round {peek.round} num_nodes_waiting() is {waiting}",
        f"wait list: {sorted(peek.waiting)}; redundancy list: {sorted(peek.redundant)}",
    ]
    full = peek.complete and len(peek.participants) == settings.max_nodes
    return judge(causeless == RESTARTS_MIN and waiting == 1 and full, "restarts come to rest", facts)


def _restart(cluster: Cluster, spare: Node, nodes: list[Node], started: list[Call[Seat]]) -> list[Seat]:
    """Restarts these nodes with the spare a poll behind them; then lets the spare look at the full round.

    Waits for every member, as agents do: `_assign_worker_ranks` (agent/server/api.py) needs them all.
    """
    pause = spare.backend.hold("get", "set")
    seats = [call.value() for call in [*started, *(node.join() for node in nodes)]]
    reads = spare.backend.reads
    pause.open()
    wait_for(lambda: spare.backend.reads > reads, "the spare's poll")
    return seats


def settings_not_agreed(say: Say, *, benign: bool = False) -> Observation:
    """R9. C, which wants three nodes, joins and leaves; two who would do with two now wait for nothing.

    C's `_remove_participant_epilogue` compares the two that are left with C's own min_nodes and clears the
    deadline; it is set only when the count reaches min_nodes from below. Benign: C has the others' settings.
    """
    settings = Settings(min_nodes=2, max_nodes=4, last_call_s=3, join_s=5)
    others = Settings(min_nodes=2 if benign else 3, max_nodes=4, last_call_s=3, join_s=1)
    with Cluster(say) as cluster:
        a, b = cluster.node("A", 1, settings), cluster.node("B", 2, settings)
        c = cluster.node("C", 3, others)
        calls = [a.join(), b.join()]
        cluster.until(lambda peek: len(peek.participants) == 2 and peek.has_deadline, "the last call of A and B")
        c_call = c.join()
        cluster.until(lambda peek: "C" in peek.participants, f"C has joined: {others.min_nodes}:4")
        c_error = c_call.finish()
        say(f"C got {c_error!r}" if c_error else str(c_call.value()))
        left = cluster.peek()
        say(f"left: {sorted(left.participants)}, {'a' if left.has_deadline else 'no'} deadline")
        errors = [call.finish() for call in calls]

    enough = len(left.participants) >= settings.min_nodes and not left.complete
    facts = [
        f"C left after {others.join_s} s: {_error(c_error)}",
        f"{len(left.participants)} of at least {settings.min_nodes} stayed; deadline: {left.has_deadline}",
        *(
            f"{node}: {_error(error)}" if error else str(call.value())
            for node, call, error in zip((a, b), calls, errors, strict=True)
        ),
    ]
    hung = all(isinstance(error, RendezvousTimeoutError) for error in errors)
    return judge(enough and not left.has_deadline and hung, ENOUGH_COMPLETE, facts)


def late_node_closes(say: Say, *, benign: bool = False) -> Observation:
    """R10. L waits for a round, times out and shuts down; that closes the rendezvous of the healthy group.

    L is run as torch's launcher runs an agent: `launch_agent` (torch/distributed/launcher/api.py) calls
    `rdzv_handler.shutdown()` in its finally block, and `shutdown` closes the rendezvous for everyone. A and B
    do not look at num_nodes_waiting() in time. Benign: they do, and take L in.
    """
    settings = Settings(min_nodes=2, max_nodes=3)
    # Store sharing is off, or taking L in would fail for the reason of R1.
    with Cluster(say, share_store=False) as cluster:
        a, b = cluster.node("A", 1, settings), cluster.node("B", 2, settings)
        cluster.join_together(a, b)
        late = cluster.node("L", 3, settings if benign else Settings(min_nodes=2, max_nodes=3, join_s=1))
        l_call = late.call(lambda: _launch(late))
        cluster.until(lambda peek: "L" in peek.waiting, "L is late: it waits for the next round")
        if not benign:
            l_call.finish()
            say(f"L gave up: {l_call.error!r}")
        restarts = [a.join(), b.join()]
        errors = [call.finish() for call in restarts]
        l_call.finish()
        peek = cluster.peek()

    facts = [
        f"L: {_error(l_call.error)}",
        f"the rendezvous is {'closed' if peek.closed else 'open'}",
        *(
            f"{node}'s next restart: {_error(error) if error else call.value()}"
            for node, call, error in zip((a, b), restarts, errors, strict=True)
        ),
    ]
    for fact in facts:
        say(fact)
    refused = all(isinstance(error, RendezvousClosedError) for error in errors)
    local = isinstance(l_call.error, RendezvousTimeoutError)
    return judge(local and refused and peek.closed, "closing ends only what is over", facts)


def _launch(node: Node) -> Seat:
    """`launch_agent` as far as the rendezvous is concerned. A seat is kept: its agent is still running."""
    try:
        return node._next_rendezvous()
    except Exception:
        node.handler.shutdown()
        raise


def _error(error: Exception | None) -> str:
    return type(error).__name__ if error else "no error"
