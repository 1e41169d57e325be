"""The change that follows from an intent: a request of a node or an operator, other than the join of a newcomer.

Rule: an intent of a member is about one round, by its life and number. To another round it is not applied, so
repeating is harmless. A room (rooms/room.py) and an engine with a document (engine.py) apply intents by this rule.
"""

from __future__ import annotations

from typing import Any, cast

from trystate.model.errors import UsageError
from trystate.model.rendezvous.vocabulary import Action

from . import operators
from .changes import Table, after
from .operators import View
from .rooms.messages import ANYWAY, CLOSE, DONE, DRAIN, FAILED, JOIN, LEASED, LEAVE, NOTICE, STEP_OUT, Intent
from .state import State

Change = tuple[str, tuple[Any, ...]]  # the name of a method of `Table`, and its arguments


def change_of(t: State | Table, intent: Intent) -> Change | None:
    """The change that follows from an intent; None: the rules do not allow it.

    A JOIN is an intent only of a member, which replaces its round. Raises UsageError: a drain is refused.
    """
    kind, token, by = intent.kind, intent.token, intent.by
    me, is_open = t.find(token), t.closed is None
    view = View(cast("State", t), token, t.settings)  # a table has what an operator reads of a state
    if kind == CLOSE and by is not None:
        if (is_open and intent.flags & ANYWAY) or operators.close(view) is Action.MARK_RENDEZVOUS_CLOSED:
            return "mark_closed", (by, intent.reason, intent.verdict)
    elif kind == DRAIN and by is not None:
        there = t.find(intent.whom)
        if is_open and there is not None and intent.whom not in t.draining:
            stay = sum(p.node.token not in (intent.whom, *t.draining) for p in t.listed())
            why = t.settings.refusal_of_drain(there.node, stay, len(t.done))
            if why and not intent.flags & ANYWAY:
                raise UsageError(why)
            return "drain", (by, there.node)
    elif kind == LEAVE and me is not None:
        # A member whose workers have succeeded stays listed until the end: the others count its success.
        if not is_open or token not in t.done:
            return "withdraw", (me.node,)
    elif me is not None and intent.of == (t.life, t.round) and operators.exit_(view) is Action.REPLACE_ROUND:
        failed = bool(intent.flags & FAILED)
        if kind == JOIN and failed and intent.reason:
            return "fail_for_good", (me.node, intent.reason)
        if kind in (JOIN, STEP_OUT):
            return "replace_round", (intent.me or me, failed, bool(intent.flags & LEASED), kind == STEP_OUT)
        if token not in t.done and kind == NOTICE:
            return "give_notice", (me.node, True)
        if token not in t.done and kind == DONE:
            return "mark_done", (me.node,)
    return None


def applied(state: State | None, intent: Intent) -> State | None:
    """The value to write for an intent; None: the rules do not allow it. Raises UsageError: a drain is refused."""
    change = change_of(state, intent) if state is not None else None
    if state is None or change is None:
        return None
    name, arguments = change
    return after(state, getattr(Table, name), *arguments)


def exit_flags(failed: bool, leased: bool, lapsed: bool) -> int:
    """The flags of an intent with which a member replaces its round.

    If the store is away for longer than a lease, every agent stops its workers at the end of its own lease. An agent
    whose lease ends a little later finds that its workers have failed, because they have lost their peers. A node
    whose lease is over does not report that failure: an outage of the store spends no restart of the job.
    """
    return FAILED * (failed and leased) | LEASED * (leased and not lapsed)
