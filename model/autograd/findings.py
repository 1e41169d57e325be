"""Known defects of distributed autograd. Data: `trystate verify` checks it.

All are defects of torch 2.13's torch.distributed.autograd and torch.distributed.rpc that happen again on the real one
(`trystate replay NAME`). G1 to G8 are of a backward pass, G9 to G14 of contexts and their ids, G15 and G16 of
optimizers, G17 to G19 of the shutdown of RPC. The checker finds them in the edition TORCH, but for G5, G7 and G8, which
no model of states shows: a text, a value, and a call that is not made. Ours has none.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from ..checker.expectations import Finding, Run, explained
from ..language.systems import System
from ..language.transitions import fault_bounds
from .backward import Backward
from .contexts import Contexts
from .engagement import Engagements
from .examples import NUMBER
from .ids import Ids
from .meeting import Meetings
from .optimizer import Optimizers
from .references import References
from .tombstones import Tombstones
from .vocabulary import Edition, Mode

_FINDINGS = (
    Finding("old-task-fed", "G1",
            "A gradient names no pass: a task left by a failed pass takes the gradients of the next, which fails.",
            "number the passes, refuse what belongs to an older one, and drop a failed pass everywhere",
            "A retry of backward in the same context raises 'dependency not found', or returns wrong gradients.",
            "A second backward with retain_graph=True in the context in which one has failed, where some worker "
            "still waits for gradients of the first.",
            "Leave the context after any error, and do the forward pass anew in another."),
    Finding("failed-pass-accumulates", "G2",
            "The gradients of a failed pass stay in the context: after a retry they are too large.",
            "keep the gradients of a pass apart until it has succeeded",
            "After an error and a retry the gradients of some parameters are too large, those of others right; "
            "nothing says so.",
            "A second backward with retain_graph=True in the context in which one has failed.",
            "Leave the context after any error, and do the forward pass anew in another."),
    Finding("duplicate-gradient", "G3",
            "A gradient that arrives twice is executed twice: the sum is too large, and nothing says so.",
            "recognise a gradient by context, pass and message",
            "Gradients are too large.",
            "A transport that repeats messages, or an RPC backend that retries; TensorPipe does neither.",
            "None is needed with TensorPipe; with another backend, keep retries of gradients off."),
    Finding("graph-kept-after-error", "G4",
            "A pass that fails is not cancelled: a worker that waits for a second gradient keeps its graph for ever.",
            "have the root tell every worker, and wait for the answers",
            "Memory of a worker grows with every failed pass; _get_debug_info() shows passes and contexts that never "
            "end.",
            "A pass that fails on one worker while another waits for a further gradient, in a job that goes on "
            "afterwards.",
            "End the job after an error in backward, or restart the workers now and then."),
    Finding("second-pass-asserts", "G5",
            "A second pass on a context whose pass is running ends in an internal assertion.",
            "refuse it with an error of its own",
            "backward raises 'INTERNAL ASSERT FAILED ... please report a bug to PyTorch'.",
            "Two threads of one worker, or two workers, that call backward with one context at the same time.",
            "Give each pass a context of its own, or run them one after the other."),
    Finding("unused-call-hangs", "G6",
            "A pass waits for a gradient to every call of its context: one whose result is not used is waited for "
            "without end, and no timeout applies.",
            "find out that all is quiet and something is missing, and fail with the name of the call",
            "backward never returns, on any timeout; no message says which call is meant.",
            "Any RPC in the context whose tensors need a gradient and whose result does not reach the loss: a "
            "metric, a call for logging, a branch that is not taken.",
            "Make such calls outside of the context or under torch.no_grad(), or add 0 times their result to the "
            "loss."),
    Finding("zeros-shipped", "G7",
            "A call whose result got no gradient is sent zeros: the graph behind it is executed, and its parameters "
            "have a gradient of zero instead of none.",
            "ship undefined gradients as such",
            "Parameters that the loss does not depend on have gradients of zero: optimizers with momentum or weight "
            "decay move them.",
            "A call that returns several tensors, of which the loss uses some.",
            "Return and use one tensor for each call, or leave parameters with an all-zero gradient out of the step."),
    Finding("hooks-not-called", "G8",
            "Hooks on parameters that are to run after their gradient is accumulated are not called.",
            "call them when the context has the gradient",
            "Code that such hooks were to run (an optimizer step in the backward pass, logging, freeing of "
            "gradients) does not run.",
            "Tensor.register_post_accumulate_grad_hook on parameters of a distributed pass.",
            "Do the work after backward, over the gradients of get_gradients(context)."),
    Finding("negative-ids", "G9",
            "A worker may be number 32768 to 65535, and is kept as a signed 16 bit number: its ids are negative.",
            "take all ids as unsigned",
            "Ids of contexts and messages are negative, and context_id >> 48 is not the number of the worker.",
            "A worker of rank 32768 or higher; ranks up to 65535 are accepted.",
            "Keep ranks below 32768."),
    Finding("id-means-none", "G10",
            "The last id of worker 65535 is -1, which means that there is no context; no worker gives out its last.",
            "let no number mean none, and give out every id",
            "Nothing is seen in practice: the id is reached after 2 to the power of 48 contexts.",
            "A worker of rank 65535.",
            "Keep ranks below 32768."),
    Finding("context-recreated", "G11",
            "A request or answer that arrives after its context was released creates it again, for good.",
            "remember what was released, and run such a call outside any context",
            "num_autograd_contexts of _get_debug_info() grows, and with it the memory of the graphs.",
            "A context that is left while calls of it are on their way: rpc_async without wait(), calls that timed "
            "out, slow workers.",
            "Wait for every call before the context is left, also for those that are not needed any more."),
    Finding("callback-after-release", "G12",
            "The answer to a gradient is handled by a callback with a bare pointer to the context: when the context "
            "was released meanwhile, it writes to freed memory.",
            "let a callback find its context by id, or not at all",
            "A worker crashes, hangs, or ends a pass with the error of another: after an error in backward, now and "
            "then.",
            "A pass that fails on one worker while another has not answered yet; the context is left, and that "
            "answer is an error too.",
            "End the job after an error in backward, or wait before the context is left until _get_debug_info() of "
            "all workers shows no pass."),
    Finding("creator-dies", "G13",
            "The contexts of a worker that dies stay on all others, for good.",
            "release the contexts of a lost peer",
            "num_autograd_contexts of _get_debug_info() grows, and with it the memory of the graphs, with every "
            "worker that dies.",
            "Parameter servers that outlive their trainers.",
            "Restart long-lived workers when one that had called them has died."),
    Finding("clean-up-cut-off", "G14",
            "Clean-up is passed on from worker to worker: behind one that dies nobody is told.",
            "answer when all that one has told have answered; when one of these is lost, tell everybody",
            "num_autograd_contexts of _get_debug_info() grows on workers that were called by others on somebody's "
            "behalf.",
            "Nested calls, A to B to C, and a worker in the middle that dies before the context is left.",
            "Restart long-lived workers when one that had called them has died."),
    Finding("stale-gradient-stepped", "G15",
            "A local optimizer leaves .grad of its parameters behind: a step without a gradient applies the last one.",
            "give back .grad after a step, and leave a parameter without a gradient alone",
            "Parameters that the loss does not depend on this time are changed by the gradient of an earlier step.",
            "DistributedOptimizer of a class without a TorchScript version (a user's own, NAdam, LBFGS), and contexts "
            "in which a parameter has no gradient: branches, experts, embeddings.",
            "Use a class with a TorchScript version, or set .grad to None on the owners after each step."),
    Finding("scripted-steps-interleave", "G16",
            "Scripted local optimizers take no lock: two steps over one parameter interleave, and updates are lost.",
            "take the lock of the worker in every local step",
            "Elements of a parameter lack a part of an update; nothing says so, and no two runs are alike.",
            "Two DistributedOptimizers, or two threads with one, of a class with a TorchScript version (SGD, Adam), "
            "that step at the same time over the same parameters.",
            "Let one worker at a time step, or wrap the class in a subclass: it is not scripted, and takes the lock."),
    Finding("gone-worker-waited-for", "G17",
            "A graceful shutdown waits without end for a worker that has died or has left without waiting.",
            "look at lost connections while it waits, and raise",
            "shutdown() never returns on the workers that are left; no message says which worker is meant.",
            "A worker that is not the leader, and dies or calls shutdown(graceful=False) before it has called "
            "shutdown(); of a dead leader, the worker with the least name, the call to it raises.",
            "Have a watchdog of your own end the job, as torchrun does when a worker dies."),
    Finding("shutdown-timeout-ignored", "G18",
            "The timeout of a graceful shutdown is taken for the signal that all have come: it waits on for them.",
            "raise when the wait has timed out, and name the workers that did not come",
            "shutdown(timeout=1) waits on for as long as the timeout of calls, and raises 'Wait timeout'.",
            "shutdown() with a timeout, while another worker works on.",
            "Give shutdown() no timeout, and bound it by rpc_timeout of the options."),
    Finding("late-call-outlives-shutdown", "G19",
            "A graceful shutdown does not wait for a function whose caller has given up: its own calls fail.",
            "count the functions that run, and not only the calls that wait",
            "A function raises 'RPC is no longer running on this node', or 'pipe closed', though every worker called "
            "shutdown() gracefully.",
            "A call that timed out at its caller shortly before the shutdown, and whose function still runs or calls "
            "on.",
            "Have the functions say that they are over, and wait for that before shutdown()."),
)  # fmt: skip
FINDINGS: Mapping[str, Finding] = {f.name: f for f in _FINDINGS}


def _run(
    system: type[System], edition: enum.Enum, *faults: str, sizes: Mapping[str, int] | None = None,
    idle: tuple[str, ...] = (), **found: str | tuple[str, ...],
) -> Run:  # fmt: skip
    """One run: system, edition and faults, and property = the findings that explain its violation."""
    return Run(system, sizes or {}, edition, faults, explained(found, FINDINGS), idle)


def _contexts(
    edition: Edition, *faults: str, w: int = 3, c: int = 2, o: int = 1, p: int = 0,
    idle: tuple[str, ...] = (), **found: str | tuple[str, ...],
) -> Run:  # fmt: skip
    """Workers, calls, whether the context may be left while calls are out, passes."""
    sizes = {"worker": w, "calls": c, "outlives": o, "passes": p}
    idle = (*idle, *(() if p else ("a_pass_runs_elsewhere",)))
    return _run(Contexts, edition, *faults, sizes=sizes, idle=idle, **found)


TORCH, TRYSTATE = Edition.TORCH, Edition.TRYSTATE
PROMPT = ("a_call_outlives_the_context", "clean_up_comes_first")
LOSSES = ("crash", "creator_crash", "timeout", "lose", "duplicate")

# fmt: off
CONTEXTS: tuple[Run, ...] = (
    _contexts(TORCH, w=2, o=0, idle=PROMPT),
    _contexts(TORCH, w=2,
        released_is_for_good="G11", after_exit_and_quiet_nobody_has_it="G11", clean_up_reaches_everybody="G11"),
    _contexts(TORCH, "creator_crash", w=2, o=0,
        after_exit_and_quiet_nobody_has_it="G13", clean_up_reaches_everybody="G13"),
    _contexts(TORCH, o=0, idle=PROMPT),
    _contexts(TORCH, "lose", "duplicate", o=0, idle=PROMPT),
    _contexts(TORCH, "crash", o=0, after_exit_and_quiet_nobody_has_it="G14", clean_up_reaches_everybody="G14"),
    _contexts(TORCH, "timeout", o=0,
        released_is_for_good="G11", after_exit_and_quiet_nobody_has_it="G11", clean_up_reaches_everybody="G11"),
    _contexts(TORCH, "error", o=0, p=1, idle=PROMPT,
        what_is_released_is_not_in_use="G4", no_callback_touches_what_is_gone="G12"),
    _contexts(TORCH,
        released_is_for_good="G11", after_exit_and_quiet_nobody_has_it="G11", clean_up_reaches_everybody="G11"),
    _contexts(TRYSTATE, o=0, idle=PROMPT),
    _contexts(TRYSTATE, c=3),
    _contexts(TRYSTATE, "error", c=3, p=1),
    _contexts(TRYSTATE, *LOSSES, o=0),
    _contexts(TRYSTATE, *LOSSES, "error", p=1),
    _contexts(TRYSTATE, *LOSSES[:3], c=3),
    _contexts(TRYSTATE, "crash", w=4, c=3),
    _run(Tombstones, TORCH, released_is_for_good="G11", after_exit_and_quiet_nobody_has_it="G11"),
    _run(Tombstones, TRYSTATE),
    _run(Tombstones, TRYSTATE, sizes={"context": 4, "peer": 1}),
    _run(Ids, TORCH, an_id_says_whose_it_is="G9", no_id_means_none="G10", every_id_is_given_out="G10"),
    _run(Ids, TRYSTATE),
)
# fmt: on


def _backward(
    edition: Edition | Mode,
    graph: str,
    *faults: str,
    attempts: int = 1,
    idle: tuple[str, ...] = (),
    **found: str | tuple[str, ...],
) -> Run:
    """One graph of the examples, and how often backward() is called."""
    sizes = {"graph": NUMBER[graph], "attempt": attempts}
    return _run(Backward, edition, *faults, sizes=sizes, idle=idle, **found)


SMART = Mode.SMART
FINE, UNMET, LOCAL = ("it_raises",), ("it_returns", "a_retry_returns"), ("a_worker_is_engaged",)
# Every fault of one pass: with `again`, backward() is called on a graph that a pass is using.
ALL = tuple(fault for fault in fault_bounds(Backward.for_edition(SMART).declarations()) if fault != "again")
UNTRIED = ("a_retry_returns",)
SHAPES = ("note", "nested", "diamond")

# fmt: off
PASSES: tuple[Run, ...] = (
    *(_backward(TORCH, graph, idle=FINE) for graph in SHAPES),
    _backward(TORCH, "local", idle=(*FINE, *LOCAL)),
    _backward(TORCH, "note", "error", a_failed_pass_leaves_no_gradients="G2"),
    _backward(TORCH, "unused-alone", idle=(*FINE, *UNMET, *LOCAL),
        backward_ends="G6", unused_calls_are_named="G6", deadlock_freedom="G6"),
    _backward(TORCH, "unused-call", idle=UNMET,
        errors_reach_everybody="G4", after_an_error_nothing_is_left="G4", unused_calls_are_named="G6",
        a_failed_pass_leaves_no_gradients="G2"),
    _backward(TORCH, "note", "die", after_an_error_nothing_is_left="G4", a_failed_pass_leaves_no_gradients="G2"),
    _backward(TORCH, "note", "copy",
        gradients_are_right="G3", a_failed_pass_leaves_no_gradients="G3", after_an_error_nothing_is_left="G3",
        inputs_are_counted="G3", a_send_runs_once="G3", a_part_is_done_when_all_has_run="G3",
        the_root_returns_last="G3"),
    _backward(TORCH, "note", "leave", after_an_error_nothing_is_left="G4", released_contexts_are_not_touched="G12"),
    _backward(TORCH, "shared", "error", attempts=2,
        a_retry_is_not_disturbed="G1", inputs_are_counted="G1", a_send_runs_once="G1",
        a_part_is_done_when_all_has_run="G1", answers_concern_their_pass="G1", errors_reach_everybody="G4",
        after_an_error_nothing_is_left="G4", a_failed_pass_leaves_no_gradients="G2"),
    _backward(TORCH, "note", "again", attempts=2, idle=UNTRIED),
    *(_backward(TRYSTATE, graph, idle=FINE) for graph in SHAPES),
    _backward(TRYSTATE, "local", idle=(*FINE, *LOCAL)),
    _backward(TRYSTATE, "note", "again", attempts=2, idle=UNTRIED),
    _backward(TRYSTATE, "unused-alone", idle=(*UNMET, *LOCAL)),
    _backward(TRYSTATE, "unused-call", idle=UNMET),
    _backward(TRYSTATE, "unused-far", idle=UNMET),
    _backward(TRYSTATE, "note", *ALL, attempts=2),
    _backward(TRYSTATE, "shared", *ALL),
    _backward(TRYSTATE, "chain-3", *ALL),
    _backward(TRYSTATE, "crossed", "error", "late"),
    _backward(TRYSTATE, "served", "error", "late"),
    _backward(TRYSTATE, "joined", *ALL),
    _backward(TRYSTATE, "parallel", "error", "late"),
    _backward(TRYSTATE, "unused-output", *ALL, idle=UNMET),
    *(_backward(SMART, graph, idle=FINE) for graph in SHAPES),
    _backward(SMART, "local", idle=(*FINE, *LOCAL)),
    _backward(SMART, "note", "again", attempts=2, idle=UNTRIED),
    _backward(SMART, "unused-alone", idle=(*FINE, *LOCAL)),
    _backward(SMART, "unused-call", idle=FINE),
    _backward(SMART, "note", *ALL, attempts=2),
    _backward(SMART, "unused-output", *ALL),
    _backward(SMART, "served", "error", "late"),
    _backward(SMART, "joined", "error", "late"),
    _backward(SMART, "parallel", "error", "late"),
)
# fmt: on


def _optimizers(edition: Edition, *faults: str, steps: int, scripted: int = 0, **found: str | tuple[str, ...]) -> Run:
    """Two optimizers over two owners."""
    return _run(Optimizers, edition, *faults, sizes={"steps": steps, "scripted": scripted}, idle=(), **found)


# fmt: off
OPTIMIZERS: tuple[Run, ...] = (
    _optimizers(TORCH, steps=2, only_its_own_gradients_are_applied="G15", grad_is_what_it_was="G15"),
    _optimizers(TORCH, "error", steps=2, only_its_own_gradients_are_applied="G15", grad_is_what_it_was="G15"),
    _optimizers(TORCH, steps=2, scripted=1, steps_do_not_interleave="G16"),
    _optimizers(TORCH, "error", "timeout", "crash", steps=1,
        only_its_own_gradients_are_applied="G15", grad_is_what_it_was="G15"),
    _optimizers(TRYSTATE, steps=2),
    _optimizers(TRYSTATE, "error", steps=2),
    _optimizers(TRYSTATE, "error", "slow", "timeout", "crash", steps=1),
)
# fmt: on


def _meetings(edition: Edition, *faults: str, w: int = 2, idle: tuple[str, ...] = (), **found: str) -> Run:
    """Workers that call each other in a ring."""
    return _run(Meetings, edition, *faults, sizes={"worker": w}, idle=idle, **found)


# fmt: off
MEETINGS: tuple[Run, ...] = (
    _meetings(TORCH),
    _meetings(TORCH, "timeout", a_graceful_end_leaves_no_call="G19"),
    _meetings(TORCH, "late", a_timeout_ends_the_wait="G18"),
    _meetings(TORCH, "impatient", shutdown_ends="G17", deadlock_freedom="G17"),
    _meetings(TORCH, "crash", shutdown_ends="G17", deadlock_freedom="G17"),
    _meetings(TORCH, "crash", "again", shutdown_ends="G17", deadlock_freedom="G17"),
    _meetings(TORCH, "twin"),
    _meetings(TRYSTATE),
    _meetings(TRYSTATE, "crash", "timeout", "late", "impatient"),
    _meetings(TRYSTATE, "crash", "again"),
    _meetings(TRYSTATE, "twin"),
    _meetings(TRYSTATE, "crash", w=3),
    _meetings(TRYSTATE, "timeout", w=3),
)
# fmt: on
REFERENCES: tuple[Run, ...] = (
    _run(References, TRYSTATE),
    _run(References, TRYSTATE, "crash"),
    _run(References, TRYSTATE, "owner_crash"),
)  # fmt: skip
ENGAGEMENTS: tuple[Run, ...] = (
    _run(Engagements, TRYSTATE, sizes={"worker": 3, "call": 3}, idle=("it_raises",)),
    _run(Engagements, TRYSTATE, "fail", "die", "lose", "again", sizes={"worker": 3, "call": 2}),
)  # fmt: skip
PLAN: tuple[Run, ...] = PASSES + CONTEXTS + OPTIMIZERS + REFERENCES + MEETINGS + ENGAGEMENTS
