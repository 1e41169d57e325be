"""Changes of the shared state, in words. The model's edges and the simulator's swarm make all other claims about them.

Each mutant of a change is detected by one of the three.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from trystate.impl.rendezvous.encoding import decode, encode
from trystate.impl.rendezvous.state import REASON_LENGTH_MAX, Closed, Node, Participant, Settings, State, natural
from trystate.property_tests.adapters.our_rendezvous.parts import changed, participant, settings, tokens


def complete(*ks: int, agreed: Settings | None = None) -> State:
    """A complete round of these nodes."""
    state = State("life", agreed or settings(2, 3))
    for k in ks:
        state = changed("add_to_participants", state, participant(k), agreed or settings(2, 3))
    return state if state.complete else changed("mark_complete", state, participant(ks[0]))


def test_a_long_reason_is_cut_so_that_everybody_can_read_the_state() -> None:
    state = changed("mark_closed", complete(0, 1), participant(0), "x" * 5000)
    assert state.closed is not None and state.closed.reason == "x" * REASON_LENGTH_MAX
    assert decode(encode(state)) == state


def test_a_cause_names_some_nodes_and_counts_the_others() -> None:
    state = complete(*range(9), agreed=settings(1, 9))
    lost = [f"token-{k}" for k in range(1, 9)]
    assert changed("expel", state, participant(0), lost).cause == (
        "node0_100_0 expelled node1_101_0, node2_102_0, node3_103_0, node4_104_0, node5_105_0 and 3 more: "
        "no heartbeat for 15 s"
    )
    long = replace(participant(0), node=replace(participant(0).node, address="x" * 1024))
    assert len(changed("replace_round", state, long).cause) == REASON_LENGTH_MAX
    wordy = replace(state, settings=settings(1, 9, max_restarts=0), participants=(long, *state.participants[1:]))
    closed = changed("expel", wordy, participant(1), ["token-0"]).closed
    assert closed is not None and len(closed.reason) == REASON_LENGTH_MAX


def test_a_replaced_round_has_its_cause_and_a_last_loss_closes() -> None:
    """Each replaced round has its cause; without a restart left, the loss of a member closes the rendezvous."""
    state, me = complete(0, 1), participant(0)
    for then, why in (
        (changed("replace_round", state, me), "its agent restarts the workers"),
        (changed("replace_round", state, me, leased=False), "it comes back after the end of its lease"),
        (changed("replace_round", state, me, failed=True), "its workers failed"),
        (changed("give_notice", state, me, leaving=True), "it is about to leave"),
    ):
        assert then.cause == f"node0_100_0: {why}"
    given = changed("give_notice", changed("add_to_wait_list", state, participant(2)), me, leaving=False)
    assert (given.cause, tokens(given.participants)) == ("node2_102_0 waited for a seat", ["token-2"])
    last = complete(0, 1, agreed=settings(2, 3, max_restarts=0))
    for then, why in (
        (changed("withdraw", last, me), "a member left"),
        (changed("give_notice", last, me, leaving=True), "a member left"),
        (changed("replace_round", last, me, failed=True), "its workers failed"),
        (changed("expel", last, me, ["token-1"]), "no heartbeat of node1_101_0 for 15 s"),
    ):
        assert then.closed == Closed("node0_100_0", f"{why}, and no restart is left", "failed")
    for then in (
        changed("replace_round", last, me),
        changed("give_notice", last, me, leaving=False),
        changed("expel", changed("add_to_wait_list", last, participant(2)), me, ["token-2"]),
        changed("withdraw", state, me),
    ):
        assert then.closed is None
    done = changed("mark_done", last, me)
    assert (done.closed, done.revision) == (None, last.revision)
    assert changed("mark_done", done, participant(1)).done == ("token-0", "token-1")
    assert changed("mark_closed", None, me, "over").closed is not None


def reference(text: str) -> tuple[tuple[int, int, str], ...]:
    parts = re.split(r"(\d+)", text)
    return tuple((1, int(part), "") if part.isdecimal() else (0, 0, part) for part in parts if part)


WORDS_OF_NAMES = ["rack", "node", "n", "", "a-", "0", "00", "1", "02", "2", "10", "9", "z", "é", "10.0.0.", "\0", "\1",
                  "٣", "²"]  # fmt: skip
NAMES = st.lists(st.sampled_from(WORDS_OF_NAMES) | st.text(max_size=3), max_size=4).map("".join)


@given(st.lists(NAMES, min_size=2, max_size=8), st.integers(0, 1 << 53), st.integers(0, 1 << 53))
def test_keys_of_bytes_sort_like_texts_and_numbers(names: list[str], one: int, two: int) -> None:
    for a, b in product(names, names):
        assert (natural(a) < natural(b)) == (reference(a) < reference(b)), (a, b)
    listed = [Participant(Node(a, pid, 0, "t"), "", 0, 0, b) for a, b in product(names, names) for pid in (one, two)]
    whole = sorted(listed, key=lambda p: (reference(p.rank_key), reference(p.node.address), p.node.pid))
    assert sorted(listed, key=lambda p: p.order) == whole
