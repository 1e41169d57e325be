"""The runs that the articles show in pictures: an operation, a newcomer to two running nodes, and rounds."""

from __future__ import annotations

from ..checker.expectations import Run
from ..checker.walks import Taken, Walk
from ..language import Condition, SymbolicState, count, sometimes
from .holder import Holders
from .properties import Rendezvous
from .rooms import Rooms
from .vocabulary import AgentPhase, Edition, Membership

FIRST = Run(Holders, {"node": 1, "min_nodes": 1, "max_nodes": 1, "rounds": 1}, Edition.SEED)
THREE = Run(Holders, {"node": 3, "min_nodes": 1, "max_nodes": 4, "rounds": 1}, Edition.SEED)
ROUND = Run(Rendezvous, {"node": 3, "min_nodes": 2, "max_nodes": 4, "rounds": 1}, Edition.SEED)
ROOM = Run(Rooms, {"node": 2, "min_nodes": 2, "max_nodes": 3, "rounds": 2}, Edition.TRYSTATE, ("worker_failure",))

EXITED = "begin({0}) read({0}) decide({0}) conclude({0}) "
JOINED = "begin({0}) read({0}) decide({0}) act_add_to_participants({0}) write_wins({0}) decide({0}) "
# Two nodes run before the third begins: its exit operation finds nothing to do.
TWO_RUN = (
    EXITED.format(0) + EXITED.format(1) + JOINED.format(0) + JOINED.format(1)
    + "last_call_passes read(0) decide(0) act_mark_complete(0) write_wins(0) decide(0) conclude(0) "
    + "read(1) decide(1) conclude(1) "
)  # fmt: skip


@sometimes()
def one_waits_for_two(system: Holders, s: SymbolicState) -> Condition:
    """A round of two is complete, and a third node is on its wait list."""
    waiting, inside = s.member.count(Membership.WAITING), s.member.count(Membership.PARTICIPANT)
    return s.complete & (waiting == 1) & (inside == 2)


@sometimes()
def three_run(system: Rendezvous, s: SymbolicState) -> Condition:
    """Three nodes run workers, in one complete round."""
    return s.complete & (count(s.phase[j] == AgentPhase.RUNNING for j in s.node) == 3)


@sometimes()
def both_are_in_the_next_round(system: Rooms, s: SymbolicState) -> Condition:
    """Two nodes have returned from the second round."""
    return (s.round == 1) & (s.returned.count() == 2)


EXECUTOR_RUNS = Walk(
    "executor-runs", "An executor runs the join operator (rendezvous-engine 2.2.3.1).", FIRST,
    (
        Taken("begin(0)", "run: an operator and a deadline are given"),
        Taken("read(0)", "sync: the holder is clean, and get_state reads the store"),
        Taken("decide(0)", "the operator decides on what was read"),
        Taken("act_add_to_participants(0)", "the executor changes its copy and calls mark_dirty"),
        Taken("write_wins(0)", "sync: the holder is dirty, and set_state writes"),
        Taken("decide(0)", "the operator decides on what was written: FINISH ends the loop"),
        Taken("conclude(0)", "run returns"),
    ),
    witness="a_round_is_complete",
    before=EXITED.format(0),
)  # fmt: skip
SCALE_UP = Walk(
    "scale-up-newcomer", "A node joins two that run, and waits for the next round (elastic-node-change 2.2.3).",
    THREE,
    (
        Taken("begin(2)", "the agent of the new node calls next_rendezvous: the exit operation", (1, 2)),
        Taken("read(2)", "sync"),
        Taken("decide(2)", "the node is not on a list: FINISH"),
        Taken("conclude(2)", "the join operation is next"),
        Taken("begin(2)", "run of the join operator"),
        Taken("read(2)", "sync: the round is complete, with room for more"),
        Taken("decide(2)", "the join operator decides ADD_TO_WAIT_LIST", (3,)),
        Taken("act_add_to_wait_list(2)", "the executor runs _add_to_wait_list on its copy", (4,)),
        Taken("write_wins(2)", "the wait list of the shared state has the node", (5,)),
    ),
    witness=one_waits_for_two,
    before=TWO_RUN,
)  # fmt: skip
LAST_CALL = Walk(
    "round-with-last-call", "A round with a last call (rendezvous-engine 3.2.4, 4.1, 4.5).", ROUND,
    (
        Taken("add_to_participants(0)", "the join operator decides ADD_TO_PARTICIPANTS: fewer than min_nodes joined"),
        Taken("add_to_participants(1)", "min_nodes have joined: the deadline is now + timeout.last_call"),
        Taken("add_to_participants(2)", "a third node joins before the deadline"),
        Taken("last_call_passes", "the deadline is over"),
        Taken("mark_complete(0)", "MARK_RENDEZVOUS_COMPLETE: the ranks are the order of the participants"),
        Taken("finish(1)", "the operator reads a complete round with the node: FINISH"),
        Taken("finish(2)", "and on the third node"),
        Taken("return_as_master(0)", "next_rendezvous returns rank 0, which publishes the master's address"),
        *(Taken(f"return_to_connect({k})", f"next_rendezvous returns rank {k}") for k in (1, 2)),
        *(Taken(f"connect({k})", "the node connects to the master and starts its workers") for k in (1, 2)),
    ),
    witness=three_run,
    before="exit_finish(0) exit_finish(1) exit_finish(2)",
)  # fmt: skip
IN_A_ROOM = Walk(
    "room-rounds", "Two rounds in a room: requests, answers and notices.", ROOM,
    (
        Taken("ask_to_join(0)", "JOIN: join 1, on connection 1"),
        Taken("exit_finish(0, 0)"),
        Taken("add_to_participants(0, 0)", "fewer than min_nodes joined"),
        Taken("receive_answer(0)", "the join continues"),
        Taken("ask_to_join(1)"),
        Taken("exit_finish(1, 0)"),
        Taken("add_to_participants(1, 0)", "min_nodes have joined: the last call begins"),
        Taken("receive_answer(1)"),
        Taken("last_call_passes", "by the server's clock"),
        Taken("server_completes", "a notice to each member: its rank, the master, the digest of the members"),
        Taken("notice_finishes(0)", "no request of the node is under way, and its lease holds"),
        Taken("notice_finishes(1)"),
        Taken("start_workers(0)"),
        Taken("start_workers(1)"),
        Taken("worker_fails(1)", "the agent stops its workers"),
        Taken("ask_to_join(1)", "JOIN, of the round that it leaves"),
        Taken("replace_round(1, 0)", "the other member is expected in the next round"),
        Taken("receive_answer(1)"),
        Taken("restart_workers(0)", "a notice says that the round is replaced"),
        Taken("ask_to_join(0)", "JOIN, of a round that is over"),
        Taken("exit_finish(0, 0)"),
        Taken("add_to_participants(0, 0)", "each expected member has come: the last call begins"),
        Taken("receive_answer(0)"),
        Taken("last_call_passes"),
        Taken("server_completes"),
        Taken("notice_finishes(0)"),
        Taken("notice_finishes(1)"),
    ),
    witness=both_are_in_the_next_round,
)  # fmt: skip
WALKS = (EXECUTOR_RUNS, SCALE_UP)
ROUNDS = (LAST_CALL, IN_A_ROOM)
