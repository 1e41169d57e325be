"""The runs that the design note tells, to draw: its walk-through of a pass over the example, in seven steps."""

from __future__ import annotations

from ..checker.expectations import Run
from ..checker.walks import Walk
from .backward import Backward
from .examples import NUMBER
from .vocabulary import Edition

# The note's steps 1 to 7; attempt 0, pair 0 is send1 with recv1, and pair 1 is send2 with recv2.
SEVEN_STEPS: tuple[tuple[str, ...], ...] = (
    ("begin(0)", "count_inputs(0)"),  # worker 0 starts from the loss and send1 to compute dependencies
    ("run(9)", "run(8)", "run(7)", "run(6)"),  # it executes mul, accumulates t4, and executes recv2
    ("take_gradient(0, 1)", "count_inputs(1)"),  # worker 1 hears of the pass for the first time, and computes its own
    ("run(5)", "run(4)"),  # send2 is enqueued, and add is executed
    ("run(3)", "take_gradient(0, 0)"),  # recv1 sends the gradients to worker 0
    ("run(2)",),  # worker 0 has computed its dependencies: it just executes send1
    ("run(0)", "run(1)"),  # the gradients of t1 and t2 are accumulated, as that of t4 has been
)
# The note does not tell how the pass ends: worker 1 is done when worker 0 has answered, and worker 0 when worker 1 has.
ENDS = ("finish(0)", "finish(1)", "hear_answer(0, 0)", "come_to_rest(1)", "hear_answer(0, 1)", "come_to_rest(0)")
NOTE = Walk(
    "backward-of-the-note", "A pass over the design note's example (distributed-autograd-design, FAST).",
    Run(Backward, {"graph": NUMBER["note"]}, Edition.TORCH),
    (*(step for steps in SEVEN_STEPS for step in steps), *ENDS),
)  # fmt: skip
WALKS = (NOTE,)
