"""Known defects of the stores' editions, and the runs that show them. Data: `trystate verify` checks it.

S1 to S17, S27 and S28 are defects of torch 2.13's TCPStore. The checker finds them in the edition TORCH, and they
happen again on the real store (`trystate replay NAME`). The others belong to the edition SEED: S21 and S23 remain in
torch's legacy server and are replayed there, the rest are shown in the model only.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ..checker.expectations import Found, Run, read_findings, search
from .barriers import Barriers
from .frames import Frames
from .handshake import Handshake, Protection
from .journals import Journals
from .queues import Queues
from .registers import Registers
from .registrations import Registrations
from .startup import StartUps
from .vocabulary import Edition
from .waits import Waits
from .watches import Watches

FINDINGS = read_findings(__name__)
_run = partial(search, FINDINGS)


def _waits(
    edition: Edition, *faults: str, c: int = 2, k: int = 2, v: int = 1, n: int = 1, d: int = 1, s: int = 1, **found: Any
) -> Run:
    """One search of `Waits`: `c` clients, `n` of them torch's, `k` keys, `v` values, `d` deletes, `s` compare_sets."""
    sizes = {"client": c, "key": k, "value": v, "torch_clients": n, "deletes": d, "compares": s}
    return _run(Waits, edition, *faults, sizes=sizes, **found)


def _queues(
    edition: Edition, *faults: str, c: int = 2, e: int = 2, n: int = 1, b: int = 1, t: int = 1, **found: Any
) -> Run:
    """One search of `Queues`: `c` clients, `e` elements, `n` clients of torch's; `b`: waits for both; `t`: timeouts."""
    sizes = {"client": c, "element": e, "torch_clients": n, "both": b, "timeouts": t}
    return _run(Queues, edition, *faults, sizes=sizes, **found)


SEED, TORCH, TRYSTATE = Edition.SEED, Edition.TORCH, Edition.TRYSTATE
RACE = ("an_answer_meets_a_cancel",)
NO_BOTH = ("a_wait_for_both_is_answered",)
SMALL = {"client": 2, "key": 1, "writes": 2}
WATCH = {"client": 2, "key": 1, "writes": 3}
TWO_KEYS = {"client": 2, "key": 2, "writes": 2}
LARGE = {"client": 2, "key": 2, "writes": 3}
PAIR = {"client": 2, "world": 2, "rounds": 1}
TRIO = {"client": 3, "world": 3, "rounds": 1}
NO_CUT = ("a_connection_is_closed",)
# The violations of several runs of an edition: property = finding.
UNASKED: Found = {
    "only_the_validated_are_served": "S9",
    "what_returned_has_happened": "S15",
    "requests_are_served": "S23",
}
IN_PARTS: Found = {
    "requests_are_whole": "S8", "only_the_validated_are_served": "S9", "who_keeps_the_rules_stays": "S10",
    "nothing_is_left_of_the_closed": "S17",
}  # fmt: skip
EARLY: Found = {"started_means_enough_are_counted": "S19"}
ASLEEP: Found = dict.fromkeys(("no_wake_up_is_lost", "ready_waits_return"), "S21")
MISREAD: Found = {"nobody_is_thrown_out": ("S3", "S18"), "answers_are_in_step": "S18"}
REMAINS: Found = dict.fromkeys(
    ("once_and_in_order", "nothing_is_left_behind", "nobody_is_closed_for_another", "every_change_is_on_its_way"), "S20"
)
MISCOUNTED: Found = {
    "nobody_passes_before_all_are_in": ("S11", "S12"), "failures_change_nothing": "S11", "keys_stay_untouched": "S13",
}  # fmt: skip


def _left(*found: str) -> Found:
    """A client that was answered is still in the line: a push answers its next operation."""
    return {"a_get_waits_for_its_key": "S4", "a_blocking_pop_never_says_empty": found}


def _asleep(*found: str) -> Found:
    """A push wakes no client that pops."""
    return dict.fromkeys(("no_popper_sleeps_beside_an_element", "poppers_are_served"), found)


