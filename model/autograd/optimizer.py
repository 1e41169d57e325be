"""Distributed optimizers that step at the same time over the same owners.

Theory of operation. A distributed optimizer has a local optimizer on each worker that owns parameters. A step sends all
owners the context whose gradients they must apply, and ends when each has answered or has failed. A lock serializes the
local steps of a worker, since optimizers may share parameters. A step takes one lock at each owner and holds no lock
while it waits for another owner, so no two steps wait for each other.

Here each owner has one parameter, which all optimizers share. If a step's context has no gradient for it, the owner
must leave the parameter unchanged. The parameter's `.grad` also belongs to the user, and must have its old value after
a step.

Promised: an owner applies a step at most once, and only the gradients of that step's context; the steps of an owner
do not interleave; a step that returned was applied by every owner; every step returns or raises.

Not promised: that a step is applied by all owners or by no owner (`a_step_is_applied_in_part`), and that a step that
raised is over: a late owner may still apply it (`a_step_is_applied_after_it_raised`). A repeated call of step applies
it again at owners that have applied it.

Abstractions: an optimizer does not begin a step while an owner still has the previous one, or after the loss of an
owner. `scripted`: torch uses a TorchScript optimizer if it has one for a class, and otherwise a Python optimizer.
"""

from __future__ import annotations

from typing import Any

from ..language import *
from .vocabulary import Edition
from .vocabulary import OwnerState as Owner
from .vocabulary import OwnerStep as Part
from .vocabulary import StepState as Stage

S = SymbolicState
NOTE = "distributed-autograd-design: Distributed Optimizer"
UNDER_WAY = (Part.SENT, Part.WAITING, Part.INSIDE, Part.APPLIED)
BOTH = ("optimizer", "owner")


