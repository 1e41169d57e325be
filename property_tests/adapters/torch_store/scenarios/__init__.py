"""The findings about torch's TCPStore, replayed on the torch that is installed.

Rule: torch's server runs unmodified in a process of its own; a scenario decides only which bytes are sent when, and
computes from the answers whether the property was violated. `CONTROLS` runs the same code on a schedule that does no
harm, `SCHEDULES` on any server. S18, S19, S20, S22, S24, S25 and S26 are of torch 1.9, whose server cannot be
installed beside 2.13: `adapters/seed_store` shows them on a program of it.
"""

from typing import Protocol

from ...replays import Catalogue, Observation, Say
from ..server import Server
from .barriers import barrier_counts_retries, barrier_key_written, barrier_stays_open, released_yet_raises
from .connections import aborted_upload_kept, half_request_blocks, split_validate_closes, unvalidated_request_runs
from .outages import frozen_server, init_overwritten, write_lost_silently
from .queues import (
    pop_in_two_requests,
    ready_queue_not_counted,
    stale_queue_waiter,
    stale_waiter_takes_wake,
    wake_not_passed_on,
)
from .waits import compare_set_wakes_nobody, counted_wake, get_races_delete, multi_set_in_pieces, spurious_wake

__all__ = ["CONTROLS", "SCENARIOS", "SCHEDULES"]


class StoreSchedule(Protocol):
    """A schedule that any server may be put to."""

    def __call__(self, say: Say, *, benign: bool = False, serve: type[Server] = ...) -> Observation: ...


# fmt: off
_ROWS: tuple[tuple[str, str, StoreSchedule, str], ...] = (
    ("S1", "spurious-wake", spurious_wake, "A compare_set that stores nothing releases who waits for the key."),
    ("S2", "counted-wake", counted_wake, "A key that is set and deleted again counts for a wait."),
    ("S3", "get-races-delete", get_races_delete, "A get of a key that is deleted meanwhile returns an empty value."),
    ("S4", "stale-queue-waiter", stale_queue_waiter, "A push to a queue releases who waits for another key."),
    ("S5", "stale-waiter-takes-wake", stale_waiter_takes_wake, "A push does not wake the only one who waits for it."),
    ("S6", "ready-queue-not-counted", ready_queue_not_counted, "A wait for a full queue and a key never returns."),
    ("S7", "pop-in-two-requests", pop_in_two_requests, "A blocking pop is told that the queue is empty."),
    ("S8", "multi-set-in-pieces", multi_set_in_pieces, "A multi_set is half visible, and overwrites later writes."),
    ("S9", "unvalidated-request-runs", unvalidated_request_runs, "A client that never validated writes a key."),
    ("S10", "split-validate-closes", split_validate_closes, "A VALIDATE in two packets is refused."),
    ("S11", "barrier-counts-retries", barrier_counts_retries, "Alone at a barrier of two, the second try passes."),
    ("S12", "barrier-stays-open", barrier_stays_open, "A barrier that was used lets everybody through."),
    ("S13", "barrier-key-written", barrier_key_written, "Setting a key releases a barrier of its name."),
    ("S14", "frozen-server", frozen_server, "An add with a timeout hangs while the server is stopped."),
    ("S15", "write-lost-silently", write_lost_silently, "A set returns after the server has died."),
    ("S16", "init-overwritten", init_overwritten, "A master starts alone, because somebody wrote init/."),
    ("S17", "aborted-upload-kept", aborted_upload_kept, "Part of an upload that broke off is kept for good."),
    ("S21", "compare-set-wakes-nobody", compare_set_wakes_nobody, "compare_set wakes nobody (legacy server)."),
    ("S23", "half-request-blocks", half_request_blocks, "One byte of a stranger stops all (legacy server)."),
    ("S27", "released-yet-raises", released_yet_raises, "A barrier that has opened raises for one of its members."),
    ("S28", "wake-not-passed-on", wake_not_passed_on, "A waiter that is woken by a push and cancels wakes no other."),
)
# fmt: on

_CATALOGUE = Catalogue.of(_ROWS)
SCENARIOS = _CATALOGUE.scenarios
CONTROLS = _CATALOGUE.controls
SCHEDULES = {name: run for _, name, run, _ in _ROWS}
"""The sequence of bytes that shows each finding of the stores: a function that plays it to any server."""
