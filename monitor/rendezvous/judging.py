"""The problems of a run: violated properties, promises that cannot be kept any more, and lines that fit no state.

Theory of operation. An invariant is violated when it fails in each possible state. A violation is always reported if
the property is in `HARM`. Other properties fail briefly in ordinary restarts of torch, so they are reported only on
request. A property is evaluated again only when a field that it reads has changed. Its answers are cached.

An open promise (`leads to`) is checked at the end of the record. It is also checked when only heartbeats have happened
for a time as long as the lifetime of a heartbeat. The check searches all steps that the living nodes can still do by
themselves, without a new fault. If the search ends without reaching the goal, the promise is broken permanently. If the
search reaches its limit, the promise is undecided.
"""

from __future__ import annotations

import time as clock
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trystate.model.checker.expectations import Finding
from trystate.model.language import Form
from trystate.model.language.expressions import Expr, fields_read
from trystate.model.language.properties import Property
from trystate.model.language.transitions import Kind
from trystate.model.rendezvous.vocabulary import Membership

from .known import TakenStep, unrolled
from .nodes import Peer
from .shared_state import NodeName, Snapshot
from .signatures import name_of
from .states import Shown
from .stepping import At, Bytes, Stepper

if TYPE_CHECKING:
    from .follower import Follower

HARM = ("agree_on_world", "agree_on_master", "never_two_groups", "at_most_max")
STAYS, EXPELLED = "live_nodes_stay", "connecting-node-expelled"
STEPS = ("closing_is_earned", STAYS)  # properties of one step
RESTARTS_MAX = 3  # full rounds, one after the other, that begin while the same node waits
# The properties of the agent whose violation the store shows.
CLOSED, UNANSWERED = "restarts_left_are_used", "everybody_gets_an_answer"
PROBLEMS_MAX = 1_000
SEARCH_STATES_MAX = 3_000
SEARCH_SECONDS_MAX = 5.0  # processor time: a busy machine decides as much as an idle one
STEPS_KEPT = 400  # steps since the round began, by which a finding is named
WAITS_MAX = 8  # waits that are kept with a broken promise
DECIDES = " → "  # separates an operator and its decision in the name of a part of a guard
NEAREST = 3  # legal steps that are shown with an illegal line
BEGINS = ("mark_complete", "exit_remove_from_participants", "replace_round", "give_notice")  # a round, or its end
STILL = ("phase", "crashed", "complete", "closed", "round", "master")  # fields that stay while nothing moves
BEATING = ("keep_alive", "heartbeat_ages")  # steps of living nodes that no promise depends on


@dataclass(slots=True)
class Problem:
    """A problem and the line that shows it first. `kind`: violated, hopeless, unexplained, passing, note."""

    kind: str
    time: float
    place: str
    text: str
    name: str = ""  # name of the property
    finding: Finding | None = None
    nodes: tuple[str, ...] = ()
    until: float | None = None  # the time of the line from which on it holds again
    steps: tuple[str, ...] = ()  # the steps since the round began
    nearest: tuple[str, ...] = ()  # legal steps, and the condition that forbids each
    waits: tuple[str, ...] = ()  # the nodes' waits that nothing can end
    after: str = ""  # the place of an earlier unexplained line, after which the states are assumptions
    cause: Finding | None = None  # the finding that caused this one
    doubt: str = ""  # the record lacks lines that may explain it, so it is undecided

    @property
    def harm(self) -> bool:
        """Whether it makes the exit code 1."""
        return self.kind in ("violated", "hopeless", "unexplained") and not self.doubt


@dataclass(slots=True)
class _Memory:
    """The answers for one property, by the fields that it reads."""

    fields: tuple[int, ...]
    expr: Expr
    known: dict[tuple[bytes, ...], bool] = field(default_factory=dict)