class Optimizers(System):
    """Some optimizers that each make a few steps over all owners."""

    title = "Distributed optimizers"
    Edition = (Edition.TORCH, Edition.TRYSTATE)

    optimizer = index(2)
    owner = index(2)
    steps = constant(2, "how many steps each optimizer makes")
    scripted = constant(0, "of torch: 1 if its local optimizers are TorchScript")

    begun = integer(0, "steps", per="optimizer", doc="how many steps it has begun")
    stage = choice(Stage, per="optimizer")
    place = choice(Part, per=BOTH, doc="an owner's part of the step")
    done = flag(per=BOTH, doc="the owner has answered that its part is made")
    failed = flag(per=BOTH, doc="the caller has recorded that the owner's part failed")
    missing = flag(per=BOTH, doc="the step's context has no gradient for the owner's parameter")
    grad = integer(0, "optimizer", per="owner", doc="its .grad: 1 + the optimizer that put it there, or 0")
    dead = flag(per="owner")

    applied = integer(0, 2, per=BOTH, doc="the truth: how often the step's gradients were applied; 2 also means more")
    alien = flag(per="owner", doc="the truth: a step has applied a gradient that is not of its context")

    def lifelines(self) -> Lifelines:
        """The optimizers have one lifeline, and so has each owner to which they send their steps."""
        callers = dict.fromkeys(("done", "failed", "missing", "call_times_out", "notice"))
        sent = Message(lambda at, _: (None, at[1]), sent=(Part.SENT,), taken=(Part.WAITING,))
        return Lifelines("optimizers", callers, ("applied", "alien"), messages={"place": sent})

    step_state = machine_of(stage, "A step, at its caller.")

    @machine(Owner)
    def owner_state(self, s: S, owner: Expr) -> Any:
        """An owner."""
        inside = any_(s.place[o, owner] == Part.INSIDE for o in s.optimizer)
        applied = any_(s.place[o, owner] == Part.APPLIED for o in s.optimizer)
        busy = ite(inside, Owner.TAKEN, ite(applied, Owner.CHANGED, Owner.FREE))
        return ite(s.dead[owner], Owner.LOST, busy)

    # ---- the caller

    def begins(self, s: S, optimizer: Expr) -> None:
        ready = all_((s.place[optimizer, w] == Part.NONE) & ~s.dead[w] for w in s.owner)
        s.when(s.stage[optimizer] != Stage.STEPPING, s.begun[optimizer] < self.steps, ready)
        s.begun[optimizer] = s.begun[optimizer] + 1
        s.stage[optimizer] = Stage.STEPPING
        for w in s.owner:
            s.place[optimizer, w] = Part.SENT
        reset(s.done, s.failed, s.missing, s.applied, at=optimizer)

    @transition(moves=[arc((Stage.IDLE, Stage.RETURNED, Stage.RAISED), Stage.STEPPING)], fair=False, cite=NOTE)
    def begin(self, s: S, optimizer: Expr) -> None:
        """A step begins: each owner is sent the context, which has a gradient for each parameter."""
        self.begins(s, optimizer)

    @transition(
        each=BOTH,
        moves=[arc((Stage.IDLE, Stage.RETURNED, Stage.RAISED), Stage.STEPPING)],
        fair=False,
        cite=NOTE,
    )
    def begin_without(self, s: S, optimizer: Expr, owner: Expr) -> None:
        """A step begins with a context that has no gradient for the parameter of one owner."""
        self.begins(s, optimizer)
        s.missing[optimizer, owner] = True

    @transition(moves=[arc(Stage.STEPPING, Stage.RETURNED)], cite=NOTE)
    def return_(self, s: S, optimizer: Expr) -> None:
        """Each owner has made its part: the step returns."""
        move(s.stage, Stage.STEPPING, Stage.RETURNED, self.may_return(s, optimizer), at=optimizer)

    def may_return(self, s: S, optimizer: Expr) -> Condition:
        return all_(s.done[optimizer, w] for w in s.owner)

    @transition(moves=[arc(Stage.STEPPING, Stage.RAISED)], cite="optimizer.py: _wait_for_all")
    def raise_(self, s: S, optimizer: Expr) -> None:
        """All parts are over, and an owner has failed: the step raises."""
        over = all_(s.done[optimizer, w] | s.failed[optimizer, w] for w in s.owner)
        move(s.stage, Stage.STEPPING, Stage.RAISED, over, any_(s.failed[optimizer, w] for w in s.owner), at=optimizer)

    # ---- an owner

    @transition(each=BOTH, cite=NOTE)
    def arrive(self, s: S, optimizer: Expr, owner: Expr) -> None:
        """The call arrives at an owner, which looks up the gradients."""
        move(s.place, Part.SENT, Part.WAITING, ~s.dead[owner], at=(optimizer, owner))

    @transition(
        each=BOTH,
        moves=[arc(Owner.FREE, Owner.TAKEN), may(Owner.CHANGED, Owner.TAKEN)],
        cite=NOTE + ": serialized via a lock",
    )
    def enter(self, s: S, optimizer: Expr, owner: Expr) -> None:
        """The step gets the lock of the owner and gives the parameter its gradient."""
        move(s.place, Part.WAITING, Part.INSIDE, ~s.dead[owner], self.may_enter(s, owner), at=(optimizer, owner))
        s.grad[owner] = self.grad_inside(s, optimizer, owner)

    def may_enter(self, s: S, owner: Expr) -> Condition:
        return ~any_(s.place[o, owner].isin((Part.INSIDE, Part.APPLIED)) for o in s.optimizer)

    def grad_inside(self, s: S, optimizer: Expr, owner: Expr) -> Any:
        """The value of `.grad` during the step."""
        return ite(s.missing[optimizer, owner], 0, ord_(optimizer) + 1)

    @transition(each=BOTH, moves=[arc(Owner.TAKEN, Owner.CHANGED)], cite=NOTE)
    def apply(self, s: S, optimizer: Expr, owner: Expr) -> None:
        """The local optimizer changes the parameter by the gradient that it finds, if any."""
        move(s.place, Part.INSIDE, Part.APPLIED, ~s.dead[owner], at=(optimizer, owner))
        found = self.gradient(s, optimizer, owner)
        own = (found == ord_(optimizer) + 1) & ~s.missing[optimizer, owner]
        again = own & (s.applied[optimizer, owner] < 2)
        s.applied[optimizer, owner] = ite(again, s.applied[optimizer, owner] + 1, s.applied[optimizer, owner])
        s.alien[owner] = s.alien[owner] | ((found > 0) & ~own)

    def gradient(self, s: S, optimizer: Expr, owner: Expr) -> Any:
        """The gradient that the local optimizer finds."""
        return s.grad[owner]

    @transition(each=BOTH, moves=[arc(Owner.CHANGED, Owner.FREE)], cite=NOTE)
    def answer(self, s: S, optimizer: Expr, owner: Expr) -> None:
        """The owner answers; the next step may begin here."""
        s.when(s.place[optimizer, owner] == Part.APPLIED, ~s.dead[owner])
        self.leaves(s, optimizer, owner)
        s.done[optimizer, owner] = ~s.failed[optimizer, owner]

    def leaves(self, s: S, optimizer: Expr, owner: Expr) -> None:
        s.place[optimizer, owner] = Part.NONE
        s.grad[owner] = 0

    # ---- faults

    @fault("error", each=BOTH, moves=[arc(Owner.TAKEN, Owner.FREE), may(Owner.TAKEN, Owner.CHANGED)])
    def fail(self, s: S, optimizer: Expr, owner: Expr) -> None:
        """The local optimizer raises before it has changed anything: the owner answers with the error."""
        s.when(s.place[optimizer, owner] == Part.INSIDE, ~s.dead[owner])
        self.leaves(s, optimizer, owner)
        s.failed[optimizer, owner] = True

    @fault("timeout", each=BOTH)
    def call_times_out(self, s: S, optimizer: Expr, owner: Expr) -> None:
        """The caller stops waiting; the owner continues."""
        s.when(s.stage[optimizer] == Stage.STEPPING, s.place[optimizer, owner].isin(UNDER_WAY))
        move(s.failed, False, True, at=(optimizer, owner))

    @fault("crash", moves=[arc((Owner.FREE, Owner.TAKEN, Owner.CHANGED), Owner.LOST)])
    def crash(self, s: S, owner: Expr) -> None:
        """An owner dies."""
        move(s.dead, False, True, at=owner)
        s.grad[owner] = 0

    @environment(each=BOTH, fair=True)
    def notice(self, s: S, optimizer: Expr, owner: Expr) -> None:
        """The caller notices that an owner is lost."""
        s.when(s.dead[owner], s.place[optimizer, owner] != Part.NONE)
        s.place[optimizer, owner] = Part.NONE
        s.failed[optimizer, owner] = True

    # ---- what must hold

    @terminal
    def at_rest(self, s: S) -> Condition:
        """No step is under way."""
        return ~s.stage.any(Stage.STEPPING) & all_(s.place[o, w] == Part.NONE for o in s.optimizer for w in s.owner)

    @sometimes()
    def all_return(self, s: S) -> Condition:
        """Each optimizer has returned from its last step."""
        return all_((s.stage[o] == Stage.RETURNED) & (s.begun[o] == self.steps) for o in s.optimizer)

    @sometimes()
    def two_are_at_one_owner(self, s: S) -> Condition:
        """Two steps are at one owner, one of them inside."""
        return any_(
            any_(s.place[o, w] == Part.WAITING for o in s.optimizer)
            & any_(s.place[o, w] == Part.INSIDE for o in s.optimizer)
            for w in s.owner
        )

    @sometimes(needs="error")
    def a_step_raises(self, s: S) -> Condition:
        """A step has raised."""
        return s.stage.any(Stage.RAISED)

    @always(witness="all_return", cite=NOTE)
    def applied_at_most_once(self, s: S) -> Condition:
        """An owner applies the gradients of a step at most once."""
        return all_(s.applied[o, w] <= 1 for o in s.optimizer for w in s.owner)

    @always(witness="all_return", cite=NOTE + ": apply gradients stored in the corresponding context")
    def only_its_own_gradients_are_applied(self, s: S) -> Condition:
        """A step applies only gradients of its context: a parameter without a gradient there stays unchanged."""
        return ~any_(s.alien)

    @always(witness="all_return")
    def returned_means_applied(self, s: S) -> Condition:
        """Each owner has applied a step that returned, if the context had a gradient for it."""
        return all_(
            implies(s.stage[o] == Stage.RETURNED, s.missing[o, w] | (s.applied[o, w] == 1))
            for o in s.optimizer
            for w in s.owner
        )

    @always(witness="a_step_raises", needs="error")
    def a_step_that_failed_raises(self, s: S) -> Condition:
        """A step does not return if an owner has failed in it."""
        return ~any_((s.stage[o] == Stage.RETURNED) & s.failed[o, w] for o in s.optimizer for w in s.owner)

    @always(witness="two_are_at_one_owner", cite=NOTE + ": serialized via a lock")
    def steps_do_not_interleave(self, s: S) -> Condition:
        """At most one step is inside an owner."""
        return all_(count(s.place[o, w].isin((Part.INSIDE, Part.APPLIED)) for o in s.optimizer) <= 1 for w in s.owner)

    @always(witness="all_return")
    def grad_is_what_it_was(self, s: S) -> Condition:
        """While no step is inside an owner, `.grad` of its parameter has its old value."""
        return all_(
            (s.grad[w] == 0) | any_(s.place[o, w].isin((Part.INSIDE, Part.APPLIED)) for o in s.optimizer)
            for w in s.owner
        )

    @leads_to(cite=NOTE)
    def a_step_ends(self, s: S, optimizer: Expr) -> tuple[Condition, Condition]:
        """Every step returns or raises."""
        return s.stage[optimizer] == Stage.STEPPING, s.stage[optimizer] != Stage.STEPPING

    # ---- not promised

    @sometimes(needs="error")
    def a_step_is_applied_in_part(self, s: S) -> Condition:
        """A step has raised, and an owner has applied it."""
        return any_((s.stage[o] == Stage.RAISED) & (s.applied[o, w] == 1) for o in s.optimizer for w in s.owner)

    @sometimes(needs="timeout")
    def a_step_is_applied_after_it_raised(self, s: S) -> Condition:
        """A step has raised, and an owner is about to apply it."""
        return any_((s.stage[o] == Stage.RAISED) & (s.place[o, w] == Part.INSIDE) for o in s.optimizer for w in s.owner)


