"""Known defects of process groups and of file://, and the runs that show them. Data: `trystate verify` checks it.

P1 to P7 happen on torch 2.6 to 2.15, P10 on 2.13 (`trystate replay NAME`): P1 to P4 and P10 with gloo groups, P5 to
P7 with FileStore; P9 up to 2.13. P8 is of the edition SEED, whose barrier torch has today only with
TORCH_DIST_INIT_BARRIER=1. Ours makes torch's groups over a store of its own: P3 and P10 are gone, P1, P2, P9 stay; our
FileStore has none of the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ..checker.expectations import Finding, Run, explained
from .creation import Groups
from .files import Files
from .registry import Registry
from .vocabulary import Edition

_FINDINGS = (
    Finding("outsider-skips", "P1",
            "A process that is no member of a group, and does not call new_group for it, names its next group like "
            "another one: that is never made.",
            "derive the name from the ranks and from how often this process has made a group of them",
            "new_group ends with a timeout, after 30 minutes with gloo, on all members of a group, all of which have "
            "called it.",
            "A process skips a new_group whose ranks it is not in, as in `if rank in ranks: new_group(ranks)`, which "
            "the documentation forbids; nothing says so until a member of a later group is among those who skipped.",
            "Call new_group on every process for every group, in one order."),
    Finding("groups-mixed", "P2",
            "Two threads of a process that make two groups in another order than another process exchange them: both "
            "are made, and their collectives mix.",
            "write the group's ranks and description below the name, and compare those of all members",
            "Collectives of two groups return wrong numbers, and nothing is raised.",
            "Two threads of a process call new_group for groups of the same ranks, and nothing orders their calls "
            "alike on all ranks.",
            "Make all groups in one thread."),
    Finding("names-reused", "P3",
            "The counter of names begins again at zero while the keys of the groups before are in the store: a new "
            "group reads their addresses.",
            "put the keys of each life below a prefix that its members have agreed on",
            "init_process_group raises 'Connection refused', or 'Connect timeout' after 20 s, although all processes "
            "run and reach each other.",
            "destroy_process_group, or a restart of a process, and then init_process_group with the same store; so do "
            "the workers that torchrun --max-restarts starts again, which share the agent's store.",
            "Give each new group a new store, or PrefixStore(a name that all of them know, store); for restarts of "
            "torchrun set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1."),
    Finding("local-names-differ", "P4",
            "With use_local_synchronization=True the name counts the groups of this process: members that are in "
            "different numbers of groups name a group differently, and it is never made.",
            "count only the groups of the same ranks",
            "new_group(..., use_local_synchronization=True) ends with a timeout, after 30 minutes with gloo, on all "
            "members, all of which have called it in one order.",
            "use_local_synchronization=True, and members of the group of whom some are in more groups than others.",
            "Leave use_local_synchronization out, and call new_group on every process."),
    Finding("left-over-file", "P5",
            "FileStore takes a file that a crashed job has left for its own: its keys are read, and it is never "
            "deleted, since the crashed users stay counted.",
            "note who has opened the file, and begin anew when none of them lives",
            "init_process_group(file://...) connects to addresses of an earlier job, and raises 'Connection refused' "
            "or 'Connect timeout' in some of the jobs after the one that crashed.",
            "A job with a FileStore was killed, and another one begins with the same path.",
            "Give each job a path of its own, or delete the file before any process of the job starts."),
    Finding("torn-record", "P6",
            "A record that was cut off makes every reader of a FileStore loop for ever, within the lock, and in the "
            "constructor with the interpreter lock.",
            "give records a length and a checksum, read whole ones, and cut the rest away under the lock",
            "Every process that opens the file hangs in the constructor of FileStore, with a busy CPU, and does not "
            "react to Ctrl-C; processes that had it open hang in their next get.",
            "A set that meets a full disk, a quota or a limit of the file size, or a writer that is killed between "
            "the writes of one record.",
            "Delete the file, and start all processes again."),
    Finding("lock-kept", "P7",
            "FileStore waits for the lock of its file without a limit, whatever its timeout.",
            "ask for the lock again and again until the timeout is over",
            "set, get and the end of a process hang while another process is stopped.",
            "A process that is stopped (SIGSTOP, a debugger, a suspended VM) while it reads or writes the file.",
            "End the stopped process: the kernel then frees the lock."),
    Finding("world-waits", "P8",
            "new_group ends with a barrier of the whole world: a process that does not call stops all others, also "
            "where it is no member.",
            "let outsiders return at once, and derive the name so that it needs no call of theirs",
            since="1.9", until="1.9"),
    Finding("local-name-taken", "P9",
            "With use_local_synchronization=True the name counts the groups that this process has now: after one was "
            "destroyed, the next of the same ranks gets the name of a living group, or of the dead one.",
            "count how many groups of the same ranks the process has ever made, and never count down",
            "new_group raises 'The specified group name has already been created', although it was given none.",
            "use_local_synchronization=True, two groups of the same ranks, of which the first was destroyed.",
            "Destroy the groups of the same ranks in the opposite order, or leave use_local_synchronization out.",
            until="2.13"),
    Finding("ranks-not-compared", "P10",
            "Two groups of other ranks that are made at once have one name, where only their members call new_group: "
            "the members read each other's addresses, and sums are of ranks of both groups.",
            "write the group's ranks below the name, and compare those of all members",
            "Collectives return wrong numbers, those of ranks of another group, and nothing is raised.",
            "Processes call new_group only for the groups that they are in, as in `new_group([0, 1] if rank < 2 else "
            "[2, 3])`, and the groups are disjoint, or overlap.",
            "Call new_group on every process for every group, in one order."),
)  # fmt: skip
FINDINGS: Mapping[str, Finding] = {f.name: f for f in _FINDINGS}
Found = Mapping[str, str | tuple[str, ...]]


def _run(
    edition: Edition, *faults: str, p: int = 3, g: int = 2, o: int = 1, others: int = 0, idle: tuple[str, ...] = (),
    found: Found = MappingProxyType({}),
) -> Run:  # fmt: skip
    """Processes, groups, no members of the first group and of later ones; property = findings of its violation."""
    sizes = {"process": p, "group": g, "outsiders": o} | ({"others": others} if others else {})
    return Run(Groups, sizes, edition, faults, explained({**found}, FINDINGS), idle)


def _files(edition: Edition, *faults: str, p: int = 2, found: Found = MappingProxyType({})) -> Run:
    return Run(Files, {"process": p}, edition, faults, explained({**found}, FINDINGS))


def _registry(edition: Edition, found: Found = MappingProxyType({})) -> Run:
    return Run(Registry, {}, edition, (), explained({**found}, FINDINGS), ())


SEED, TORCH, LOCAL, TRYSTATE = Edition.SEED, Edition.TORCH, Edition.LOCAL, Edition.TRYSTATE


def _hangs(number: str) -> Found:
    return dict.fromkeys(("creation_ends", "called_means_created", "deadlock_freedom"), number)


MIXED: Found = {"a_communicator_is_of_one_group": "P2"}
REUSED: Found = {"names_are_fresh": "P3", "called_means_created": "P3"}
MISLED: Found = {"a_communicator_is_of_one_group": "P10"}
TAKEN: Found = {"a_name_is_given_once": "P9", "a_group_can_be_made": "P9"}
UNMET = ("all_are_created",)
LEFT: Found = {"addresses_are_of_this_job": "P5", "the_last_one_deletes": "P5"}
TORN: Found = dict.fromkeys(("half_a_record_stops_nobody", "operations_end", "deadlock_freedom"), "P6")
KEPT: Found = dict.fromkeys(("operations_end", "deadlock_freedom"), "P7")
BOTH: Found = dict.fromkeys(("operations_end", "deadlock_freedom"), ("P6", "P7"))
ALL = ("another_job", "die", "full", "stop")

# fmt: off
PLAN: tuple[Run, ...] = (
    _run(SEED),
    _run(SEED, "skip", found=_hangs("P8")),
    _run(TORCH),
    _run(TORCH, "skip", found=_hangs("P1")),
    _run(TORCH, p=4, o=2, others=2),
    _run(TORCH, "skip", p=4, o=2, others=2, found={**MISLED, **_hangs("P1")}),
    _run(TORCH, "skip", others=1, found={**MISLED, **_hangs("P1")}),
    _run(TORCH, "threads", p=2, o=0, found=MIXED),
    _run(TORCH, "threads", found={**MIXED, **_hangs("P2")}),
    _run(TORCH, "again", found=REUSED),
    _run(TORCH, "restart", found={"names_are_fresh": "P3"}),
    _run(TORCH, "again", "restart", found=REUSED),
    _run(LOCAL, o=0),
    _run(LOCAL, idle=UNMET, found=_hangs("P4")),
    _run(LOCAL, "skip", idle=UNMET, found=_hangs("P4")),
    _run(TRYSTATE),
    _run(TRYSTATE, "skip", found=_hangs("P1")),
    _run(TRYSTATE, "skip", p=4, o=2, others=2, found=_hangs("P1")),
    _run(TRYSTATE, "skip", others=1, found=_hangs("P1")),
    _run(TRYSTATE, "threads", p=2, o=0, found=MIXED),
    _run(TRYSTATE, "again"),
    _run(TRYSTATE, "again", "restart"),
    _run(TRYSTATE, "again", "restart", p=2, g=3, o=0),
    _registry(TORCH),
    _registry(LOCAL, found=TAKEN),
    _files(TORCH),
    _files(TORCH, "another_job"),
    _files(TORCH, "full", found=TORN),
    _files(TORCH, "die", found=TORN),
    _files(TORCH, "stop", found=KEPT),
    _files(TORCH, "another_job", "die", found={**LEFT, **TORN}),
    _files(TORCH, *ALL, p=3, found={**LEFT, **TORN, **BOTH}),
    _files(TRYSTATE),
    _files(TRYSTATE, "another_job"),
    _files(TRYSTATE, "die"),
    _files(TRYSTATE, "full"),
    _files(TRYSTATE, "stop"),
    _files(TRYSTATE, *ALL),
    _files(TRYSTATE, *ALL, p=3),
)
# fmt: on
