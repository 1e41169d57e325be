"""The waits of the nodes: for which node, since when, the event that would end each, and the reason why it is missing.

Rule: only living nodes, whose phase is the same in every possible state, have a wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trystate.impl.host.visible import some
from trystate.model.rendezvous.vocabulary import AgentPhase, Membership

from .nodes import Peer
from .shared_state import NodeName, Protocol

if TYPE_CHECKING:
    from .follower import Follower

NAMED_MAX = 4  # nodes in one text
AGENTS = {  # keys by which torch's agents exchange data, and the text for a wait for each
    "role_info/": "the agent of rank {} to write its role",
    "assigned_ranks/": "rank 0 to write the ranks of all workers",
    "last_member": "the agents of all nodes to end",
}


@dataclass(frozen=True, slots=True)
class Wait:
    """One node that waits. Times in seconds of the recorder's clock."""

    node: str
    on: str  # it waits for this
    whom: tuple[str, ...]  # the nodes that could bring it
    since: float
    needs: str  # the event that would end it
    why: str = ""  # the reason why the event does not happen; empty: it still may

    def __str__(self) -> str:
        why = f"; but {self.why}" if self.why else ""
        return f"{self.node} waits for {self.on}: {self.needs}{why}"


def waits(follower: Follower) -> Iterator[Wait]:
    """Each node that waits, in the order of the ranks."""
    for k, peer in enumerate(follower.roster.peers):
        if peer.gone is not None:
            continue
        phases = {follower.lens.phase(state, k) for state in follower.states}
        if len(phases) > 1:
            continue
        found = _of(follower, k, peer, phases.pop())
        if found is not None:
            yield found


def _of(follower: Follower, k: int, peer: Peer, phase: AgentPhase) -> Wait | None:
    if follower.snapshot.closed:
        return None
    if phase is AgentPhase.CONNECTING:
        return _for_a_master(follower, k, peer)
    if phase in (AgentPhase.EXITING, AgentPhase.JOINING):
        return _for_a_round(follower, peer)
    if phase in (AgentPhase.EXCHANGING, AgentPhase.RUNNING, AgentPhase.DONE) and peer.blocked is not None:
        return _for_an_agent(follower, k, peer)
    if phase is AgentPhase.RUNNING:
        return _for_the_gone(follower, k, peer)
    return None


def _for_a_round(follower: Follower, peer: Peer) -> Wait | None:
    """The wait of a joining node."""
    snapshot, who = follower.snapshot, peer.who
    members, expected = snapshot.listed(Membership.PARTICIPANT), snapshot.listed(Membership.EXPECTED)
    listed = snapshot.members.get(who, Membership.OUTSIDE)
    low = follower.low
    if snapshot.complete and listed is Membership.WAITING:
        needs = "a member has to notice it, stop its workers and begin the next round"
        return Wait(str(peer), "the next round", _names(members), peer.moved, needs, _why_no_round(follower, members))
    if snapshot.complete and listed is Membership.REDUNDANT:
        needs = "a member of the full round has to leave"
        return Wait(str(peer), "a seat, as a spare", _names(members), peer.moved, needs)
    if snapshot.complete or listed is Membership.OUTSIDE:
        return None
    others = [one for one in expected if one != who]
    if others:
        needs = "each of them has to come, to leave or to be expelled"
        why = _of_gone(follower, others, f"expelled after {follower.window:g} s without a heartbeat")
        on = f"{_some(others)}, expected from round {snapshot.round - 1}"
        return Wait(str(peer), on, _names(others), peer.moved, needs, why)
    if low is None or len(members) < low:
        more = "more nodes" if low is None else f"{low - len(members)} more to join ({len(members)} of {low})"
        return Wait(str(peer), more, (), peer.moved, "they have to be started with this endpoint and run id")
    return Wait(str(peer), "the end of the last call", _names(members), peer.moved, "its time has to pass")


def _why_no_round(follower: Follower, members: list[NodeName]) -> str:
    """The reason why no member of a complete round begins the next one."""
    places = [(one, follower.roster.index(one)) for one in members]
    phases = {one: {follower.lens.phase(s, k) for s in follower.states} for one, k in places}
    gone = [one for one, k in places if follower.roster.peers[k].gone is not None]
    blocked = [one for one in members if phases[one] == {AgentPhase.CONNECTING}]
    if gone and len(gone) == len(members):
        return f"{_some(gone)} {_have(gone)} gone"
    if len(blocked) + len(gone) == len(members):
        return f"{_some(blocked)} {_have(blocked, 'waits', 'wait')} for the master's address and for nothing else"
    return ""


