"""The schedules of the findings about torch's TCPStore, on any server: torch's, ours or a user's.

Rule: the server runs unmodified in a process of its own; a schedule decides only which bytes are sent when, and
computes from the answers whether the property was violated. The scripts in `property_tests/replays` show the same on
torch alone.
"""

from collections.abc import Mapping
from typing import Protocol

from ...replays import Observation, Say
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

__all__ = ["SCHEDULES"]


class StoreSchedule(Protocol):
    """A schedule that any server may be put to."""

    def __call__(self, say: Say, *, benign: bool = False, serve: type[Server] = ...) -> Observation: ...


SCHEDULES: Mapping[str, StoreSchedule] = {
    "spurious-wake": spurious_wake, "counted-wake": counted_wake, "get-races-delete": get_races_delete,
    "stale-queue-waiter": stale_queue_waiter, "stale-waiter-takes-wake": stale_waiter_takes_wake,
    "ready-queue-not-counted": ready_queue_not_counted, "pop-in-two-requests": pop_in_two_requests,
    "multi-set-in-pieces": multi_set_in_pieces, "unvalidated-request-runs": unvalidated_request_runs,
    "split-validate-closes": split_validate_closes, "barrier-counts-retries": barrier_counts_retries,
    "barrier-stays-open": barrier_stays_open, "barrier-key-written": barrier_key_written,
    "frozen-server": frozen_server, "write-lost-silently": write_lost_silently, "init-overwritten": init_overwritten,
    "aborted-upload-kept": aborted_upload_kept, "compare-set-wakes-nobody": compare_set_wakes_nobody,
    "half-request-blocks": half_request_blocks, "released-yet-raises": released_yet_raises,
    "wake-not-passed-on": wake_not_passed_on,
}  # fmt: skip
"""The sequence of bytes that shows each finding of the stores: a function that plays it to any server."""
