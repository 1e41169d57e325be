"""Known defects of distributed autograd. Data: `trystate verify` checks it.

All are defects of torch 2.13's torch.distributed.autograd and torch.distributed.rpc that `trystate replay NAME`
reproduces on torch. G1 to G8 concern a backward pass, G9 to G14 contexts and their ids, G15 and G16 optimizers, and
G17 to G19 the shutdown of RPC. The checker finds them in the edition TORCH, except G5, G7 and G8, which no model of
states shows: a text, a value, and a call that is not made. Our edition has no findings.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ..checker.expectations import Found, Run, read_findings, search
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

FINDINGS = read_findings(__name__)
_run = partial(search, FINDINGS)


def _contexts(
    edition: Edition, *faults: str, w: int = 3, c: int = 2, o: int = 1, p: int = 0, idle: tuple[str, ...] = (),
    **found: Any,
) -> Run:  # fmt: skip
    """One run of a context: `w` workers, `c` calls, `o` = 1 if it may be left before its calls return, `p` passes."""
    sizes = {"worker": w, "calls": c, "outlives": o, "passes": p}
    idle = idle if p else (*idle, "a_pass_runs_elsewhere")
    return _run(Contexts, edition, *faults, sizes=sizes, idle=idle, **found)


TORCH, TRYSTATE = Edition.TORCH, Edition.TRYSTATE
PROMPT = ("a_call_outlives_the_context", "clean_up_comes_first")
LOSSES = ("crash", "creator_crash", "timeout", "lose", "duplicate")


def _kept(number: str) -> Found:
    """A worker has a context that is over, because of this finding."""
    return dict.fromkeys(("after_exit_and_quiet_nobody_has_it", "clean_up_reaches_everybody"), number)


# fmt: off
CONTEXTS: tuple[Run, ...] = (
    _contexts(TORCH, w=2, o=0, idle=PROMPT),
    _contexts(TORCH, w=2, released_is_for_good="G11", **_kept("G11")),
    _contexts(TORCH, "creator_crash", w=2, o=0, **_kept("G13")),
    _contexts(TORCH, o=0, idle=PROMPT),
    _contexts(TORCH, "lose", "duplicate", o=0, idle=PROMPT),
    _contexts(TORCH, "crash", o=0, **_kept("G14")),
    _contexts(TORCH, "timeout", o=0, released_is_for_good="G11", **_kept("G11")),
    _contexts(TORCH, "error", o=0, p=1, idle=PROMPT,
        what_is_released_is_not_in_use="G4", no_callback_touches_what_is_gone="G12"),
    _contexts(TORCH, released_is_for_good="G11", **_kept("G11")),
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


def _backward(edition: Edition | Mode, graph: str, *faults: str, attempts: int = 1, **found: Any) -> Run:
    """One run over a graph of the examples, with `attempts` calls of backward()."""
    return _run(Backward, edition, *faults, sizes={"graph": NUMBER[graph], "attempt": attempts}, **found)


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


def _optimizers(edition: Edition, *faults: str, steps: int, scripted: int = 0, **found: Any) -> Run:
    """One run of two optimizers over two owners."""
    return _run(Optimizers, edition, *faults, sizes={"steps": steps, "scripted": scripted}, **found)


STALE: Found = dict.fromkeys(("only_its_own_gradients_are_applied", "grad_is_what_it_was"), "G15")
# fmt: off
OPTIMIZERS: tuple[Run, ...] = (
    _optimizers(TORCH, steps=2, **STALE),
    _optimizers(TORCH, "error", steps=2, **STALE),
    _optimizers(TORCH, steps=2, scripted=1, steps_do_not_interleave="G16"),
    _optimizers(TORCH, "error", "timeout", "crash", steps=1, **STALE),
    _optimizers(TRYSTATE, steps=2),
    _optimizers(TRYSTATE, "error", steps=2),
    _optimizers(TRYSTATE, "error", "slow", "timeout", "crash", steps=1),
)
# fmt: on


def _meetings(edition: Edition, *faults: str, w: int = 2, **found: Any) -> Run:
    """One run of workers that call each other in a ring."""
    return _run(Meetings, edition, *faults, sizes={"worker": w}, **found)


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