# fmt: off
_FRAMES = (
    _run(Frames, SEED, "stop", **UNASKED),
    _run(Frames, SEED, "end", "revents", "stop", **UNASKED, an_end_is_reached="S23"),
    _run(Frames, TORCH, **IN_PARTS, nothing_is_undone="S8"),
    _run(Frames, TORCH, "end", "stop",
        sizes={"connection": 1}, idle=("both_keys_are_written",), **IN_PARTS, what_returned_has_happened="S15"),
    _run(Frames, TORCH, "stop", **IN_PARTS, nothing_is_undone="S8", what_returned_has_happened="S15"),
    _run(Frames, TRYSTATE),
    _run(Frames, TRYSTATE, "end", "stop"),
    _run(Frames, TRYSTATE, "stop", sizes={"connection": 3}),
)
_STARTUPS = (
    _run(StartUps, SEED, **EARLY),
    _run(StartUps, SEED, "crash", idle=("the_master_misses_one",), **EARLY),
    _run(StartUps, SEED, "stop", **EARLY),
    _run(StartUps, SEED, "freeze", **EARLY, the_constructor_ends="S14", deadlock_freedom="S14"),
    _run(StartUps, SEED, "crash", "patience", idle=("the_master_misses_one",), **EARLY),
    _run(StartUps, SEED, "again", **EARLY),
    _run(StartUps, SEED, "overwrite", started_means_enough_are_counted=("S19", "S16"), only_the_start_up_counts="S16"),
    _run(StartUps, TORCH),
    _run(StartUps, TORCH, "again", "crash", "stop"),
    _run(StartUps, TORCH, "freeze", the_constructor_ends="S14", deadlock_freedom="S14"),
    _run(StartUps, TORCH, "overwrite",
        started_means_enough_are_counted="S16", only_the_start_up_counts="S16", enough_counted_means_started="S16"),
    _run(StartUps, TRYSTATE),
    _run(StartUps, TRYSTATE, "again", "crash", "stop", "freeze", "overwrite", sizes={"client": 4}),
)
_WAITS = (
    _waits(SEED, c=1, k=1, d=0, s=0, idle=RACE, answers_are_in_step="S18"),
    _waits(SEED, c=1, k=1, d=0, idle=RACE, answers_are_in_step="S18", **ASLEEP),
    _waits(SEED, c=1, k=1, v=2, s=0, idle=RACE, keys_were_there_together="S18", **MISREAD),
    _waits(SEED, c=1, s=0, idle=RACE, keys_were_there_together=("S2", "S18"), **MISREAD),
    _waits(SEED, "drop", "freeze", "half_frame", c=1, idle=RACE,
        keys_were_there_together=("S2", "S18"), **MISREAD, **ASLEEP),
    _waits(SEED, k=1, idle=RACE, keys_were_there_together="S18", **MISREAD, **ASLEEP),
    _waits(TORCH, c=1, k=1, d=0, s=0),
    _waits(TORCH, c=1, k=1, d=0, keys_were_there_together="S1", a_get_returns_what_was_set="S1"),
    _waits(TORCH, c=1, k=1, s=0, a_get_returns_what_was_set="S3"),
    _waits(TORCH, c=1, k=1, v=2, keys_were_there_together="S1", a_get_returns_what_was_set=("S1", "S3")),
    _waits(TORCH, c=1, s=0, keys_were_there_together="S2", a_get_returns_what_was_set="S3"),
    _waits(TORCH, "freeze", d=0, s=0, late_operations_end="S14", deadlock_freedom="S14"),
    _waits(TORCH, "half_frame", d=0, s=0, nothing_of_a_closed_connection_is_left="S17"),
    _waits(TORCH, "drop", d=0, s=0),
    _waits(TORCH, keys_were_there_together=("S1", "S2"), a_get_returns_what_was_set=("S1", "S3")),
    _waits(TORCH, "drop", "freeze", "half_frame", k=1,
        keys_were_there_together="S1", a_get_returns_what_was_set=("S1", "S3"), late_operations_end="S14",
        deadlock_freedom="S14", nothing_of_a_closed_connection_is_left="S17"),
    _waits(TRYSTATE),
    _waits(TRYSTATE, n=2),
    _waits(TRYSTATE, "drop", n=0, idle=RACE),
    _waits(TRYSTATE, "drop"),
    _waits(TRYSTATE, "freeze"),
    _waits(TRYSTATE, "half_frame"),
    _waits(TRYSTATE, "drop", "freeze", "half_frame", k=1, v=2),
    _waits(TRYSTATE, "drop", "freeze", "half_frame", k=1, v=2, n=0, idle=RACE),
    _waits(TRYSTATE, "drop", "freeze", "half_frame", c=1, k=3),
    _waits(TRYSTATE, "drop", "freeze", "half_frame", c=1, k=2, v=2, n=0, idle=RACE),
)
_QUEUES = (
    _queues(TORCH, c=1, b=0, idle=NO_BOTH, **_left("S4")),
    _queues(TORCH, c=1, **_left("S4"), both_were_there_together="S4", a_wait_for_both_is_told="S6"),
    _queues(TORCH, e=1, b=0, idle=NO_BOTH, a_blocking_pop_never_says_empty="S7", **_asleep("S28")),
    _queues(TORCH, b=0, t=0, idle=NO_BOTH, **_left("S4", "S7"), **_asleep("S5")),
    _queues(TORCH, b=0, idle=NO_BOTH, **_left("S4", "S7"), **_asleep("S5", "S28")),
    *(_queues(TORCH, *faults, both_were_there_together=("S2", "S4"), **_left("S4", "S7"), **_asleep("S5", "S28"),
              a_wait_for_both_is_told=("S5", "S6", "S28")) for faults in ((), ("drop",))),
    _queues(TRYSTATE),
    _queues(TRYSTATE, n=2, t=0),
    _queues(TRYSTATE, "drop", "dawdle"),
    _queues(TRYSTATE, "drop", "dawdle", n=2),
    _queues(TRYSTATE, "drop", n=0),
    _queues(TRYSTATE, "drop", "dawdle", e=3),
    _queues(TRYSTATE, c=3, n=2, b=0, idle=NO_BOTH),
)
_WATCHES = (
    _run(Watches, SEED, sizes=SMALL, idle=NO_CUT),
    _run(Watches, SEED, sizes=TWO_KEYS, idle=NO_CUT),
    _run(Watches, SEED, "another", sizes=TWO_KEYS, idle=NO_CUT),
    _run(Watches, SEED, "leave", "newcomer", sizes=WATCH,
        **REMAINS, callbacks_skip_nothing="S20", no_event_for_a_stranger="S20"),
    _run(Watches, SEED, "leave", "newcomer", sizes=TWO_KEYS,
        **REMAINS, callbacks_skip_nothing="S20", no_event_for_a_stranger="S20", only_what_is_watched="S20"),
    _run(Watches, SEED, "drop", sizes=WATCH,
        **REMAINS, watch_key_returns="S24", the_lost_are_told="S24", deadlock_freedom="S24"),
    _run(Watches, SEED, "wait", sizes=WATCH, idle=NO_CUT, waiters_are_woken="S21"),
    _run(Watches, SEED, "slow", sizes=WATCH, idle=NO_CUT, watch_key_returns="S22", changes_are_answered="S22"),
    _run(Watches, SEED, "again", sizes=WATCH, idle=NO_CUT, once_and_in_order="S25", callbacks_skip_nothing="S25"),
    _run(Watches, SEED, "preempted", sizes=WATCH, idle=NO_CUT, watch_key_returns="S26", deadlock_freedom="S26"),
    _run(Watches, TRYSTATE, sizes=SMALL),
    _run(Watches, TRYSTATE, sizes={**WATCH, "client": 3}),
    _run(Watches, TRYSTATE, "drop", sizes=LARGE),
    _run(Watches, TRYSTATE, "slow", "newcomer", sizes=LARGE),
    _run(Watches, TRYSTATE, "cancel", "leave", "newcomer", sizes=TWO_KEYS),
    _run(Watches, TRYSTATE, "another", "cancel", "drop", sizes={**TWO_KEYS, "client": 1}),
    _run(Watches, TRYSTATE, "cancel", "drop", "slow", sizes=WATCH),
    _run(Watches, TRYSTATE, "again", "drop", "newcomer", sizes=WATCH),
    _run(Watches, TRYSTATE, "slow", "wait", sizes=WATCH),
    _run(Watches, TRYSTATE, "again", "cancel", "drop", "leave", "newcomer", "slow", sizes=SMALL),
)
_REGISTRATIONS = (
    _run(Registrations, SEED),
    _run(Registrations, TRYSTATE),
)
_BARRIERS = (
    _run(Barriers, TORCH, sizes=PAIR, keys_stay_untouched="S13"),
    *(_run(Barriers, TORCH, sizes={**sizes, "rounds": 2},
           nobody_passes_before_all_are_in="S12", keys_stay_untouched="S13") for sizes in (PAIR, TRIO)),
    *(_run(Barriers, TORCH, "timeout", sizes=sizes, **MISCOUNTED, the_released_return="S27") for sizes in (PAIR, TRIO)),
    _run(Barriers, TORCH, "drop", sizes=TRIO, **MISCOUNTED),
    _run(Barriers, TORCH, "write", sizes=PAIR,
        nobody_passes_before_all_are_in="S13", keys_stay_untouched="S13", only_arrivals_release="S13"),
    _run(Barriers, TORCH, "delete", sizes=PAIR,
        keys_stay_untouched="S13", a_full_barrier_opens="S13", enough_are_released="S13", deadlock_freedom="S13"),
    _run(Barriers, TRYSTATE, sizes=PAIR),
    _run(Barriers, TRYSTATE, "drop", sizes={**TRIO, "world": 2}),
    _run(Barriers, TRYSTATE, "drop", "timeout", sizes={**TRIO, "rounds": 2}),
    _run(Barriers, TRYSTATE, "delete", "drop", "timeout", "write", sizes={**TRIO, "world": 2, "rounds": 2}),
    _run(Barriers, TRYSTATE, "delete", "drop", "timeout", "write", sizes={"client": 4, "world": 3, "rounds": 2}),
)
_REGISTERS = (
    _run(Registers, SEED),
    _run(Registers, SEED, "drop"),
    *(_run(Registers, TORCH, *faults,
           answers_are_those_of_one_moment="S8", multi_sets_are_seen_whole="S8", requests_are_whole="S8")
      for faults in ((), ("drop",))),
    _run(Registers, TRYSTATE),
    _run(Registers, TRYSTATE, "drop"),
)
_JOURNALS = (
    _run(Journals, TRYSTATE),
    _run(Journals, TRYSTATE, "crash"),
)
# A relay that forges frames in PLAIN is reached by design: the edition has no property that it violates.
_HANDSHAKES = tuple(_run(Handshake, edition, sizes={"frames": frames}) for edition in Protection for frames in (1, 2))
# fmt: on
PLAN: tuple[Run, ...] = (
    _FRAMES
    + _STARTUPS
    + _REGISTERS
    + _WAITS
    + _QUEUES
    + _WATCHES
    + _REGISTRATIONS
    + _BARRIERS
    + _JOURNALS
    + _HANDSHAKES
)
