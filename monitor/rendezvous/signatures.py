"""The signature of each finding in a record: the violated property, and the steps that distinguish similar findings.

Rule: data; the first row that fits names the finding. Only steps since the round began count: one in `any_of` must have
happened, and none in `none_of`. Findings whose cause a record cannot show (clocks, settings of one node) have no row.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from trystate.model.agent.findings import FINDINGS as OF_AGENTS
from trystate.model.checker.expectations import Finding
from trystate.model.rendezvous.findings import FINDINGS as OF_RENDEZVOUS
from trystate.model.rendezvous.vocabulary import Edition

TORCH = (Edition.TORCH, Edition.TORCH_2_12)
GONE = ("crash", "silence", "close_finish", "remove_from_participants")


FINDINGS = {**OF_RENDEZVOUS, **OF_AGENTS}


@dataclass(frozen=True, slots=True)
class Signature:
    """One signature of a finding."""

    finding: str
    property: str
    any_of: tuple[str, ...] = ()
    none_of: tuple[str, ...] = ()
    editions: tuple[Edition, ...] = TORCH

    def fits(self, name: str, steps: Collection[str], edition: Edition) -> bool:
        if name != self.property or edition not in self.editions:
            return False
        return (not self.any_of or any(s in steps for s in self.any_of)) and not any(s in steps for s in self.none_of)


SIGNATURES = (
    Signature("stale-master", "agree_on_master"),
    Signature("new-master-asserts", "members_learn_the_master", ("assertion_error",)),
    Signature("fast-exit", "agree_on_world", ("exit_remove_from_participants",), ("silence", "crash")),
    Signature("death-in-window", "agree_on_world", ("silence", "crash")),
    Signature("done-node-replaced", "live_nodes_stay", ("job_ends",)),
    Signature("connecting-node-expelled", "live_nodes_stay"),
    Signature("never-told", "never_two_groups"),
    Signature("never-told", "the_removed_are_told"),
    Signature("departure-unnoticed", "departures_are_noticed"),
    Signature(
        "departure-unnoticed", "members_learn_the_master", ("crash", "close_finish"), ("return_with_cached_master",)
    ),
    Signature("never-told", "members_learn_the_master", ("silence",), ("return_with_cached_master",)),
    Signature("master-not-republished", "members_learn_the_master", ("return_with_cached_master",)),
    Signature("fast-exit", "members_learn_the_master", ("exit_remove_from_participants",)),
    Signature("restless-spare", "full_rounds_come_to_rest"),
    Signature("restless-spare", "the_waiting_are_answered", (), ("crash", "silence")),
    Signature("departure-unnoticed", "the_waiting_are_answered", ("crash",)),
    Signature("master-not-republished", "closing_is_earned", ("wait_times_out",)),
    Signature("late-node-closes", "closing_is_earned"),
    Signature("settings-not-agreed", "enough_nodes_complete_a_round"),
    Signature("leaving-closes", "restarts_left_are_used"),
    Signature("spare-returns-nothing", "everybody_gets_an_answer"),
)


def name_of(violated: str, steps: Collection[str], edition: Edition) -> Finding | None:
    """The finding that explains a violated property; None: no known finding does."""
    found = next((s for s in SIGNATURES if s.fits(violated, steps, edition)), None)
    return FINDINGS[found.finding] if found is not None else None
