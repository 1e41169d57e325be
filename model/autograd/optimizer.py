"""Distributed optimizers that step at the same time over the same owners.

Theory of operation. A distributed optimizer has a local one on each worker that owns parameters. A step tells all
owners the context whose gradients to apply, and ends when each has answered or has failed. The local steps of a worker
come one after the other, by a lock, since optimizers may have parameters in common. A step takes one lock at each
owner, and holds none while it waits for another owner: so that no two steps wait for each other.

Here each owner has one parameter, which all optimizers share. A step's context has a gradient for it, or has none;
then the owner must leave the parameter alone. The parameter's `.grad` is also the user's, and is to be what it was
after a step.

Promised: an owner applies a step at most once, and the gradients of that step's context alone; the steps of an owner
do not interleave; a step that returned was applied by every owner; every step returns or raises.

Not promised: that a step is applied by all owners or none (`a_step_is_applied_in_part`), and that a step that raised
is over: an owner that was late may still apply it (`a_step_is_applied_after_it_raised`). To call step again applies it
again where it was applied.

Abstractions: an optimizer begins no step while an owner still has the one before, nor where it knows an owner to be
lost. `scripted`: torch makes a TorchScript optimizer of a class for which it has one, and a Python one of any other.
"""

from __future__ import annotations

from typing import Any

from ..language import *
from ..language.lifelines import Place, Value
from .vocabulary import Edition, OwnerState, OwnerStep, StepState

S = SymbolicState
Condition = Any  # an Expr: the attributes of a symbolic state are typed as Any
C, P, W = StepState, OwnerStep, OwnerState
NOTE = "distributed-autograd-design: Distributed Optimizer"
UNDER_WAY = (P.SENT, P.WAITING, P.INSIDE, P.APPLIED)
BOTH = ("optimizer", "owner")


