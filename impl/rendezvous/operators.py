"""Operators: a node's next action, from its view; one function for each operator, one branch for each of its rules.

These functions are written by hand. Tests show that they decide like the tables of `model/rendezvous/operators.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from trystate.model.rendezvous.vocabulary import Action, Membership

from .state import Settings, State

OUTSIDE, PARTICIPANT, EXPECTED = Membership.OUTSIDE, Membership.PARTICIPANT, Membership.EXPECTED
WAITING, REDUNDANT = Membership.WAITING, Membership.REDUNDANT


@dataclass(frozen=True, slots=True)
class View:
    """The inputs of an operator: the state as it was read, the node itself, and facts from its own clock."""

    state: State | None
    token: str
    settings: Settings
    late: bool = False  # its join deadline has passed
    lease: bool = True  # it confirmed a heartbeat within its lease
    beat_due: bool = False
    call_over: bool = False  # it has observed this last call for long enough
    silent: frozenset[str] = frozenset()  # nodes without a new heartbeat for the window

    @property
    def membership(self) -> Membership:
        return self.state.membership(self.token) if self.state is not None else OUTSIDE

    @property
    def drained(self) -> bool:
        """Whether an operator has marked this node."""
        return self.state is not None and self.token in self.state.draining

    @property
    def agrees(self) -> bool:
        """Whether the settings equal the settings of the rendezvous; the first node of an empty one sets them."""
        return self.state is None or self.settings == self.state.settings or not any(self.state.listed())


def join(view: View) -> Action:
    """Become a member of the next complete round, or wait for one."""
    state, membership = view.state, view.membership
    if state is None:
        return Action.ERROR_TIMEOUT if view.late else Action.ADD_TO_PARTICIPANTS
    if state.closed is not None:
        return Action.ERROR_CLOSED
    if not view.agrees:
        return Action.ERROR_SETTINGS
    if view.drained:
        return Action.WITHDRAW
    if membership is not OUTSIDE and not view.lease:
        return Action.KEEP_ALIVE
    if state.complete and membership is PARTICIPANT:
        return Action.FINISH
    if view.late and membership is not REDUNDANT:
        return Action.ERROR_TIMEOUT if membership is OUTSIDE else Action.WITHDRAW
    return _join_in_time(view, state, membership)


def _join_in_time(view: View, state: State, membership: Membership) -> Action:
    if state.complete and state.seats > 0 and membership is not WAITING:
        return Action.ADD_TO_WAIT_LIST
    if membership is PARTICIPANT:
        if state.calling and view.call_over and not state.expected:
            return Action.MARK_RENDEZVOUS_COMPLETE
    elif membership is EXPECTED or (not state.complete and state.seats > 0):
        return Action.ADD_TO_PARTICIPANTS
    elif state.seats <= 0 and membership is not REDUNDANT:
        return Action.ADD_TO_REDUNDANCY_LIST
    return Action.KEEP_ALIVE if view.beat_due else Action.SYNC


def exit_(view: View) -> Action:
    """Replace the node's complete round before it joins again."""
    state = view.state
    if state is None or state.closed is not None or not state.complete:
        return Action.FINISH
    return Action.REPLACE_ROUND if view.membership is PARTICIPANT else Action.FINISH


def expel(view: View) -> Action:
    """Take silent nodes off the lists; replace a complete round that loses a member."""
    if view.state is None or view.state.closed is not None:
        return Action.FINISH
    return Action.EXPEL if view.silent else Action.FINISH


def keep_alive(view: View) -> Action:
    """Write a heartbeat when it is due and the node is still listed."""
    return Action.KEEP_ALIVE if view.beat_due and view.membership is not OUTSIDE else Action.FINISH


def close(view: View) -> Action:
    """Close the rendezvous for all nodes permanently; only a member may."""
    if view.state is None or view.state.closed is not None:
        return Action.FINISH
    member = view.membership in (PARTICIPANT, EXPECTED)
    return Action.MARK_RENDEZVOUS_CLOSED if member else Action.FINISH
