"""R14: a member dies, and nothing tells those who rely on it.

Rule: one process dies, and no more; what the other one learns is asked of torch's handler, as agents do.
The cause: an agent restarts for a node that waits (`SimpleElasticAgent._invoke_run`, agent/server/api.py,
looks at num_nodes_waiting()). A missed heartbeat shrinks the list of participants: nobody looks at that.
"""

import time
from datetime import UTC, datetime

from torch.distributed import DistStoreError

from ...replays import Observation, Say, judge
from .nodes import Cluster, Settings, is_oblivious

DEPARTURES_NOTICED = "when a member dies, those who rely on it are told"


def departure_unnoticed(say: Say, *, benign: bool = False) -> Observation:
    """R14. B dies: a complete group runs on below its minimum, and one that forms waits for B's master.

    Benign: B leaves by calling next_rendezvous again, which puts it on the wait list; and as rank 0 it is
    slow to publish its master, but lives.
    """
    with Cluster(say) as cluster:
        running, ran_on = _run_on(cluster, benign=benign)
    with Cluster(say) as cluster:
        waiting, waited = _wait_for_master(cluster, benign=benign)
    return judge(ran_on and waited, DEPARTURES_NOTICED, running + waiting)


def _run_on(cluster: Cluster, *, benign: bool) -> tuple[list[str], bool]:
    """B dies in a complete round: whether A, which itself drops B from the shared state, learns nothing."""
    settings = Settings(min_nodes=2, max_nodes=2, beats_missed_max=3)
    a, b = cluster.node("A", 1, settings), cluster.node("B", 2, settings)
    cluster.join_together(a, b)
    if benign:
        b.join()
        cluster.until(lambda peek: "B" in peek.waiting, "B has left, and waits for the next round")
    else:
        b.die()
        cluster.say("B dies")
        cluster.until(lambda peek: "B" not in peek.participants, "A has removed B from the shared state")
    facts, oblivious = is_oblivious(a)
    peek = cluster.peek()
    facts = [
        f"round {peek.round} is {'complete' if peek.complete else 'open'} with {len(peek.participants)} of "
        f"at least {settings.min_nodes} participants: {', '.join(sorted(peek.participants))}",
        *facts,
    ]
    for fact in facts:
        cluster.say(fact)
    below = peek.complete and len(peek.participants) < settings.min_nodes
    return facts, below and oblivious and a.alive


def _wait_for_master(cluster: Cluster, *, benign: bool) -> tuple[list[str], bool]:
    """B, which is rank 0, dies before it publishes its master: whether A outwaits B's window in vain.

    B's poll of the round that A completes is held at its backend. A waits in `RendezvousStoreInfo.build`,
    and cannot beat meanwhile: its backend has the same store client (`_create_c10d_handler`, registry.py),
    which serves one call at a time. TCPStore itself warns of the timeout on the standard error output.
    """
    settings = Settings(min_nodes=2, max_nodes=2, beats_missed_max=2, store_s=3)
    a, b = cluster.node("A", 2, settings), cluster.node("B", 1, settings)
    poll = b.backend.hold("get", after_writes=1)
    b.join()
    cluster.until(lambda peek: "B" in peek.participants, "B has joined; its next poll is late")
    a_call = a.join()
    peek = cluster.until(lambda peek: peek.complete, "A has completed the round: B is rank 0")
    started_s, writes = time.monotonic(), a.backend.writes_won
    if benign:
        poll.open()
    else:
        b.die()
        cluster.say("B dies before it has published its master")
    error = a_call.finish()
    waited_s = time.monotonic() - started_s
    silent_s = (datetime.now(UTC) - peek.beats["B"]).total_seconds()
    facts = [
        f"A, rank {peek.participants['A']}, waited {waited_s:.1f} s for the master of B, rank "
        f"{peek.participants['B']}, and got {type(error).__name__ if error else a_call.value().master}",
        f"B's last heartbeat was then {silent_s:.1f} s old; its window is {settings.window_s} s",
        f"A wrote {a.backend.writes_won - writes} heartbeats meanwhile; its interval is {settings.beat_s} s",
    ]
    for fact in facts:
        cluster.say(fact)
    return facts, isinstance(error, DistStoreError) and silent_s > settings.window_s
