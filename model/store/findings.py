"""Known defects of the stores' editions, and the runs that show them. Data: `trystate verify` checks it.

S1 to S17, S27 and S28 are defects of torch 2.13's TCPStore that the checker finds in the edition TORCH and that happen
again on the real one (`trystate replay NAME`). The others are of the edition SEED; S21 and S23 live on in torch's
legacy server, and are replayed there, the rest on a program of torch 1.9 (`adapters/seed_store`).
"""

from __future__ import annotations

from collections.abc import Mapping

from ..checker.expectations import Finding, Run, explained
from ..language.systems import System
from .barriers import Barriers
from .frames import Frames
from .journals import Journals
from .queues import Queues
from .registers import Registers
from .registrations import Registrations
from .startup import StartUps
from .vocabulary import Edition
from .waits import Waits
from .watches import Watches

_FINDINGS = (
    Finding("spurious-wake", "S1",
            "A compare_set that stores nothing wakes the waiters of the key: a get returns a value that nobody set.",
            "wake waiters only when a key comes to be",
            "A get returns b'' for a key that no client has set, and its caller fails later, on the empty value.",
            "One client waits for a key (get, multi_get, wait) while another calls compare_set on it with an "
            "expected value that does not match; libuv server, the default.",
            "Take b'' for 'not there' and call get again, or create keys that are waited for with set only."),
    Finding("counted-wake", "S2",
            "A wait counts its keys down: one that is set and deleted again counts, and the wait returns without it.",
            "return when all keys are present together",
            "A wait for several keys returns while one of them is absent; the multi_get after it returns b'' for "
            "that key.",
            "wait or multi_get of two or more keys, and another client that deletes one of them after setting it; "
            "both servers.",
            "Wait for one key at a time, or check all keys after the wait and wait again; delete no key that others "
            "wait for.",
            since="1.9"),
    Finding("get-races-delete", "S3",
            "get is two requests, WAIT and GET: a key that is deleted in between is read as an empty value.",
            "answer the GET with the value that satisfied the WAIT",
            "A get returns b'' for a key that never held an empty value (legacy server: the connection is closed, "
            "and the client is of no use any more).",
            "delete_key beside readers of the same key: a short-lived key, a hand-over by set and delete, clean-up "
            "at the end of a round.",
            "Delete keys only when every reader has said that it is done, or take b'' for 'deleted' where no value "
            "is empty.",
            since="1.9"),
    Finding("stale-queue-waiter", "S4",
            "A client that popped from a queue stays a waiter of it: a later push answers its wait for another key.",
            "forget a waiter in every list when it is answered",
            "A get, wait or blocking queue_pop of a client that has popped from a queue before returns early: get "
            "with b'', queue_pop with QueueEmptyError.",
            "Any client that has waited in a blocking queue_pop and then waits for anything else, with pushes to the "
            "first queue going on; libuv server.",
            "Use one TCPStore object for popping from one queue and for nothing else.",
            since="2.8"),
    Finding("stale-waiter-takes-wake", "S5",
            "A push wakes one waiter, also one that will not pop: the one that would sleeps on.",
            "forget a waiter in every list when it is answered, and let only a pop use up a wake",
            "A blocking queue_pop times out although queue_len is not 0.",
            "Two or more consumers of one queue, one of which has popped before and now waits for something else; "
            "libuv server.",
            "Use one TCPStore object for each queue and consumer, and pop with a short timeout in a loop.",
            since="2.8"),
    Finding("ready-queue-not-counted", "S6",
            "A queue that has elements when a wait begins is waited for all the same: the wait never returns.",
            "count only what is missing",
            "A wait times out although check of the same keys is True.",
            "wait with the name of a queue that is not empty beside the name of a key that is set later; libuv "
            "server.",
            "Wait for queues and keys in separate calls.",
            since="2.8"),
    Finding("pop-in-two-requests", "S7",
            "A blocking queue_pop is two requests, WAIT and QUEUE_POP: another takes the element in between.",
            "reserve the element for the waiter that was woken by it",
            "queue_pop(block=True) raises QueueEmptyError long before its timeout.",
            "Two or more consumers of one queue; libuv server. The more consumers, the more often.",
            "Catch QueueEmptyError and call queue_pop again, with the time that is left.",
            since="2.8"),
    Finding("multi-set-in-pieces", "S8",
            "A MULTI_SET in several packets is carried out key by key and again with every packet, over later writes.",
            "carry a request out once, when it is whole",
            "Readers see some keys of a multi_set without the others, and a later set of one of its keys is undone.",
            "multi_set with more than about 1,400 bytes altogether, or over a network that cuts it, beside readers "
            "or writers of the same keys; libuv server.",
            "Write each key with set, and a last key that says that all are there; no other client writes these "
            "keys."),
    Finding("unvalidated-request-runs", "S9",
            "The first packet of a connection is not looked at if it is no VALIDATE, and is carried out later.",
            "close a connection that does not validate",
            "A port scanner, a health check or a stray client changes keys or reads them, although VALIDATE is to "
            "keep strangers out.",
            "Strangers reach the store's port, and send two packets; libuv server.",
            "Keep the port reachable for the job's nodes only, by a firewall or network policy.",
            since="1.9"),
    Finding("split-validate-closes", "S10",
            "A VALIDATE that comes in two packets is refused.",
            "read a request however it is cut",
            "A client now and then fails to connect: its first PING is not answered, or its connection is reset.",
            "Proxies, tunnels and networks that cut or merge packets, clients that write byte by byte; libuv server.",
            "None is needed where packets arrive as torch's client writes them; otherwise connect without the proxy."),
    Finding("barrier-counts-retries", "S11",
            "A client that timed out or died stays counted: a second try passes the barrier without the others.",
            "withdraw a client that leaves",
            "Ranks pass a barrier that others have not reached.",
            "TCPStore.barrier with a retry after DistStoreError, or with a rank that was restarted, under the same "
            "key; both servers.",
            "Use a new key for every attempt, agreed on beforehand, for instance with the number of the restart in "
            "it.",
            since="2.12"),
    Finding("barrier-stays-open", "S12",
            "The counter of a barrier is never reset: at its second use everybody passes at once.",
            "begin anew when all were released",
            "From its second use on, a barrier does not wait for anybody.",
            "TCPStore.barrier twice with one key, for instance in a loop or after a restart on the same store; both "
            "servers.",
            "Use a new key for every use, or delete the key when all have passed, which needs a barrier of its own.",
            since="2.12"),
    Finding("barrier-key-written", "S13",
            "A barrier is a key: a set releases everybody, a delete strands those that wait.",
            "keep barriers apart from keys",
            "A barrier opens before all are there, or never, after a set, add or delete of a key of the same name; "
            "after a set of text the next arrival loses its connection.",
            "The name of a barrier that is also the name of a key, by accident or by a clean-up of all keys; both "
            "servers.",
            "Give barriers a prefix of their own, and keep clean-ups away from it.",
            since="2.12"),
    Finding("frozen-server", "S14",
            "Only the wait itself has a timeout: all other answers are waited for without end.",
            "give every answer a deadline",
            "A rank hangs for ever in a call of the store, although it has a timeout.",
            "A server's process that is stopped or starved (SIGSTOP, a debugger, a suspended VM, a cgroup freezer), "
            "or a network that drops packets.",
            "Run the call in a thread with a deadline of your own; the watchdogs of NCCL end the process in the end.",
            since="1.9"),
    Finding("write-lost-silently", "S15",
            "A set is not answered: the first one after the server died returns as if it had happened.",
            "acknowledge writes",
            "A set returns, and the value is nowhere: the reader waits until its timeout.",
            "A server that dies or restarts; set, append, multi_set and queue_push. The call after it raises.",
            "Make a call that is answered after each write that matters, for instance check([key]).",
            since="1.9"),
    Finding("init-overwritten", "S16",
            "The counter of the start-up is a key that any client may write: the master starts too early or never.",
            "let only the start-up count",
            "The master's constructor returns although workers are missing, or never.",
            "A program that speaks the protocol by hand, or a stranger: torch's client puts a slash before every "
            "key, and cannot write init/.",
            "Keep the port reachable for the job's nodes only, by a firewall or network policy.",
            since="1.9"),
    Finding("aborted-upload-kept", "S17",
            "The part of a request that has come is kept for good when its connection closes.",
            "drop what belongs to a connection with it",
            "The memory of the server's process grows for good with every client that dies while it writes.",
            "Clients that are killed or lose their connection in the middle of large values (up to 8 MiB each), over "
            "a long life of the server; libuv server.",
            "Keep values small, or begin each job with a new store."),
    Finding("late-answer", "S18",
            "A wait that timed out is not taken back: its answer is read as that of the next request.",
            "cancel, and read the answer to that",
            since="1.9", until="1.9"),
    Finding("silent-start", "S19",
            "When not all clients are counted in time, the master goes on as if they were.",
            "raise, and say how many of how many",
            since="1.9", until="1.9"),
    Finding("watcher-left-behind", "S20",
            "A closed connection stays a watcher: a change then goes to a later connection, or fails its author.",
            "remove a connection from every table",
            since="1.9", until="1.9"),
    Finding("compare-set-wakes-nobody", "S21",
            "A compare_set that stores a value wakes no waiter.",
            "announce every change in one place",
            "A get or wait times out although the key exists.",
            "The legacy server (use_libuv=False, USE_LIBUV=0), and keys that compare_set creates.",
            "Use the libuv server, the default, or follow the compare_set by set with the same value.",
            since="1.9"),
    Finding("slow-watcher-blocks", "S22",
            "The daemon sends to watchers and waits until they have read: one that does not stops it for all.",
            "bound the unsent bytes, and close a connection that does not read",
            since="1.9", until="1.9"),
    Finding("half-request-blocks", "S23",
            "The daemon reads a request to its end before it looks at another: half a request stops it for all.",
            "keep what has come, and go on",
            "Every rank hangs in the store, although the server's process lives.",
            "The legacy server (use_libuv=False, USE_LIBUV=0), and a client that is stopped or loses its network in "
            "the middle of a request, or a stranger that sends one byte.",
            "Use the libuv server, the default.",
            since="1.9"),
    Finding("loss-untold", "S24",
            "A watcher's thread goes on reading a connection that has ended: neither it nor watch_key is ever told.",
            "tell the watcher that changes may have been missed",
            since="1.9", until="1.9"),
    Finding("watched-twice", "S25",
            "A key that one client watches twice is entered twice: each change is delivered twice.",
            "enter a watcher once",
            since="1.9", until="1.9"),
    Finding("registration-unheard", "S26",
            "The flag that watch_key waits for is set without its lock: the notification can be missed.",
            "set the flag under its lock",
            since="1.9", until="1.9"),
    Finding("released-yet-raises", "S27",
            "A client whose time is over raises, although the barrier had released it together with all others.",
            "decide at the server what came first",
            "One rank raises a timeout at a barrier that all others have passed.",
            "The last arrival at a barrier at about the time when the timeout of another ends, as with a slow "
            "server; both servers.",
            "Let timeouts of barriers be much longer than the ranks are apart, and end the whole job when one rank "
            "raises.",
            since="2.12"),
    Finding("wake-not-passed-on", "S28",
            "A waiter that is woken by a push, and then cancels or is gone, takes the wake along: the next sleeps on.",
            "reserve the element for the woken waiter, and wake the next when it comes back",
            "A blocking queue_pop times out although queue_len is not 0.",
            "Two or more consumers of one queue, one of which dies, or whose time ends, just when an element "
            "arrives; libuv server.",
            "Pop with a short timeout in a loop: each pop looks at the queue anew.",
            since="2.8"),
)  # fmt: skip
FINDINGS: Mapping[str, Finding] = {f.name: f for f in _FINDINGS}


