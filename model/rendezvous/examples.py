"""The runs that the articles show in pictures: an operation of a node, and a node that comes to two that run."""

from __future__ import annotations

from ..checker.expectations import Run
from ..checker.walks import Taken, Walk
from .holder import Holders
from .vocabulary import Edition

FIRST = Run(Holders, {"node": 1, "min_nodes": 1, "max_nodes": 1, "rounds": 1}, Edition.SEED)
THREE = Run(Holders, {"node": 3, "min_nodes": 1, "max_nodes": 4, "rounds": 1}, Edition.SEED)

EXITED = "begin({0}) read({0}) decide({0}) conclude({0}) "
JOINED = "begin({0}) read({0}) decide({0}) act_add_to_participants({0}) write_wins({0}) decide({0}) "
# Two nodes run, before the third begins: its exit operation finds nothing to do.
TWO_RUN = (
    EXITED.format(0) + EXITED.format(1) + JOINED.format(0) + JOINED.format(1)
    + "last_call_passes read(0) decide(0) act_mark_complete(0) write_wins(0) decide(0) conclude(0) "
    + "read(1) decide(1) conclude(1) "
)  # fmt: skip

EXECUTOR_RUNS = Walk(
    "executor-runs", "An executor runs the join operator (rendezvous-engine 2.2.3.1).", FIRST,
    (
        Taken("begin(0)", "run: an operator and a deadline are given"),
        Taken("read(0)", "sync: the holder is clean, and get_state reads the store"),
        Taken("decide(0)", "the operator decides on what was read"),
        Taken("act_add_to_participants(0)", "the executor acts on its copy, and calls mark_dirty"),
        Taken("write_wins(0)", "sync: the holder is dirty, and set_state writes"),
        Taken("decide(0)", "the operator decides on what was written: FINISH ends the loop"),
        Taken("conclude(0)", "run returns"),
    ),
    before=EXITED.format(0),
)  # fmt: skip
SCALE_UP = Walk(
    "scale-up-newcomer", "A node comes to two that run, and waits for the next round (elastic-node-change 2.2.3).",
    THREE,
    (
        Taken("begin(2)", "the agent of the new node calls next_rendezvous: the exit operation", (1, 2)),
        Taken("read(2)", "sync"),
        Taken("decide(2)", "it is on no list: FINISH"),
        Taken("conclude(2)", "the join operation is next"),
        Taken("begin(2)", "run of the join operator"),
        Taken("read(2)", "sync: the round is complete, with room for more"),
        Taken("decide(2)", "the join operator decides ADD_TO_WAIT_LIST", (3,)),
        Taken("act_add_to_wait_list(2)", "the executor runs _add_to_wait_list on its copy", (4,)),
        Taken("write_wins(2)", "the wait list of the shared state has the node", (5,)),
    ),
    before=TWO_RUN,
)  # fmt: skip
WALKS = (EXECUTOR_RUNS, SCALE_UP)