def _for_a_master(follower: Follower, k: int, peer: Peer) -> Wait:
    """The wait of a torch member for the address of its round's master."""
    state = next(iter(follower.states))
    since = peer.blocked[2] if peer.blocked is not None else peer.moved
    get, peers = follower.stepper.get, follower.roster.peers
    saw = follower.stepper.row(state, "saw", k)
    members = [j for j in range(len(peers)) if saw[j]]
    needs = "the member with rank 0 has to publish the address under the prefix of the round"
    if not members:
        return Wait(str(peer), "the master's address", (), since, needs, "its round was replaced before it returned")
    first = peers[members[0]]
    phase = follower.lens.phase(state, members[0])
    why = ""
    if first.gone is not None:
        why = f"{first} has gone"
    elif phase in (AgentPhase.EXCHANGING, AgentPhase.RUNNING) and get(state, "master", members[0]) != 0:
        why = f"{first} has kept the master of an earlier round, and does not publish it again"
    elif not get(state, "returned", members[0]) and phase in (AgentPhase.EXITING, AgentPhase.JOINING):
        why = f"{first} has left the round again" if not get(state, "member", members[0]) else ""
    elif get(state, "stalled", members[0]):
        why = f"{first} is stopped"
    return Wait(str(peer), "the master's address", (str(first),), since, needs, why)


def _for_an_agent(follower: Follower, k: int, peer: Peer) -> Wait | None:
    """The wait of a torch agent for ranks, or for the end of the others, by keys below the round's prefix."""
    assert peer.blocked is not None
    _, missing, since = peer.blocked
    key = missing[0] if missing else peer.blocked[0]
    for part, text in AGENTS.items():
        if part not in key:
            continue
        tail = key.rsplit("/", 1)[-1]
        saw = follower.stepper.row(next(iter(follower.states)), "saw", k)
        ranked = {p.rank: p for j, p in enumerate(follower.roster.peers) if p.rank is not None and saw[j]}
        wanted = 0 if part == "assigned_ranks/" else int(tail) if tail.isdecimal() and len(tail) < 9 else None
        other = ranked.get(wanted) if wanted is not None else None
        members = [p for j, p in enumerate(follower.roster.peers) if saw[j] and p.rank is None and p is not peer]
        whom = [other] if other is not None else members if part == "role_info/" else []
        gone = [one for one in whom if one.gone is not None]
        why = f"{_some([p.who for p in gone])} {_have([p.who for p in gone])} gone" if gone else ""
        if part == "role_info/" and not whom:
            why = "no such member is left in the round: its world is now smaller than this node's"
        needs = f"{'/'.join(key.rsplit('/', 2)[-2:])} has to be set"
        return Wait(str(peer), text.format(tail), tuple(map(str, whom)), since, needs, why)
    return None


def _for_the_gone(follower: Follower, k: int, peer: Peer) -> Wait | None:
    """The wait of a torch node whose workers need a member that has gone."""
    if follower.protocol is Protocol.OURS:
        return None  # it is expelled, and the round replaced
    saw, peers = follower.stepper.row(next(iter(follower.states)), "saw", k), follower.roster.peers
    gone = [p for j, p in enumerate(peers) if saw[j] and p.gone is not None]
    if not gone:
        return None
    since = max(p.gone for p in gone if p.gone is not None)
    names = [p.who for p in gone]
    needs = "its own workers have to fail, or another node has to join"
    why = f"{_some(names)} {_have(names)} gone, and an agent gets no notice of a lost member"
    return Wait(str(peer), f"its workers, which may wait for {_some(names)}", _names(names), since, needs, why)


def _of_gone(follower: Follower, nodes: list[NodeName], text: str) -> str:
    peers = [follower.roster.peers[follower.roster.index(one)] for one in nodes]
    gone = [p.who for p in peers if p.gone is not None]
    return f"{_some(gone)} {_have(gone)} gone, and will be {text}" if gone else ""


def _names(nodes: list[NodeName]) -> tuple[str, ...]:
    return tuple(map(str, nodes))


def _some(nodes: list[NodeName]) -> str:
    return some([*_names(nodes)], NAMED_MAX)


def _have(nodes: list[NodeName], one: str = "has", many: str = "have") -> str:
    return one if len(nodes) == 1 else many
