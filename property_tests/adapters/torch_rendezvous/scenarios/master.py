"""R1, R2 and R16: the members of a round are sent to different masters, or to none.

Rule: only the order of ordinary joins and restarts is scripted; nothing dies and no clock is touched.
The cause of all is in `DynamicRendezvousHandler.next_rendezvous`: the bootstrap information is built once, and since
2.13 again by a rank 0 that has no server yet, while the store it is read from has a prefix per round.
The controls set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1, with which it is built every round.
"""

from torch.distributed import DistStoreError
from torch.distributed.elastic.rendezvous.api import RendezvousStoreInfo

from ...replays import Observation, Say, judge
from .nodes import RUN_ID, Call, Cluster, Node, Settings
from .observation import Seat, disagree_on_master

MASTERS_AGREE = "the members of a round agree on the master"


def master_not_republished(say: Say, *, benign: bool = False) -> Observation:
    """R1. A keeps rank 0 while B joins: A does not publish its master again, and B waits until the timeout.

    TCPStore itself warns of that timeout on the standard error output.

    Benign: store sharing is off, so that A publishes a master in every round.
    """
    settings = Settings(min_nodes=1, max_nodes=2, store_s=2)
    with Cluster(say, share_store=not benign) as cluster:
        a, b = cluster.node("A", 1, settings), cluster.node("B", 2, settings)
        cluster.join_together(a)

        b_call = b.join()
        cluster.until(lambda peek: "B" in peek.waiting, "B waits for the next round")
        seat_a = _restart(cluster, a)[0].value()
        say(f"{seat_a}, master {seat_a.master}")
        b_error = b_call.finish()
        say(f"B got {b_error!r}" if b_error else str(b_call.value()))

        # `_wrap_store` gives every round a prefix of its own; RendezvousStoreInfo.build reads under it.
        key = f"torch.rendezvous.{RUN_ID}.{seat_a.round}/{RendezvousStoreInfo.MASTER_ADDR_KEY}"
        published = a.handler._store.check([key])
        rank_b = cluster.peek().participants.get("B")

    facts = [
        f"{seat_a}, master {seat_a.master}",
        f"B is rank {rank_b} of that round; it got "
        + (type(b_error).__name__ if b_error else f"master {b_call.value().master}"),
        f"the master of round {seat_a.round} was {'' if published else 'never '}published",
    ]
    left_without = isinstance(b_error, DistStoreError) and not published and rank_b is not None
    return judge(left_without, MASTERS_AGREE, facts)


def stale_master(say: Say, *, benign: bool = False) -> Observation:
    """R2. C sorts first and becomes rank 0 of round 1; A and B stay with the cached master of round 0.

    Benign: store sharing is off, so that every member reads the master in every round.
    """
    settings = Settings(min_nodes=2, max_nodes=3)
    with Cluster(say, share_store=not benign) as cluster:
        a, b = cluster.node("A", 2, settings), cluster.node("B", 3, settings)
        cluster.join_together(a, b)

        c_call = cluster.node("C", 1, settings).join()
        cluster.until(lambda peek: "C" in peek.waiting, "C, which sorts first, waits for the next round")
        seats: list[Seat] = [call.value() for call in (c_call, *_restart(cluster, a, b))]

    facts = [f"{seat}, master {seat.master}" for seat in seats]
    for fact in facts:
        say(fact)
    return judge(disagree_on_master(seats), MASTERS_AGREE, facts)


def new_master_asserts(say: Say, *, benign: bool = False) -> Observation:
    """R16. B, led by A until then, becomes rank 0: next_rendezvous asserts, and S, rank 1, gets no master.

    A leaves the round after a failure and is slow to come back, so that the spare S takes its place. In 2.13 B starts a
    server. Benign: store sharing is off, so that rank 0 publishes a master in every round.
    """
    settings = Settings(min_nodes=2, max_nodes=2, store_s=2)
    with Cluster(say, share_store=not benign) as cluster:
        a, b = cluster.node("A", 1, settings), cluster.node("B", 2, settings)
        spare = cluster.node("S", 3, settings)
        cluster.join_together(a, b)
        s_call = spare.join()
        cluster.until(lambda peek: "S" in peek.redundant, "S is a spare")
        a.backend.hold("get", "set", after_writes=1)
        a.join()
        cluster.until(lambda peek: "S" in peek.waiting, "A's worker fails, A leaves the round; S sees a place")
        b_call = b.join()
        ranks = cluster.until(lambda peek: {"B", "S"} <= set(peek.participants) and peek.complete, "B and S meet")
        got = {"B": _got(b_call), "S": _got(s_call)}

    facts = [f"{name} is rank {ranks.participants[name]}; it got {what}" for name, what in got.items()]
    for fact in facts:
        say(fact)
    return judge(got["B"] == AssertionError.__name__ and ranks.participants["B"] == 0, MASTERS_AGREE, facts)


def _got(call: Call[Seat]) -> str:
    """The master that `next_rendezvous` returned, or the name of what it raised."""
    error = call.finish()
    return type(error).__name__ if error else f"master {call.value().master}"


def _restart(cluster: Cluster, *members: Node) -> list[Call[Seat]]:
    """Agents that see a waiting node join again: `SimpleElasticAgent._invoke_run`, agent/server/api.py."""
    cluster.say(f"restart for the waiting node: {', '.join(map(str, members))}")
    return [member.join() for member in members]