class Judge:
    """Judges the states of a follower."""

    def __init__(self, follower: Follower) -> None:
        self.follower = follower
        self.problems: list[Problem] = []
        self.still_since = 0.0  # the time since which only heartbeats have happened
        # Broken promises, and the nodes that each is about. The number of a node changes when another node comes.
        self.open: dict[str, tuple[tuple[NodeName, ...], ...]] = {}
        self._still: tuple[bytes, ...] = ()
        self._still_place = ""
        self._asked: tuple[bytes, ...] | None = None  # the rest at which the promises were checked
        self._failing: dict[str, Problem] = {}
        self._last: tuple[Bytes, ...] = ()
        self._steps: list[str] = []
        self._waited: dict[NodeName, int] = {}  # number of consecutive full rounds during which a node has waited
        self.rebuilt()

    def rebuilt(self) -> None:
        """Adapt to another size of the system."""
        stepper = self.follower.stepper
        self._memories = {
            p.name: _Memory(tuple(sorted({stepper.columns[name].at for name in fields_read(p.exprs[0])})), p.exprs[0])
            for p in stepper.system.properties
            if p.form is Form.ALWAYS
        }
        self._last = ()
        self._lasting = [c.at for name, c in stepper.columns.items() if name in STILL]
        self._still, self._asked = (), None

    # ---- as the lines come

    def look(self) -> None:
        """Record the invariants that fail in every possible state, with start and end times."""
        states = tuple(self.follower.states)
        if states == self._last:
            return
        self._last = states
        still = tuple(states[0][at] for at in self._lasting)
        if still != self._still:
            self._still, self.still_since, self._still_place = still, self.follower.now, self.follower.place
            self._mended(states)
        for name, memory in self._memories.items():
            kind = "violated" if name in HARM else "passing"
            if self._fails(memory, states):
                if name not in self._failing:
                    self._failing[name] = self._violated(name, kind)
            elif name in self._failing:
                self._failing.pop(name).until = self.follower.now

    def _fails(self, memory: _Memory, states: tuple[Bytes, ...]) -> bool:
        for state in states:
            key = tuple(state[at] for at in memory.fields)
            holds = memory.known.get(key)
            if holds is None:
                if len(memory.known) > 4 * STEPS_KEPT:
                    memory.known.clear()
                stepper = self.follower.stepper
                holds = memory.known[key] = stepper.holds(memory.expr, stepper.at(state))
            if holds:
                return False
        return True

    def event(self, event: TakenStep) -> None:
        """Take a step that is certain."""
        if event.step in BEGINS:
            self._steps = self._steps[-STEPS_KEPT:] if event.step == "exit_remove_from_participants" else []
        self._steps.append(event.step)
        del self._steps[:-STEPS_KEPT]

        if event.step == "graceful_exit":
            text = "The rendezvous is closed: next_rendezvous raises on a spare, whose run() has no result."
            self._violated(UNANSWERED, "violated", (str(event.node),), text)
        if event.step == "assertion_error":
            text = "A member that becomes rank 0 has no store to serve: it ends, and closes the rendezvous."
            self._violated("members_learn_the_master", "violated", (str(event.node),), text)

    def stepped(self, peer: Peer, node: int, taken: Sequence[tuple[Bytes, str]]) -> None:
        """Report the properties of a step that fail for each step and state that a write may be."""
        stepper = self.follower.stepper
        for prop in stepper.system.properties:
            if prop.name not in STEPS or prop.conditions is None:
                continue
            asked = [(state, prop.conditions[step]) for state, step in taken if step in prop.conditions]
            if len(asked) == len(taken) and not any(stepper.holds(c, stepper.at(s, node)) for s, c in asked):
                removed = self._removed(node, *taken[0]) if prop.name == STAYS else ()
                text = f"{prop.doc} {peer} took it off the list." if removed else ""
                self._violated(prop.name, "violated", removed or (str(peer),), text)
        late = [stepper.get(state, "closed") and step == "exit_remove_from_participants" for state, step in taken]
        if all(late) and not any(problem.name == "closing_is_earned" for problem in self.problems):
            # A node whose workers have succeeded closes torch's rendezvous, though a failed node may still restart.
            text = "A node that restarts finds the rendezvous closed, by a node that was done."
            self._violated(CLOSED, "violated", (str(peer),), text)

    def _removed(self, node: int, state: Bytes, step: str) -> tuple[str, ...]:
        """The other nodes that a step of a node takes off all lists."""
        follower = self.follower
        stepper, peers = follower.stepper, follower.roster.peers
        after = stepper.allowed(step, stepper.at(state, node)) or state
        was, now = stepper.row(state, "member"), stepper.row(after, "member")
        return tuple(str(peer) for k, peer in enumerate(peers) if k != node and was[k] and not now[k])

    def _cause(self, finding: Finding | None) -> Finding | None:
        """The finding that caused this one: a node that waits permanently sends no heartbeat and is expelled."""
        if finding is None or finding.name != EXPELLED:
            return None
        open_ = (p.finding for p in self.problems if p.kind == "hopeless" and p.until is None)
        return next((known for known in open_ if known is not None and known.name != EXPELLED), None)

    def completed(self, snapshot: Snapshot) -> None:
        """Count the consecutive full rounds during which a node waits: it makes each of them restart."""
        full = len(snapshot.listed(Membership.PARTICIPANT)) == self.follower.high
        waiting = snapshot.listed(Membership.WAITING) if full else []
        self._waited = {who: self._waited.get(who, 0) + 1 for who in waiting}
        for who, times in self._waited.items():
            if times == RESTARTS_MAX:
                self._violated("full_rounds_come_to_rest", "violated", (str(who),))

    def _violated(self, name: str, kind: str, nodes: tuple[str, ...] = (), text: str = "") -> Problem:
        prop, trail = self._property(name), next(iter(self.follower.states.values()))
        steps = (*self._steps, *(event.step for event in unrolled(trail)))  # since the round began
        since = (self.follower.now, self.follower.place)
        if kind == "hopeless":
            since = (self.still_since, self._still_place)
        trusted = not self.follower.void and not self.follower.doubt()
        finding = name_of(name, steps, self.follower.edition) if trusted else None
        problem = Problem(
            kind, *since, text or (prop.doc if prop is not None else name), name=name,
            finding=finding, cause=self._cause(finding),
            nodes=nodes,
            steps=steps[-12:],
            waits=tuple(map(str, self.follower.waiting()[:WAITS_MAX])) if kind == "hopeless" else (),
            after=self.follower.void or "",
        )  # fmt: skip
        self._keep(problem)
        return problem

    def _property(self, name: str) -> Property | None:
        return next((p for p in self.follower.stepper.system.properties if p.name == name), None)

    def _keep(self, problem: Problem) -> None:
        problem.doubt = self.follower.doubt()
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(problem)

    def note(self, text: str) -> None:
        self._keep(Problem("note", self.follower.now, self.follower.place, text))

    def unexplained(self, text: str, nearest: tuple[str, ...] = (), nodes: tuple[str, ...] = ()) -> None:
        now, place, void = self.follower.now, self.follower.place, self.follower.void or ""
        after = void if void != place else ""
        self._keep(Problem("unexplained", now, place, text, nearest=nearest, nodes=nodes, after=after))

    def forbidden(self, peer: Peer, node: int, wanted: Shown) -> None:
        """Report a write that is not a step from any possible state, with the nearest legal steps."""
        follower = self.follower
        stepper, lens = follower.stepper, follower.lens
        found: list[tuple[int, str]] = []
        for name in follower.writes:
            best: tuple[int, str] | None = None
            for state in follower.states:
                here = stepper.at(state, node)
                missing = [_said(stepper, here, part, str(peer)) for part in stepper.missing(name, here)]
                if missing:
                    told = 2 + len(missing), f"{name}({peer}) is forbidden: {'; '.join(missing)}"
                else:
                    differs = lens.differences(stepper.step(name, here) or state, wanted, follower.roster)
                    text = "; ".join(differs[:4]) + (f"; and {len(differs) - 4} more" if len(differs) > 4 else "")
                    told = (len(differs), f"{name}({peer}) would write something else: {text}")
                best = min(best or told, told)
            if best is not None:
                found.append(best)
        nearest = tuple(text for _, text in sorted(found)[:NEAREST])
        state = next(iter(follower.states))
        changes = "; ".join(lens.differences(state, wanted, follower.roster)[:6]) or "no field of the model"
        self.unexplained(
            f"{peer} writes what no step of {follower.edition.name} writes: {changes}", nearest, (str(peer),)
        )

    # ---- promises

    def rested(self) -> None:
        """Check open promises once, after only heartbeats have happened for the lifetime of a heartbeat.

        They are checked again when a node was taken off a list meanwhile, which may have begun a promise to it.
        """
        states = self.follower.states
        members = next(iter(states))[self.follower.stepper.columns["member"].at] if states else b""
        if self._asked != (*self._still, members):
            self._asked = (*self._still, members)
            self._ask()

    def _mended(self, states: tuple[Bytes, ...]) -> None:
        """Mark broken promises that were kept after all, by a fault or a user."""
        for problem in self.problems:
            if problem.kind == "hopeless" and problem.until is None:
                roster = self.follower.roster
                known = [names for names in self.open.get(problem.name, ()) if all(name in roster for name in names)]
                members = [tuple(map(roster.index, names)) for names in known]
                prop = self._property(problem.name)
                if prop is not None and not any(self._open(prop, states[0], k) for k in members):
                    problem.until = self.follower.now
                    self.open.pop(problem.name, None)

    def _ask(self) -> None:
        """Check whether each open promise can still be kept."""
        follower = self.follower
        states, ends = follower.without_the_gone(), clock.thread_time() + SEARCH_SECONDS_MAX
        for prop in follower.stepper.system.properties:
            if prop.form is not Form.LEADS_TO or prop.name in self.open:
                continue
            hopeless, late = [], []
            for indices in self._members(prop):
                if not all(self._open(prop, s, indices) for s in states):
                    continue
                answer = self._can_be_kept(prop, indices, states[0], ends)
                if answer is None:
                    late.append(indices)
                elif not answer:
                    hopeless.append(indices)
            if hopeless:
                names = tuple(str(follower.roster.peers[k[0]]) for k in hopeless if k)
                self.open[prop.name] = tuple(tuple(follower.roster.peers[n].who for n in k) for k in hopeless)
                self._violated(prop.name, "hopeless", names)
            if late:
                limits = f"{SEARCH_STATES_MAX} states, or {SEARCH_SECONDS_MAX:g} s"
                text = f"{prop.name}: undecided after {limits} whether it can be kept"
                follower.undecided += [text] if text not in follower.undecided else []

    def _members(self, prop: Property) -> list[tuple[int, ...]]:
        return [(k,) for k in range(len(self.follower.roster.peers))] if prop.params else [()]

    def _open(self, prop: Property, state: Bytes, indices: tuple[int, ...]) -> bool:
        stepper = self.follower.stepper
        here = stepper.at(state, *indices)
        return stepper.holds(prop.exprs[0], here) and not stepper.holds(prop.exprs[1], here)

    def _can_be_kept(self, prop: Property, indices: tuple[int, ...], state: Bytes, ends: float) -> bool | None:
        """Whether some run of steps that happen by themselves reaches the goal; None: undecided.

        The search is depth first: running nodes take one step after the other, in any order, and most goals are reached
        this way. In breadth first order, the orders of seven nodes' steps alone exceed the limit.
        """
        stepper, seen, stack = self.follower.stepper, {state}, [state]
        while stack:
            for after in self._ahead(stack.pop()):
                if stepper.holds(prop.exprs[1], stepper.at(after, *indices)):
                    return True
                if after not in seen:
                    seen.add(after)
                    stack.append(after)
            if len(seen) > SEARCH_STATES_MAX or clock.thread_time() > ends:
                return None
        return False

    def _ahead(self, state: Bytes) -> Iterator[Bytes]:
        """The states after each step that happens by itself."""
        stepper = self.follower.stepper
        crashed = stepper.row(state, "crashed")
        for k in (*range(len(self.follower.roster.peers)), None):
            here = stepper.at(state) if k is None else stepper.at(state, k)
            for name, transition in stepper.transitions.items():
                happens = transition.kind is not Kind.FAULT if k is None else bool(transition.fair)
                if not happens or bool(transition.params) is (k is None):
                    continue
                if k is not None and name in BEATING and not (crashed[k] and name == "heartbeat_ages"):
                    continue
                after = stepper.step(name, here)
                if after is not None:
                    yield after


def _said(stepper: Stepper, here: At, part: Expr, node: str) -> str:
    """The reason why a part of a guard does not hold: another decision of the operator, or the condition itself."""
    label = str(part)
    operator, arrow, wanted = label.partition(DECIDES)
    if arrow and part.op == "named":
        for transition in stepper.transitions.values():
            for other in transition.conditions:
                for each in other.args if other.op == "and" else (other,):
                    decides = each.op == "named" and each.name.startswith(operator + DECIDES)
                    if decides and stepper.holds(each, here):
                        return f"the {operator} operator decides {each.name.partition(DECIDES)[2]}, not {wanted}"
        return f"the {operator} operator does not decide {wanted}"
    return f"not {label.replace('[node]', f'[{node}]')}"