# ---- the editions


class Torch(Optimizers, edition=Edition.TORCH):
    """torch 2.13: `.grad` stays after a step, and is applied again (G15); scripted optimizers have no lock (G16)."""

    def may_enter(self, s: S, owner: Expr) -> Condition:
        """The lock must be free; a scripted optimizer takes no lock."""
        return super().may_enter(s, owner) | (self.scripted == 1)

    def grad_inside(self, s: S, optimizer: Expr, owner: Expr) -> Any:
        """Only a parameter with a gradient is given one; a scripted optimizer gets a list of gradients."""
        return ite(s.missing[optimizer, owner] | (self.scripted == 1), s.grad[owner], ord_(optimizer) + 1)

    def gradient(self, s: S, optimizer: Expr, owner: Expr) -> Any:
        """The gradient in `.grad`; a scripted optimizer finds it in its list."""
        listed = ite(s.missing[optimizer, owner], 0, ord_(optimizer) + 1)
        return ite(self.scripted == 1, listed, s.grad[owner])

    def leaves(self, s: S, optimizer: Expr, owner: Expr) -> None:
        """`.grad` stays."""
        s.place[optimizer, owner] = Part.NONE


class Ours(Optimizers, edition=Edition.TRYSTATE):
    """Ours: a step borrows `.grad` and waits at most a minute for the lock."""

    @fault("slow", each=BOTH)
    def give_up(self, s: S, optimizer: Expr, owner: Expr) -> None:
        """Other steps take too long: the owner answers that it has not made the step."""
        move(s.place, Part.WAITING, Part.NONE, ~s.dead[owner], ~self.may_enter(s, owner), at=(optimizer, owner))
        s.failed[optimizer, owner] = True