class Optimizers(System):
    """Some optimizers, each of which makes a few steps over all owners."""

    title = "Distributed optimizers"
    Edition = (Edition.TORCH, Edition.TRYSTATE)

    optimizer = index(2)
    owner = index(2)
    steps = constant(2, "how many steps each optimizer makes")
    scripted = constant(0, "of torch: 1 if its local optimizers are TorchScript")

    begun = integer(0, "steps", per="optimizer", doc="how many steps it has begun")
    stage = choice(StepState, per="optimizer")
    place = choice(OwnerStep, per=BOTH, doc="an owner's part of the step")
    done = flag(per=BOTH, doc="the owner has answered that its part is made")
    failed = flag(per=BOTH, doc="the owner's part has failed, as far as the caller knows")
    missing = flag(per=BOTH, doc="the step's context has no gradient for the owner's parameter")
    grad = integer(0, "optimizer", per="owner", doc="its .grad: 1 + the optimizer that put it there, or 0")
    dead = flag(per="owner")

    applied = integer(0, 2, per=BOTH, doc="the truth: how often the step's gradients were applied; 2 stands for more")
    alien = flag(per="owner", doc="the truth: a step has applied a gradient that is not of its context")

    def lifelines(self) -> Lifelines:
        """The optimizers have one lifeline, beside those of the owners to which they send their steps."""

        def to_owner(indices: tuple[int, ...], _: Value) -> tuple[Place, Place]:
            return None, indices[1]

        callers = dict.fromkeys(("done", "failed", "missing", "call_times_out", "notice"))
        sent = Message(to_owner, sent=(P.SENT,), taken=(P.WAITING,))
        return Lifelines("optimizers", callers, ("applied", "alien"), messages={"place": sent})

    @machine(StepState, each="optimizer")
    def step_state(self, s: S, optimizer: Expr) -> Any:
        """A step, at its caller."""
        return s.stage[optimizer]

    @machine(OwnerState, each="owner")
    def owner_state(self, s: S, owner: Expr) -> Any:
        """An owner."""
        inside = any_(s.place[o, owner] == P.INSIDE for o in s.optimizer)
        applied = any_(s.place[o, owner] == P.APPLIED for o in s.optimizer)
        busy = ite(inside, W.TAKEN, ite(applied, W.CHANGED, W.FREE))
        return ite(s.dead[owner], W.LOST, busy)

    # ---- the caller

    def begins(self, s: S, optimizer: Expr) -> None:
        ready = all_((s.place[optimizer, w] == P.NONE) & ~s.dead[w] for w in s.owner)
        s.when(s.stage[optimizer] != C.STEPPING, s.begun[optimizer] < self.steps, ready)
        s.begun[optimizer] = s.begun[optimizer] + 1
        s.stage[optimizer] = C.STEPPING
        for w in s.owner:
            s.place[optimizer, w] = P.SENT
            s.done[optimizer, w] = False
            s.failed[optimizer, w] = False
            s.missing[optimizer, w] = False
            s.applied[optimizer, w] = 0

    @transition(
        each="optimizer",
        moves=[arc((C.IDLE, C.RETURNED, C.RAISED), C.STEPPING)],
        fair=False,
        cite=NOTE,
    )
    def begin(self, s: S, optimizer: Expr) -> None:
        """A step begins: each owner is told its context, which has a gradient for each parameter."""
        self.begins(s, optimizer)

    @transition(
        each=BOTH,
        moves=[arc((C.IDLE, C.RETURNED, C.RAISED), C.STEPPING)],
        fair=False,
        cite=NOTE,
    )
    def begin_without(self, s: S, optimizer: Expr, owner: Expr) -> None:
        """A step begins, and its context has no gradient for the parameter of one owner."""
        self.begins(s, optimizer)
        s.missing[optimizer, owner] = True

    @transition(each="optimizer", moves=[arc(C.STEPPING, C.RETURNED)], cite=NOTE)
    def return_(self, s: S, optimizer: Expr) -> None:
        """Each owner has made its part."""
        s.when(s.stage[optimizer] == C.STEPPING, self.may_return(s, optimizer))
        s.stage[optimizer] = C.RETURNED

    def may_return(self, s: S, optimizer: Expr) -> Condition:
        return all_(s.done[optimizer, w] for w in s.owner)

    @transition(each="optimizer", moves=[arc(C.STEPPING, C.RAISED)], cite="optimizer.py: _wait_for_all")
    def raise_(self, s: S, optimizer: Expr) -> None:
        """All are over, and an owner has failed."""
        over = all_(s.done[optimizer, w] | s.failed[optimizer, w] for w in s.owner)
        s.when(s.stage[optimizer] == C.STEPPING, over, any_(s.failed[optimizer, w] for w in s.owner))
        s.stage[optimizer] = C.RAISED

    # ---- an owner

    @transition(each=BOTH, cite=NOTE)
    def arrive(self, s: S, optimizer: Expr, owner: Expr) -> None:
        """The call arrives: the owner looks up the gradients."""
        s.when(s.place[optimizer, owner] == P.SENT, ~s.dead[owner])
        s.place[optimizer, owner] = P.WAITING

    @transition(each=BOTH, moves=[arc(W.FREE, W.TAKEN), may(W.CHANGED, W.TAKEN)], cite=NOTE + ": serialized via a lock")
    def enter(self, s: S, optimizer: Expr, owner: Expr) -> None:
        """The step has the owner to itself, and gives the parameter its gradient."""
        s.when(s.place[optimizer, owner] == P.WAITING, ~s.dead[owner], self.may_enter(s, owner))
        s.place[optimizer, owner] = P.INSIDE
        s.grad[owner] = self.grad_inside(s, optimizer, owner)

    def may_enter(self, s: S, owner: Expr) -> Condition:
        return ~any_(s.place[o, owner].isin((P.INSIDE, P.APPLIED)) for o in s.optimizer)

    def grad_inside(self, s: S, optimizer: Expr, owner: Expr) -> Any:
        """What `.grad` is during the step."""
        return ite(s.missing[optimizer, owner], 0, ord_(optimizer) + 1)

    @transition(each=BOTH, moves=[arc(W.TAKEN, W.CHANGED)], cite=NOTE)
    def apply(self, s: S, optimizer: Expr, owner: Expr) -> None:
        """The local optimizer changes the parameter by the gradient that it finds, if it finds one."""
        s.when(s.place[optimizer, owner] == P.INSIDE, ~s.dead[owner])
        found = self.gradient(s, optimizer, owner)
        own = (found == ord_(optimizer) + 1) & ~s.missing[optimizer, owner]
        again = own & (s.applied[optimizer, owner] < 2)
        s.applied[optimizer, owner] = ite(again, s.applied[optimizer, owner] + 1, s.applied[optimizer, owner])
        s.alien[owner] = s.alien[owner] | ((found > 0) & ~own)
        s.place[optimizer, owner] = P.APPLIED

    def gradient(self, s: S, optimizer: Expr, owner: Expr) -> Any:
        """The gradient that the local optimizer finds."""
        return s.grad[owner]

    @transition(each=BOTH, moves=[arc(W.CHANGED, W.FREE)], cite=NOTE)
    def answer(self, s: S, optimizer: Expr, owner: Expr) -> None:
        """The next step may begin here; the owner answers."""
        s.when(s.place[optimizer, owner] == P.APPLIED, ~s.dead[owner])
        self.leaves(s, optimizer, owner)
        s.done[optimizer, owner] = ~s.failed[optimizer, owner]

    def leaves(self, s: S, optimizer: Expr, owner: Expr) -> None:
        s.place[optimizer, owner] = P.NONE
        s.grad[owner] = 0

    # ---- faults

    @fault("error", each=BOTH, moves=[arc(W.TAKEN, W.FREE), may(W.TAKEN, W.CHANGED)])
    def fail(self, s: S, optimizer: Expr, owner: Expr) -> None:
        """The local optimizer raises before it has changed anything: the owner answers with the error."""
        s.when(s.place[optimizer, owner] == P.INSIDE, ~s.dead[owner])
        self.leaves(s, optimizer, owner)
        s.failed[optimizer, owner] = True

    @fault("timeout", each=BOTH)
    def call_times_out(self, s: S, optimizer: Expr, owner: Expr) -> None:
        """The caller waits no longer; the owner goes on."""
        s.when(s.stage[optimizer] == C.STEPPING, s.place[optimizer, owner].isin(UNDER_WAY))
        s.when(~s.failed[optimizer, owner])
        s.failed[optimizer, owner] = True

    @fault("crash", each="owner", moves=[arc((W.FREE, W.TAKEN, W.CHANGED), W.LOST)])
    def crash(self, s: S, owner: Expr) -> None:
        """An owner dies."""
        s.when(~s.dead[owner])
        s.dead[owner] = True
        s.grad[owner] = 0

    @environment(each=BOTH, fair=True)
    def notice(self, s: S, optimizer: Expr, owner: Expr) -> None:
        """The caller notices that an owner is lost."""
        s.when(s.dead[owner], s.place[optimizer, owner] != P.NONE)
        s.place[optimizer, owner] = P.NONE
        s.failed[optimizer, owner] = True

    # ---- what must hold

    @terminal
    def at_rest(self, s: S) -> Condition:
        """No step is under way."""
        return all_(x != C.STEPPING for x in s.stage) & all_(
            s.place[o, w] == P.NONE for o in s.optimizer for w in s.owner
        )

    @sometimes()
    def all_return(self, s: S) -> Condition:
        """Each optimizer has returned from its last step."""
        return all_((s.stage[o] == C.RETURNED) & (s.begun[o] == self.steps) for o in s.optimizer)

    @sometimes()
    def two_are_at_one_owner(self, s: S) -> Condition:
        """Two steps are at one owner, one of them inside."""
        return any_(
            any_(s.place[o, w] == P.WAITING for o in s.optimizer) & any_(s.place[o, w] == P.INSIDE for o in s.optimizer)
            for w in s.owner
        )

    @sometimes(needs="error")
    def a_step_raises(self, s: S) -> Condition:
        """A step has raised."""
        return any_(x == C.RAISED for x in s.stage)

    @always(witness="all_return", cite=NOTE)
    def applied_at_most_once(self, s: S) -> Condition:
        """An owner applies the gradients of a step at most once."""
        return all_(s.applied[o, w] <= 1 for o in s.optimizer for w in s.owner)

    @always(witness="all_return", cite=NOTE + ": apply gradients stored in the corresponding context")
    def only_its_own_gradients_are_applied(self, s: S) -> Condition:
        """A step applies gradients of its context alone: a parameter that has none in it is left alone."""
        return ~any_(s.alien)

    @always(witness="all_return")
    def returned_means_applied(self, s: S) -> Condition:
        """Each owner has applied a step that returned, if the context had a gradient for it."""
        return all_(
            implies(s.stage[o] == C.RETURNED, s.missing[o, w] | (s.applied[o, w] == 1))
            for o in s.optimizer
            for w in s.owner
        )

    @always(witness="a_step_raises", needs="error")
    def a_step_that_failed_raises(self, s: S) -> Condition:
        """A step of which an owner has failed does not return."""
        return ~any_((s.stage[o] == C.RETURNED) & s.failed[o, w] for o in s.optimizer for w in s.owner)

    @always(witness="two_are_at_one_owner", cite=NOTE + ": serialized via a lock")
    def steps_do_not_interleave(self, s: S) -> Condition:
        """At most one step is inside of an owner."""
        return all_(count(s.place[o, w].isin((P.INSIDE, P.APPLIED)) for o in s.optimizer) <= 1 for w in s.owner)

    @always(witness="all_return")
    def grad_is_what_it_was(self, s: S) -> Condition:
        """`.grad` of a parameter is what it was before, where no step is inside."""
        return all_(
            (s.grad[w] == 0) | any_(s.place[o, w].isin((P.INSIDE, P.APPLIED)) for o in s.optimizer) for w in s.owner
        )

    @leads_to(each="optimizer", cite=NOTE)
    def a_step_ends(self, s: S, optimizer: Expr) -> tuple[Condition, Condition]:
        """Every step returns or raises."""
        return s.stage[optimizer] == C.STEPPING, s.stage[optimizer] != C.STEPPING

    # ---- what is not promised

    @sometimes(needs="error")
    def a_step_is_applied_in_part(self, s: S) -> Condition:
        """A step has raised, and an owner has applied it."""
        return any_((s.stage[o] == C.RAISED) & (s.applied[o, w] == 1) for o in s.optimizer for w in s.owner)

    @sometimes(needs="timeout")
    def a_step_is_applied_after_it_raised(self, s: S) -> Condition:
        """A step has raised, and an owner is about to apply it."""
        return any_((s.stage[o] == C.RAISED) & (s.place[o, w] == P.INSIDE) for o in s.optimizer for w in s.owner)