def _run(
    system: type[System], edition: Edition, *faults: str, sizes: Mapping[str, int] | None = None,
    idle: tuple[str, ...] = (), **found: str | tuple[str, ...],
) -> Run:  # fmt: skip
    """One run: system, edition and faults, and property = the findings that explain its violation."""
    return Run(system, sizes or {}, edition, faults, explained(found, FINDINGS), idle)


def _waits(
    edition: Edition, *faults: str, c: int = 2, k: int = 2, v: int = 1, n: int = 1, d: int = 1, s: int = 1,
    idle: tuple[str, ...] = (), **found: str | tuple[str, ...],
) -> Run:  # fmt: skip
    """Clients, keys, values, how many of the clients are torch's, deletes, compare_sets."""
    sizes = {"client": c, "key": k, "value": v, "torch_clients": n, "deletes": d, "compares": s}
    return _run(Waits, edition, *faults, sizes=sizes, idle=idle, **found)


def _queues(
    edition: Edition, *faults: str, c: int = 2, e: int = 2, n: int = 1, b: int = 1, t: int = 1,
    idle: tuple[str, ...] = (), **found: str | tuple[str, ...],
) -> Run:  # fmt: skip
    """Clients, elements, how many of the clients are torch's, whether one may wait for both, whether time ends."""
    sizes = {"client": c, "element": e, "torch_clients": n, "both": b, "timeouts": t}
    return _run(Queues, edition, *faults, sizes=sizes, idle=idle, **found)


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

