"""The run that distributed-autograd-design describes: the backward pass of its example, in the mode FAST."""

from __future__ import annotations

from ...checker.expectations import Run
from ...checker.walks import Taken, Walk
from ..examples import GRAPHS, NUMBER
from ..vocabulary import Edition, Mode
from .properties import Backward

NOTE = Run(Backward, {"graph": NUMBER["note"], "attempt": 1}, Edition.TORCH)


def counted(worker: int) -> str:
    """The nodes of a worker, each with the number of gradients that it waits for in FAST, without the root."""
    graph = GRAPHS[NUMBER["note"]]
    counts = zip(graph.nodes, graph.counts(Mode.FAST), strict=True)
    return ", ".join(f"{node.label} {count}" for node, count in counts if node.worker == worker and count)


FAST = Walk(
    "fast-pass", "A backward pass of two workers in the mode FAST (distributed-autograd-design, FAST mode).", NOTE,
    (
        Taken("begin(0)", "backward on worker 0"),
        Taken("count_inputs(0)", f"dependencies from the root and send1: {counted(0)}", (1,)),
        Taken("run(9)", "the root runs: its local engine begins", (2,)),
        Taken("run(8)", "mul runs", (2,)),
        Taken("run(7)", "the context gets the gradient of t4", (2,)),
        Taken("run(6)", "recv2 sends a gradient to worker 1", (2,)),
        Taken("take_gradient(0, 1)", "worker 1 gets its first gradient of the pass", (3,)),
        Taken("count_inputs(1)", f"dependencies of send2, add and recv1: {counted(1)}", (3,)),
        Taken("run(5)", "send2 runs", (4,)),
        Taken("run(4)", "add runs", (4,)),
        Taken("run(3)", "recv1 sends a gradient to worker 0", (5,)),
        Taken("take_gradient(0, 0)", "worker 0 has its dependencies", (6,)),
        Taken("run(2)", "send1 runs", (6,)),
        Taken("run(0)", "the context gets the gradient of t1", (7,)),
        Taken("run(1)", "the context gets the gradient of t2", (7,)),
        Taken("finish(1)", "the engine of worker 1 has no task left"),
        Taken("hear_answer(0, 0)", "worker 1 receives the answer of worker 0"),
        Taken("come_to_rest(1)", "worker 1 answers"),
        Taken("hear_answer(0, 1)", "worker 0 receives that answer"),
        Taken("finish(0)", "the engine of worker 0 has no task left"),
        Taken("come_to_rest(0)", "backward returns"),
    ),
    witness="it_returns",
)  # fmt: skip
WALKS = (FAST,)