# ---- the editions


class Torch(Optimizers, edition=Edition.TORCH):
    """torch 2.13: `.grad` stays after a step, and is applied again (G15); scripted optimizers have no lock (G16)."""

    def may_enter(self, s: S, owner: Expr) -> Condition:
        """A scripted optimizer takes no lock."""
        return super().may_enter(s, owner) | (self.scripted == 1)

    def grad_inside(self, s: S, optimizer: Expr, owner: Expr) -> Any:
        """Only a parameter that has a gradient is given one; a scripted optimizer gets a list of them."""
        return ite(s.missing[optimizer, owner] | (self.scripted == 1), s.grad[owner], ord_(optimizer) + 1)

    def gradient(self, s: S, optimizer: Expr, owner: Expr) -> Any:
        """A scripted optimizer finds it in its list."""
        listed = ite(s.missing[optimizer, owner], 0, ord_(optimizer) + 1)
        return ite(self.scripted == 1, listed, s.grad[owner])

    def leaves(self, s: S, optimizer: Expr, owner: Expr) -> None:
        """`.grad` stays."""
        s.place[optimizer, owner] = P.NONE


class Ours(Optimizers, edition=Edition.TRYSTATE):
    """Ours: `.grad` is borrowed for a step, and the lock is waited for no longer than a minute."""

    @fault("slow", each=BOTH)
    def give_up(self, s: S, optimizer: Expr, owner: Expr) -> None:
        """Other steps take too long: the owner answers that it has made none."""
        s.when(s.place[optimizer, owner] == P.WAITING, ~s.dead[owner], ~self.may_enter(s, owner))
        s.place[optimizer, owner] = P.NONE
        s.failed[optimizer, owner] = True