# fmt: off
_FRAMES = (
    _run(Frames, SEED, "stop",
        only_the_validated_are_served="S9", what_returned_has_happened="S15", requests_are_served="S23"),
    _run(Frames, SEED, "end", "revents", "stop",
        only_the_validated_are_served="S9", what_returned_has_happened="S15", requests_are_served="S23",
        an_end_is_reached="S23"),
    _run(Frames, TORCH,
        requests_are_whole="S8", nothing_is_undone="S8", only_the_validated_are_served="S9",
        who_keeps_the_rules_stays="S10", nothing_is_left_of_the_closed="S17"),
    _run(Frames, TORCH, "end", "stop", sizes={"connection": 1}, idle=("both_keys_are_written",),
        requests_are_whole="S8", only_the_validated_are_served="S9",
        who_keeps_the_rules_stays="S10", what_returned_has_happened="S15", nothing_is_left_of_the_closed="S17"),
    _run(Frames, TORCH, "stop",
        requests_are_whole="S8", nothing_is_undone="S8", only_the_validated_are_served="S9",
        who_keeps_the_rules_stays="S10", what_returned_has_happened="S15", nothing_is_left_of_the_closed="S17"),
    _run(Frames, TRYSTATE),
    _run(Frames, TRYSTATE, "end", "stop"),
    _run(Frames, TRYSTATE, "stop", sizes={"connection": 3}),
)
_STARTUPS = (
    _run(StartUps, SEED, started_means_enough_are_counted="S19"),
    _run(StartUps, SEED, "crash", idle=("the_master_misses_one",), started_means_enough_are_counted="S19"),
    _run(StartUps, SEED, "stop", started_means_enough_are_counted="S19"),
    _run(StartUps, SEED, "freeze",
        started_means_enough_are_counted="S19", the_constructor_ends="S14", deadlock_freedom="S14"),
    _run(StartUps, SEED, "crash", "patience", idle=("the_master_misses_one",), started_means_enough_are_counted="S19"),
    _run(StartUps, SEED, "again", started_means_enough_are_counted="S19"),
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
    _waits(SEED, c=1, k=1, d=0, idle=RACE,
        answers_are_in_step="S18", no_wake_up_is_lost="S21", ready_waits_return="S21"),
    _waits(SEED, c=1, k=1, v=2, s=0, idle=RACE,
        nobody_is_thrown_out=("S3", "S18"), answers_are_in_step="S18", keys_were_there_together="S18"),
    _waits(SEED, c=1, s=0, idle=RACE,
        keys_were_there_together=("S2", "S18"), nobody_is_thrown_out=("S3", "S18"), answers_are_in_step="S18"),
    _waits(SEED, "drop", "freeze", "half_frame", c=1, idle=RACE,
        keys_were_there_together=("S2", "S18"), nobody_is_thrown_out=("S3", "S18"), answers_are_in_step="S18",
        no_wake_up_is_lost="S21", ready_waits_return="S21"),
    _waits(SEED, k=1, idle=RACE,
        nobody_is_thrown_out=("S3", "S18"), answers_are_in_step="S18", keys_were_there_together="S18",
        no_wake_up_is_lost="S21", ready_waits_return="S21"),
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
    _queues(TORCH, c=1, b=0, idle=NO_BOTH, a_get_waits_for_its_key="S4", a_blocking_pop_never_says_empty="S4"),
    _queues(TORCH, c=1,
        a_get_waits_for_its_key="S4", a_blocking_pop_never_says_empty="S4", both_were_there_together="S4",
        a_wait_for_both_is_told="S6"),
    _queues(TORCH, e=1, b=0, idle=NO_BOTH,
        a_blocking_pop_never_says_empty="S7", no_popper_sleeps_beside_an_element="S28", poppers_are_served="S28"),
    _queues(TORCH, b=0, t=0, idle=NO_BOTH,
        a_get_waits_for_its_key="S4", a_blocking_pop_never_says_empty=("S4", "S7"),
        no_popper_sleeps_beside_an_element="S5", poppers_are_served="S5"),
    _queues(TORCH, b=0, idle=NO_BOTH,
        a_get_waits_for_its_key="S4", a_blocking_pop_never_says_empty=("S4", "S7"),
        no_popper_sleeps_beside_an_element=("S5", "S28"), poppers_are_served=("S5", "S28")),
    _queues(TORCH,
        both_were_there_together=("S2", "S4"), a_get_waits_for_its_key="S4",
        a_blocking_pop_never_says_empty=("S4", "S7"), no_popper_sleeps_beside_an_element=("S5", "S28"),
        poppers_are_served=("S5", "S28"), a_wait_for_both_is_told=("S5", "S6", "S28")),
    _queues(TORCH, "drop",
        both_were_there_together=("S2", "S4"), a_get_waits_for_its_key="S4",
        a_blocking_pop_never_says_empty=("S4", "S7"), no_popper_sleeps_beside_an_element=("S5", "S28"),
        poppers_are_served=("S5", "S28"), a_wait_for_both_is_told=("S5", "S6", "S28")),
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
        once_and_in_order="S20", callbacks_skip_nothing="S20", no_event_for_a_stranger="S20",
        nothing_is_left_behind="S20", nobody_is_closed_for_another="S20", every_change_is_on_its_way="S20"),
    _run(Watches, SEED, "leave", "newcomer", sizes=TWO_KEYS,
        once_and_in_order="S20", callbacks_skip_nothing="S20", no_event_for_a_stranger="S20",
        nothing_is_left_behind="S20", nobody_is_closed_for_another="S20", only_what_is_watched="S20",
        every_change_is_on_its_way="S20"),
    _run(Watches, SEED, "drop", sizes=WATCH,
        nothing_is_left_behind="S20", nobody_is_closed_for_another="S20", watch_key_returns="S24",
        the_lost_are_told="S24", deadlock_freedom="S24", every_change_is_on_its_way="S20", once_and_in_order="S20"),
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
    _run(Barriers, TORCH, sizes={**PAIR, "rounds": 2},
        nobody_passes_before_all_are_in="S12", keys_stay_untouched="S13"),
    _run(Barriers, TORCH, sizes={**TRIO, "rounds": 2},
        nobody_passes_before_all_are_in="S12", keys_stay_untouched="S13"),
    _run(Barriers, TORCH, "timeout", sizes=PAIR,
        nobody_passes_before_all_are_in=("S11", "S12"), failures_change_nothing="S11", keys_stay_untouched="S13",
        the_released_return="S27"),
    _run(Barriers, TORCH, "timeout", sizes=TRIO,
        nobody_passes_before_all_are_in=("S11", "S12"), failures_change_nothing="S11", keys_stay_untouched="S13",
        the_released_return="S27"),
    _run(Barriers, TORCH, "drop", sizes=TRIO,
        nobody_passes_before_all_are_in=("S11", "S12"), failures_change_nothing="S11", keys_stay_untouched="S13"),
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
    _run(Registers, TORCH,
        answers_are_those_of_one_moment="S8", multi_sets_are_seen_whole="S8", requests_are_whole="S8"),
    _run(Registers, TORCH, "drop",
        answers_are_those_of_one_moment="S8", multi_sets_are_seen_whole="S8", requests_are_whole="S8"),
    _run(Registers, TRYSTATE),
    _run(Registers, TRYSTATE, "drop"),
)
_JOURNALS = (
    _run(Journals, TRYSTATE),
    _run(Journals, TRYSTATE, "crash"),
)
# fmt: on
PLAN: tuple[Run, ...] = (
    _FRAMES + _STARTUPS + _REGISTERS + _WAITS + _QUEUES + _WATCHES + _REGISTRATIONS + _BARRIERS + _JOURNALS
)
