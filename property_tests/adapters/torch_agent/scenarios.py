"""The findings about torch's elastic agent, replayed on the torch that is installed.

Rule: a scenario decides only when workers succeed or fail and who is killed or cut off, and computes from how the
agents then ended whether the property was violated. `CONTROLS` runs the same code on a schedule that does no harm.
"""

from __future__ import annotations

import signal
import time

from ..jobs import overtaken
from ..replays import Catalogue, Observation, Say, judge
from .agents import IN_BARRIER, SUCCEEDED, Cluster, Options, wait_for

__all__ = ["CONTROLS", "SCENARIOS"]

CLOSED = "RendezvousClosedError"
DEAF_S = 5.0  # an agent that hears a signal ends well within this
TOGETHER_S = 1.0  # for which two groups are watched


def leaving_closes(say: Say, *, benign: bool = False) -> Observation:
    """A2. A has succeeded and leaves, as B's worker fails and B restarts; that closes B's rendezvous.

    Benign: B restarts while A's workers still run.
    """
    with Cluster(say, Options(max_restarts=2, barrier_s=1)) as cluster:
        a, b = cluster.two()
        if not benign:
            a.do("succeed")
            a.logs(IN_BARRIER)
            say("A's workers are done: A waits in the exit barrier")
        b.do("fail once")
        say("a worker of B fails, B restarts")
        if benign:
            a.starts(2)
            b.starts(2)
            a.do("succeed")
            b.do("succeed")
        ends = {"A": a.ended(), "B": b.ended()}
        used = len(b.workers) - 1

    facts = [f"A ended with {ends['A']}", f"B ended with {ends['B']}, after {used} of 2 restarts"]
    return judge(ends["B"] == CLOSED and used < 2, "nobody is told that it is over while a restart is left", facts)


def outage_ends_agent(say: Say, *, benign: bool = False) -> Observation:
    """A4. The store answers nobody for longer than the read timeout; the agent stops healthy workers, and ends.

    Benign: for less than the read timeout.
    """
    # Few heartbeats: of the monitor loop and them, which share a client, only one is told that the store is away.
    options = Options(nodes=(1, 1), read_timeout_s=2, beat_s=60)
    with Cluster(say, options) as cluster:
        a = cluster.node("A")
        a.starts()
        say("the workers of A run; the store stops answering")
        cluster.freeze_store(0.5 if benign else options.read_timeout_s + 2.0)
        say("the store answers again")
        if benign:
            a.do("succeed")
        ended = a.ended()

    facts = [f"A's workers were told {'to succeed' if benign else 'nothing'}", f"A ended with {ended}"]
    return judge(ended == "RendezvousConnectionError", "no agent with healthy workers ends by an outage", facts)


def spare_returns_nothing(say: Say, *, benign: bool = False) -> Observation:
    """A7. The group succeeds and closes; the spare's run() returns None, which launch_agent does not expect.

    Benign: the round has a seat for both.
    """
    with Cluster(say, Options(nodes=(2, 2) if benign else (1, 1))) as cluster:
        a = cluster.node("A")
        if not benign:
            a.starts()
        b = cluster.node("B")
        if benign:
            b.starts()
            b.do("succeed")
        else:
            b.logs("redundancy list")
            say("B is a spare")
        a.do("succeed")
        ends = {"A": a.ended(), "B": b.ended()}

    facts = [f"{name} ended with {how}" for name, how in ends.items()]
    return judge(ends == {"A": SUCCEEDED, "B": "AttributeError"}, "everybody gets an answer", facts)


def barrier_ignores_signals(say: Say, *, benign: bool = False) -> Observation:
    """A11. A waits in the exit barrier and gets SIGTERM: it goes on waiting.

    Benign: A gets it while its workers run.
    """
    with Cluster(say, Options()) as cluster:
        a, _ = cluster.two()
        if not benign:
            a.do("succeed")
            a.waits_in_barrier()
            say("A waits in the exit barrier")
        a.signal(signal.SIGTERM)
        say("A gets SIGTERM")
        ended = a.ends(DEAF_S)

    facts = [f"A ended with {ended}" if ended else f"A has not ended {DEAF_S:g} s after SIGTERM"]
    return judge(not ended, "an agent that got a signal waits for nobody", facts)


def orphaned_workers(say: Say, *, benign: bool = False) -> Observation:
    """A12. A is killed; its worker runs on, beside that of the agent that comes after it.

    Benign: A gets SIGTERM.
    """
    with Cluster(say, Options(nodes=(1, 1), beats_missed_max=2)) as cluster:
        a = cluster.node("A")
        a.starts()
        a.signal(signal.SIGTERM if benign else signal.SIGKILL)
        say(f"A gets {'SIGTERM' if benign else 'SIGKILL'}; B starts")
        b = cluster.node("B")
        b.starts()
        both = a.runs and b.runs
        ended = a.ended()

    facts = [
        f"A ended with {ended}" if benign else "A was killed",
        f"while B's worker runs, A's does {'too' if both else 'not'}",
    ]
    return judge(both, "workers of two rounds never run at once", facts)


def success_not_agreed(say: Say, *, benign: bool = False) -> Observation:
    """A13. A's workers succeed, and its exit barrier ends before B's fail: success on one node, failure on another.

    Benign: B's workers succeed in time.
    """
    with Cluster(say, Options(barrier_s=30 if benign else 1)) as cluster:
        a, b = cluster.two()
        a.do("succeed")
        if not benign:
            say(f"A ended with {a.ended()}, while B's workers {'run' if b.runs else 'are done'}")
        b.do("succeed" if benign else "fail always")
        ends = {"A": a.ended(), "B": b.ended()}

    facts = [f"{name} ended with {how}" for name, how in ends.items()]
    return judge(len(set(ends.values())) > 1 and SUCCEEDED in ends.values(), "there is one verdict on the job", facts)


