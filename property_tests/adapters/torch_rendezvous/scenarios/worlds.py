"""R3, R4 and R5: members of one round are told different worlds.

Rule: each scenario delays one poll, ends one process or shifts one clock, and no more.
The cause of all three: the round is completed by the last node to join, but each member reads its rank and
its world from the state as it is at its own next poll, up to a second later (`_get_world`).
"""

from ...replays import Observation, Say, judge
from .nodes import Cluster, Settings, wait_until_aged
from .observation import disagree_on_world

WORLDS_AGREE = "the members of a round agree on its world and ranks"


def fast_exit(say: Say, *, benign: bool = False) -> Observation:
    """R3. A completes the round and leaves it again before B has polled; B is left alone in the same round.

    `_RendezvousExitOp` removes A from a complete round whose ranks are already assigned. B's poll is held at
    its backend. A sorts first: at its first join a rank 1 waits for rank 0's master
    (`RendezvousStoreInfo.build`). Benign: B polls before A leaves.
    """
    settings = Settings(min_nodes=2, max_nodes=2)
    with Cluster(say) as cluster:
        a, b = cluster.node("A", 1, settings), cluster.node("B", 2, settings)
        poll = b.backend.hold("get", after_writes=1)
        b_call = b.join()
        cluster.until(lambda peek: "B" in peek.participants, "B has joined; its next poll is late")
        seat_a = a.join().value()
        say(f"{seat_a}; its worker fails at once")
        if benign:
            poll.open()
            b_call.value()
        a.join()
        cluster.until(lambda peek: "A" not in peek.participants, "A has called next_rendezvous again: it is out")
        poll.open()
        seat_b = b_call.value()
        say(str(seat_b))

    facts = [str(seat_a), str(seat_b), f"min_nodes is {settings.min_nodes}"]
    return judge(disagree_on_world([seat_a, seat_b]), WORLDS_AGREE, facts)


def death_in_window(say: Say, *, benign: bool = False) -> Observation:
    """R4. B dies; C's join completes the round with B counted; A polls after B expired and does not count it.

    `_sanitize` removes B from A's local copy only, and leaves the ranks as they were. A's poll is held at its
    backend until B's heartbeat is older than the window and A's own is not. Benign: A polls at once.
    """
    settings = Settings(min_nodes=3, max_nodes=3, beats_missed_max=3)
    with Cluster(say) as cluster:
        a, b = cluster.node("A", 3, settings), cluster.node("B", 2, settings)
        b.backend.hold("get", after_writes=1)
        b.join()
        beat_b = cluster.until(lambda peek: "B" in peek.participants, "B has joined").beats["B"]
        b.die()
        say("B dies; until its window has passed nobody can know")

        # A must expire later than B, or at its poll it would remove itself: it joins a second after B.
        wait_until_aged(beat_b, 1.2)
        poll = a.backend.hold("get", after_writes=1)
        a_call = a.join()
        cluster.until(lambda peek: "A" in peek.participants, "A has joined; its next poll is late")
        seat_c = cluster.node("C", 1, settings).join().value()
        say(str(seat_c))
        if not benign:
            wait_until_aged(beat_b, settings.window_s + 0.05)
        poll.open()
        seat_a = a_call.value()
        say(str(seat_a))

    return judge(disagree_on_world([seat_a, seat_c]), WORLDS_AGREE, [str(seat_c), str(seat_a)])


def clock_skew(say: Say, *, benign: bool = False) -> Observation:
    """R5. B's wall clock is a minute ahead: to B every other node is long dead.

    `_sanitize` compares a heartbeat written by another node's clock with this node's own. The `datetime` of
    dynamic_rendezvous.py is replaced by one that is shifted for B's threads only. Benign: B's clock is a
    quarter of a second ahead, which is less than the window.
    """
    settings = Settings(min_nodes=2, max_nodes=2, beats_missed_max=3)
    ahead_s = 0.25 if benign else 60.0
    with Cluster(say) as cluster:
        a, b = cluster.node("A", 1, settings), cluster.node("B", 2, settings)
        cluster.shift_clock(b, ahead_s)
        say(f"B's clock is {ahead_s} s ahead; a heartbeat lives for {settings.window_s} s")
        seats = cluster.join_together(a, b)
        if not benign:
            cluster.until(lambda peek: "A" not in peek.participants, "A is removed from the shared state")
        a_removed = a.alive and "A" not in cluster.peek().participants

    facts = [str(seat) for seat in seats]
    facts.append(f"A, alive all the time, was {'' if a_removed else 'not '}removed by B")
    return judge(disagree_on_world(seats) and a_removed, WORLDS_AGREE, facts)
