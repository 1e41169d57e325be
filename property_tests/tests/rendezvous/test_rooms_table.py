"""The table of a room: each change in place has the effect of the function of `changes.py` with its name."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from itertools import product
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trystate.impl.rendezvous import changes, operators
from trystate.impl.rendezvous.operators import View
from trystate.impl.rendezvous.rooms.table import Table
from trystate.impl.rendezvous.state import LISTS, Node, Participant, Settings, State, natural
from trystate.model.rendezvous.vocabulary import Action, Membership
from trystate.property_tests.adapters.our_rendezvous.parts import participant, settings
from trystate.property_tests.support.mutants import Mutant, rewritten, survivors
from trystate.property_tests.support.nightly import examples

NODES = 6
MOVES = ("join", "join", "join", "exit", "withdraw", "withdraw", "expel", "notice", "drain", "done", "close")
RUNS, STEPS = 150, 60
OPERATOR = Participant(Node("operator", 1, 0, "operator"), "", 0)


def node(k: int) -> Participant:
    return replace(participant(k), rank_key=("", "rack2", "rack10")[k % 3])


def without_beats(state: State) -> State:
    lists: dict[str, Any] = {name: tuple(replace(p, written=0) for p in getattr(state, name)) for name in LISTS}
    return replace(state, **lists)


def changed(state: State | None, agreed: Settings, what: str, k: int, flags: list[bool]) -> tuple[str, tuple[Any, ...]]:
    """The function of `changes` that the rules allow for this move, and its arguments after the state and the node."""
    me = node(k)
    token = me.node.token
    if state is None:
        return ("add_to_participants", (agreed, "life")) if what == "join" else ("", ())
    if what == "join":
        other = all(flags) or (flags[3] and not any(state.listed()))
        mine = replace(agreed, max_restarts=7) if other else agreed
        action = operators.join(View(state, token, mine, late=flags[0] and flags[1], call_over=flags[2]))
        table: dict[Action, tuple[str, tuple[Any, ...]]] = {
            Action.ADD_TO_PARTICIPANTS: ("add_to_participants", (mine, "life")),
            Action.ADD_TO_WAIT_LIST: ("add_to_wait_list", ()), Action.WITHDRAW: ("withdraw", ()),
            Action.ADD_TO_REDUNDANCY_LIST: ("add_to_redundancy_list", ()),
            Action.MARK_RENDEZVOUS_COMPLETE: ("mark_complete", ()),
        }  # fmt: skip
        return table.get(action, ("", ()))
    membership, is_open = state.membership(token), state.closed is None
    member = operators.exit_(View(state, token, agreed)) is Action.REPLACE_ROUND
    if what == "exit" and member:
        return ("fail_for_good", ("a final exit code",)) if all(flags) else ("replace_round", tuple(flags[:3]))
    if what == "withdraw" and membership is not Membership.OUTSIDE:
        return "withdraw", ()
    silent = [p.node.token for p, lost in zip(state.listed(), flags, strict=False) if lost and p.node.token != token]
    if what == "expel" and is_open and silent:
        return "expel", (silent,)
    if what == "notice" and member:
        return "give_notice", (flags[0],)
    if what == "drain" and is_open and membership is not Membership.OUTSIDE and token not in state.draining:
        return "drain", (me.node,)
    if what == "done" and member:
        return "mark_done", ()
    return ("mark_closed", ("it is over", agreed, "life", "failed")) if what == "close" and all(flags[:3]) else ("", ())


def same() -> None:
    for seed in range(examples(RUNS)):
        run(random.Random(seed))


def run(rng: random.Random) -> None:
    low = rng.randint(1, 3)
    agreed = settings(low, low + rng.randint(0, 2), max_restarts=rng.choice([-1, 0, 2]))
    state: State | None = None
    table = Table("life", agreed)
    for _ in range(STEPS):
        what, k, flags = rng.choice(MOVES), rng.randrange(NODES), [rng.random() < 0.5 for _ in range(NODES)]
        name, arguments = changed(state, agreed, what, k, flags)
        if not name:
            continue
        me: Any = OPERATOR if name == "drain" else node(k)
        state = getattr(changes, name)(state, me, *arguments)
        whole = name.startswith("add_to_") or name == "replace_round"
        mine = [part for part in arguments if part != "life" and (name == "add_to_participants" or part != agreed)]
        getattr(table, name)(me if whole else me.node, *mine)
        assert state is not None and table.frozen() == without_beats(state), (what, name)
        assert Table.of(state).frozen() == state
        assert table.ranks == ({p.node.token: r for r, p in enumerate(state.participants)} if state.complete else {})
        for p in state.listed():
            assert table.membership(p.node.token) is state.membership(p.node.token)
        assert (table.seats, table.calling, table.size) == (state.seats, state.calling, len([*state.listed()]))


def test_each_change_in_place_has_the_effect_of_its_function() -> None:
    same()


# fmt: off
MUTANTS: dict[str, Mutant] = {
    "a full round is not complete at once": rewritten(Table._committed, "not self.complete and len", "False and len"),
    "a call is not counted": rewritten(Table._committed, "self.calling and not calling", "False"),
    "ranks in the order of arrival": rewritten(
        Table._sorted, "sorted(tokens, key=self._orders.__getitem__)", "list(tokens)"),
    "a restart is not spent": rewritten(Table._spend, "self.settings.max_restarts >= 0", "0"),
    "the drained take seats": rewritten(Table._promote, " - self.draining.keys()", ""),
    "seats are given in a complete round": rewritten(Table.withdraw, "member or frees", "True"),
    "an expelled member's round stays": rewritten(Table.expel, "if member:", "if False:"),
    "the last success closes nothing": rewritten(
        Table.mark_done, "self.done.keys() >= self.participants.keys()", "False"),
    "new settings keep the spent restarts": rewritten(
        Table.add_to_participants, "if settings == self.settings else 0", ""),
}
# fmt: on


def test_the_comparison_detects_each_mistake_of_a_change() -> None:
    assert survivors(MUTANTS, same) == []


def reference(text: str) -> tuple[tuple[int, int, str], ...]:
    parts = re.split(r"(\d+)", text)
    return tuple((1, int(part), "") if part.isdecimal() else (0, 0, part) for part in parts if part)


WORDS = ["rack", "node", "n", "", "a-", "0", "00", "1", "02", "2", "10", "9", "z", "é", "10.0.0.", "\0", "\1", "٣", "²"]
NAMES = st.lists(st.sampled_from(WORDS) | st.text(max_size=3), max_size=4).map("".join)


@given(st.lists(NAMES, min_size=2, max_size=8), st.integers(0, 1 << 53), st.integers(0, 1 << 53))
def test_keys_of_bytes_sort_like_texts_and_numbers(names: list[str], one: int, two: int) -> None:
    for a, b in product(names, names):
        assert (natural(a) < natural(b)) == (reference(a) < reference(b)), (a, b)
    listed = [Participant(Node(a, pid, 0, "t"), "", 0, 0, b) for a, b in product(names, names) for pid in (one, two)]
    whole = sorted(listed, key=lambda p: (reference(p.rank_key), reference(p.node.address), p.node.pid))
    assert sorted(listed, key=lambda p: p.order) == whole
