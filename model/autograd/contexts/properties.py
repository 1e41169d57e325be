"""The properties of a context, the same for both editions.

docs/language.md describes how to read a property; `../findings.py` lists the violations by edition.
"""

from __future__ import annotations

from ...language import *
from ..vocabulary import CallState, CleanUp, Edition, Shipped
from .environment import Environment
from .fields import S


class Contexts(Environment):
    """A context from its creation to its release on every worker that had it."""

    title = "A context"
    Edition = (Edition.TORCH, Edition.TRYSTATE)

    @terminal
    def at_rest(self, s: S) -> Condition:
        """The context is left, and all is quiet."""
        return self.is_left(s) & self.is_quiet(s)

    @sometimes()
    def everybody_has_it(self, s: S) -> Condition:
        """Calls take the context to every worker."""
        return all_(s.has)

    @sometimes()
    def a_call_outlives_the_context(self, s: S) -> Condition:
        """A call is on its way, or runs, when its creator has left the context."""
        return self.is_left(s) & any_(
            s.call[j].isin((CallState.REQUESTED, CallState.RUNNING)) & ~s.dead[j] for j in s.worker
        )

    @sometimes()
    def clean_up_comes_first(self, s: S) -> Condition:
        """A worker receives CLEAN before the call that would have brought the context."""
        untold = all_(s.clean[i, j] == CleanUp.NONE for j in s.worker for i in s.worker)
        return self.is_left(s) & untold & s.call.any(CallState.REQUESTED)

    @sometimes()
    def a_pass_runs_elsewhere(self, s: S) -> Condition:
        """A worker's part of a pass runs."""
        return any_(s.has[j] & (s.shipped[j] == Shipped.RUNNING) for j in s.worker)

    @always(witness="everybody_has_it")
    def released_is_for_good(self, s: S) -> Condition:
        """Where a context was released it never exists again."""
        return ~any_(s.has[j] & s.over[j] for j in s.worker)

    @always(witness="everybody_has_it")
    def after_exit_and_quiet_nobody_has_it(self, s: S) -> Condition:
        """When the context is left and all is quiet, no worker has it."""
        return implies(self.is_left(s) & self.is_quiet(s), ~any_(s.has))

    @always(witness="everybody_has_it")
    def no_thread_stays_in_a_context(self, s: S) -> Condition:
        """The current context of a thread that serves a call ends with the call."""
        return all_(implies(s.inside[j], s.call[j] == CallState.RUNNING) for j in s.worker)

    @always(witness="everybody_has_it")
    def what_is_released_is_not_in_use(self, s: S) -> Condition:
        """No part of a pass continues in a context that was released there."""
        return ~any_(s.over[j] & (s.shipped[j] == Shipped.RUNNING) & ~s.dead[j] for j in s.worker)

    @always(witness="everybody_has_it")
    def no_callback_touches_what_is_gone(self, s: S) -> Condition:
        """No callback writes to a context that was released."""
        return ~s.crashed

    @leads_to()
    def clean_up_reaches_everybody(self, s: S, worker: Expr) -> Condition:
        """When the creator has left or is dead, every worker that has the context finally releases it."""
        return self.is_left(s) & s.has[worker], ~s.has[worker]
