"""The findings about torch's dynamic rendezvous, replayed on the torch that is installed.

Rule: nothing of torch is rewritten. The real `DynamicRendezvousHandler` and `C10dRendezvousBackend` run over
a real `TCPStore` on the loopback interface; a scenario decides only who is slow, who dies and what a clock
shows, and computes from what torch then did whether the property was violated. `CONTROLS` runs the same code
on a schedule that does no harm: there the same check finds nothing. Scenarios run one at a time in a process.
"""

from ...replays import Catalogue
from .departures import departure_unnoticed
from .heartbeats import (
    clock_steps_back,
    connecting_node_expelled,
    corruption_ends_heartbeats,
    done_node_replaced,
    impatient_observer,
    never_told,
    store_pause,
)
from .hosting import store_of_another_job
from .master import master_not_republished, new_master_asserts, stale_master
from .membership import late_node_closes, restless_spare, settings_not_agreed
from .worlds import clock_skew, death_in_window, fast_exit
from .writes import back_off_retries_stale, lost_write_reported_won

__all__ = ["CONTROLS", "SCENARIOS"]


# fmt: off
_CATALOGUE = Catalogue.of((
    ("R1", "master-not-republished", master_not_republished,
     "Members of a round agree on the master: who keeps rank 0 never publishes it to a newcomer."),
    ("R2", "stale-master", stale_master,
     "Members of a round agree on the master: the old ones keep theirs when a newcomer is rank 0."),
    ("R3", "fast-exit", fast_exit,
     "Members of a round agree on its world: one leaves the complete round before another has polled it."),
    ("R4", "death-in-window", death_in_window,
     "Members of a round agree on its world: one polls before and one after a dead third expires."),
    ("R5", "clock-skew", clock_skew,
     "Members of a round agree on its world: clocks that differ by more than the window expel live nodes."),
    ("R6", "never-told", never_told,
     "A removed member is told before another group starts: its heartbeats write nothing and succeed."),
    ("R7", "store-pause", store_pause,
     "Never two groups at once: a pause of the store ends all heartbeats and newcomers form another."),
    ("R8", "restless-spare", restless_spare,
     "Restarts come to rest: a spare left on the wait list makes a full group restart for ever."),
    ("R9", "settings-not-agreed", settings_not_agreed,
     "If enough nodes keep trying a round completes: one with a higher minimum takes the deadline along."),
    ("R10", "late-node-closes", late_node_closes,
     "Closing ends only what is over: a late node that times out closes the rendezvous of a healthy group."),
    ("R11", "lost-write-reported-won", lost_write_reported_won,
     "A lost compare-and-set is reported as lost: not when the winner wrote the same bytes."),
    ("R12", "impatient-observer", impatient_observer,
     "A live node is never expelled: a spare with a shorter window removes members that beat in time."),
    ("R13", "clock-steps-back", clock_steps_back,
     "A live node is never expelled: one whose wall clock steps back stops beating for as long as the step."),
    ("R14", "departure-unnoticed", departure_unnoticed,
     "Departures are noticed: a member that dies is dropped, and those who rely on it are told nothing."),
    ("R15", "connecting-node-expelled", connecting_node_expelled,
     "A live node is never expelled: one that waits for the master's address has no client to beat with."),
    ("R16", "new-master-asserts", new_master_asserts,
     "Members of a round agree on the master: a member that was led by another asserts when it is rank 0."),
    ("R17", "back-off-retries-stale", back_off_retries_stale,
     "A retry is lost only to a later write: one that paused decides on the state from before the pause."),
    ("R18", "corruption-ends-heartbeats", corruption_ends_heartbeats,
     "A heartbeat that failed is followed by the next: a state without bytes ends the thread for ever."),
    ("R19", "done-node-replaced", done_node_replaced,
     "A live node is never expelled: one whose workers are done has no client to beat with in the exit barrier."),
    ("R20", "store-of-another-job", store_of_another_job,
     "A job takes the store from no other job: one that serves the endpoint ends, and its store with it."),
))
# fmt: on

SCENARIOS = _CATALOGUE.scenarios
CONTROLS = _CATALOGUE.controls