def restarts_counted_apart(say: Say, *, benign: bool = False) -> Observation:
    """A14. max_restarts is 1. A worker of A fails, then one of B: the job restarts twice.

    Benign: both are of A.
    """
    with Cluster(say, Options(max_restarts=1)) as cluster:
        a, b = cluster.two()
        a.do("fail once")
        a.starts(2)
        b.starts(2)
        say("a worker of A has failed, and both have restarted: none is left")
        second = a if benign else b
        second.do("fail once")
        if benign:
            a.ended()
        else:
            wait_for(lambda: len(b.workers) > 2 or bool(b.ends(0)), "B restarts, or ends")
        restarts = max(len(node.workers) for node in (a, b)) - 1

    facts = [f"max_restarts is 1, and workers of one node were restarted {restarts} times after failures"]
    return judge(restarts > 1, "the job restarts no more often than it may", facts)


def stopped_agent(say: Say, *, benign: bool = False) -> Observation:
    """A15. B's agent alone is stopped. A drops it, and begins a new round, while B's worker runs on in the old one.

    Benign: for less than the heartbeats that it may miss.
    """
    with Cluster(say, Options(nodes=(1, 2), max_restarts=1, beats_missed_max=15 if benign else 2)) as cluster:
        a, b = cluster.two()
        wait_for(lambda: [s.group for s in a.steps[-1:]] == [s.group for s in b.steps[-1:]] != [], "they work together")
        first = b.steps[-1].group
        b.signal(signal.SIGSTOP)
        say("B's agent is stopped, its worker is not")
        if not benign:
            a.logs("Detected dead node")
            a.do("fail once")
            say("A has dropped B; A's worker fails, and A restarts")
            wait_for(lambda: a.steps[-1].group != first, "A works in a new group")
        time.sleep(TOGETHER_S)
        steps = [*a.steps, *b.steps]
        b.signal(signal.SIGCONT)

    late = [step for step in overtaken(steps) if step.agent == "B"]
    groups = len({step.group for step in steps if step.at >= late[0].at}) if late else 1
    facts = [f"B's agent was stopped; {groups} groups made progress at the same time"]
    return judge(bool(late), "two groups never make progress", facts)


def signal_closes(say: Say, *, benign: bool = False) -> Observation:
    """A16. A gets SIGTERM, as a drained node does. B's worker fails, and B restarts: A has closed the rendezvous.

    Since 2.8 a signal closes nothing: B begins a new round without A. Benign: A goes on.
    """
    with Cluster(say, Options(nodes=(1, 2), max_restarts=2, beats_missed_max=15 if benign else 2)) as cluster:
        a, b = cluster.two()
        if not benign:
            a.signal(signal.SIGTERM)
            say(f"A gets SIGTERM, and ends with {a.ended()}")
        b.do("fail once")
        say("a worker of B fails, B restarts")
        wait_for(lambda: len(b.workers) > 1 or bool(b.ends(0)), "B begins a new round, or ends")
        if benign:
            a.do("succeed")
        b.do("succeed")
        ended = b.ended()
        used = len(b.workers) - 1

    facts = [f"B ended with {ended}, after {used} of 2 restarts"]
    return judge(ended == CLOSED and used < 2, "nobody is told that it is over while a restart is left", facts)


def exchange_not_left(say: Say, *, benign: bool = False) -> Observation:
    """A17. B is killed when it has a round, before its number of workers is told: A waits for that, and ends.

    Benign: B is killed when its workers run.
    """
    options = Options(
        nodes=(1, 2), max_restarts=3, barrier_s=1, read_timeout_s=4, beats_missed_max=2,
        dies_with_a_round="" if benign else "B",
    )  # fmt: skip
    with Cluster(say, options) as cluster:
        if benign:
            a, b = cluster.two()
            b.signal(signal.SIGKILL)
            say("B is killed")
            a.do("succeed")
        else:
            a, b = cluster.node("A"), cluster.node("B")
            say(f"A and B have a round; B {b.ended()} before it has told its number of workers")
        ended = a.ended()

    facts = [f"A, which may run alone and has 3 restarts, ended with {ended}"]
    return judge(ended == "DistStoreError", "a death ends no other agent", facts)


# fmt: off
_CATALOGUE = Catalogue.of((
    ("A2", "leaving-closes", leaving_closes, "An agent leaves after success, and closes the rendezvous of another."),
    ("A4", "outage-ends-agent", outage_ends_agent, "The store is away for a while, and healthy workers are stopped."),
    ("A7", "spare-returns-nothing", spare_returns_nothing, "The job succeeds, and a spare raises AttributeError."),
    ("A11", "barrier-ignores-signals", barrier_ignores_signals, "An agent in the exit barrier does not hear SIGTERM."),
    ("A12", "orphaned-workers", orphaned_workers, "Workers of a killed agent run on beside those of the next."),
    ("A13", "success-not-agreed", success_not_agreed, "One agent ends with success, and another with failure."),
    ("A14", "restarts-counted-apart", restarts_counted_apart, "A job with one restart restarts twice."),
    ("A15", "stopped-agent", stopped_agent, "Workers of a stopped agent work on beside those of the next round."),
    ("A16", "signal-closes", signal_closes, "An agent gets SIGTERM, and closes the rendezvous of another."),
    ("A17", "exchange-not-left", exchange_not_left, "An agent dies as a round begins, and ends another."),
))
# fmt: on

SCENARIOS = _CATALOGUE.scenarios
CONTROLS = _CATALOGUE.controls
