"""The problems of a run: properties that do not hold, promises that nothing can keep any more, lines that fit nothing.

Theory of operation. An invariant is violated when it fails in each possible state. Those in `HARM` are reported;
others (`PASSING`) fail for moments in ordinary restarts of torch, and are reported if asked for. A property is looked
at again only when a field that it reads has changed, and its answers are remembered.

A promise (`leads to`) that is open is asked when nothing but heartbeats has happened for as long as a heartbeat
lives, and at the end of the record: a search over all that the living nodes can still do by themselves, without a new
fault. If the search ends and finds no way, the promise is broken for good; if it reaches its limit, it is not
decided.
"""

from __future__ import annotations

import time as clock
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trystate.model.checker.expectations import Finding
from trystate.model.language import Form
from trystate.model.language.expressions import Expr
from trystate.model.language.properties import Property
from trystate.model.language.transitions import Kind
from trystate.model.rendezvous.vocabulary import Membership

from .known import Event, unrolled
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
RESTARTS_MAX = 3  # full rounds, one after the other, that begin beside the same node that waits
# Of the agent's properties, those whose violation the store shows.
CLOSED, UNANSWERED = "restarts_left_are_used", "everybody_gets_an_answer"
PASSING = ("ranks_are_ordered", "ranks_are_dense", "at_least_min", "deadline_iff_last_call", "listed_means_heartbeat")
PROBLEMS_MAX = 1_000
SEARCH_STATES_MAX = 3_000
SEARCH_SECONDS_MAX = 5.0  # of computing: a busy machine decides as much as an idle one
STEPS_KEPT = 400  # since the round began, to name a finding
WAITS_MAX = 8  # that are kept with a promise that nothing can keep
DECIDES = " → "  # in the name of a part of a guard: an operator, and its decision
NEAREST = 3  # legal steps that are shown beside a line that is none
BEGINS = ("mark_complete", "exit_remove_from_participants", "replace_round", "give_notice")  # a round, or its end
STILL = ("phase", "crashed", "complete", "closed", "round", "master")  # fields that stay while nothing moves
BEATING = ("keep_alive", "heartbeat_ages")  # of nodes that live: they change nothing that a promise depends on


@dataclass(slots=True)
class Problem:
    """Something wrong, and the line that shows it first. `kind`: violated, hopeless, unexplained, passing, note."""

    kind: str
    time: float
    place: str
    text: str
    name: str = ""  # of the property
    finding: Finding | None = None
    nodes: tuple[str, ...] = ()
    until: float | None = None  # the time of the line from which on it holds again
    steps: tuple[str, ...] = ()  # since the round began
    nearest: tuple[str, ...] = ()  # legal steps, and what forbids each
    waits: tuple[str, ...] = ()  # those of the nodes, where nothing can end them
    after: str = ""  # the place of an unexplained line before: then it is what was believed, not what was seen
    cause: Finding | None = None  # the finding of which this one is a consequence
    doubt: str = ""  # the record lacks lines that may explain it: it is not decided

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
        self.let_go = 0
        self.still_since = 0.0  # since when nothing but heartbeats has happened
        self.open: dict[
            str, tuple[tuple[int, ...], ...]
        ] = {}  # promises that are open and nothing can keep: of these nodes
        self._still: tuple[bytes, ...] = ()
        self._still_place = ""
        self._asked: tuple[bytes, ...] | None = None  # for which stillness the promises were asked
        self._failing: dict[str, Problem] = {}
        self._last: tuple[Bytes, ...] = ()
        self._steps: list[str] = []
        self._waited: dict[NodeName, int] = {}  # beside how many full rounds, one after the other, a node has waited
        self.rebuilt()

    def rebuilt(self) -> None:
        """The system has another size."""
        stepper = self.follower.stepper
        self._memories = {
            p.name: _Memory(tuple(sorted({stepper.columns[name].at for name in _fields(p.exprs[0])})), p.exprs[0])
            for p in stepper.system.properties
            if p.form is Form.ALWAYS
        }
        self._last = ()
        self._lasting = [c.at for name, c in stepper.columns.items() if name in STILL]
        self._still, self._asked = (), None

    # ---- as the lines come

    def look(self) -> None:
        """Which invariants fail in each possible state, since when, and until when."""
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

    def event(self, event: Event) -> None:
        """A step is certain."""
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
        """A write is one of these steps, from these states: which properties of a step fail in each."""
        stepper = self.follower.stepper
        for prop in stepper.system.properties:
            if prop.name not in STEPS or prop.conditions is None:
                continue
            asked = [(state, prop.conditions[step]) for state, step in taken if step in prop.conditions]
            if len(asked) == len(taken) and not any(stepper.holds(c, stepper.at(s, node)) for s, c in asked):
                removed = self._removed(node, *taken[0]) if prop.name == STAYS else ()
                text = f"{prop.doc} It was {peer} that took it off." if removed else ""
                self._violated(prop.name, "violated", removed or (str(peer),), text)
        late = [stepper.get(state, "closed") and step == "exit_remove_from_participants" for state, step in taken]
        if all(late) and not any(problem.name == "closing_is_earned" for problem in self.problems):
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
        """The finding of which this one is a consequence: a node that waits for good cannot beat, and is expelled."""
        if finding is None or finding.name != EXPELLED:
            return None
        open_ = (p.finding for p in self.problems if p.kind == "hopeless" and p.until is None)
        return next((known for known in open_ if known is not None and known.name != EXPELLED), None)

    def completed(self, snapshot: Snapshot) -> None:
        """A round is complete: a node that waits beside one full round after the other makes each of them restart."""
        full = len(snapshot.listed(Membership.PARTICIPANT)) == self.follower.high
        waiting = snapshot.listed(Membership.WAITING) if full else []
        self._waited = {who: self._waited.get(who, 0) + 1 for who in waiting}
        for who, times in self._waited.items():
            if times == RESTARTS_MAX:
                self._violated("full_rounds_come_to_rest", "violated", (str(who),))

    def _since_the_round_began(self) -> tuple[str, ...]:
        trail = next(iter(self.follower.states.values()))
        steps = list(self._steps)
        steps += [event.step for event in unrolled(trail)]
        return tuple(steps)

    def _violated(self, name: str, kind: str, nodes: tuple[str, ...] = (), text: str = "") -> Problem:
        prop, steps = self._property(name), self._since_the_round_began()
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
        else:
            self.let_go += 1

    def note(self, text: str) -> None:
        self._keep(Problem("note", self.follower.now, self.follower.place, text))

    def unexplained(self, text: str, nearest: tuple[str, ...] = (), nodes: tuple[str, ...] = ()) -> None:
        after = self.follower.void if self.follower.void != self.follower.place else None
        problem = Problem(
            "unexplained", self.follower.now, self.follower.place, text, nearest=nearest, nodes=nodes,
            after=after or "",
        )  # fmt: skip
        self._keep(problem)

    def forbidden(self, peer: Peer, node: int, wanted: Shown) -> None:
        """A write that is no step from any possible state: the nearest legal steps, and what forbids each."""
        follower = self.follower
        stepper, lens = follower.stepper, follower.lens
        found: list[tuple[int, str]] = []
        for name in follower.writes:
            best: tuple[int, str] | None = None
            for state in follower.states:
                here = stepper.at(state, node)
                missing = [_said(stepper, here, part, str(peer)) for part in stepper.missing(name, here)]
                if missing:
                    told = (
                        2 + len(missing),
                        f"{name}({peer}) is forbidden: {'; '.join(missing)}",
                    )
                else:
                    after = stepper.step(name, here)
                    differs = lens.differences(after or state, wanted, follower.roster)
                    text = "; ".join(differs[:4]) + (f"; and {len(differs) - 4} more" if len(differs) > 4 else "")
                    told = (len(differs), f"{name}({peer}) would write something else: {text}")
                best = min(best or told, told)
            if best is not None:
                found.append(best)
        nearest = tuple(text for _, text in sorted(found)[:NEAREST])
        state = next(iter(follower.states))
        changes = "; ".join(lens.differences(state, wanted, follower.roster)[:6]) or "nothing that the model has"
        self.unexplained(
            f"{peer} writes what no step of {follower.edition.name} writes: {changes}", nearest, (str(peer),)
        )

    # ---- promises

    def rested(self) -> None:
        """Nothing but heartbeats has happened for as long as a heartbeat lives: open promises are asked, once.

        They are asked again when a node was taken off a list meanwhile: a promise to it may have begun with that.
        """
        states = self.follower.states
        members = next(iter(states))[self.follower.stepper.columns["member"].at] if states else b""
        if self._asked != (*self._still, members):
            self._asked = (*self._still, members)
            self._ask()

    def finish(self) -> None:
        """The record is over."""
        self.rested()

    def _mended(self, states: tuple[Bytes, ...]) -> None:
        """Something has happened: a promise that was given up may be kept after all, by a fault or a user."""
        for problem in self.problems:
            if problem.kind == "hopeless" and problem.until is None:
                members = self.open.get(problem.name, ())
                prop = self._property(problem.name)
                if prop is not None and not any(self._open(prop, states[0], k) for k in members):
                    problem.until = self.follower.now
                    self.open.pop(problem.name, None)

    def _ask(self) -> None:
        """Ask each promise that is open whether it can still be kept."""
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
                self.open[prop.name] = tuple(hopeless)
                self._violated(prop.name, "hopeless", names)
            if late:
                limits = f"{SEARCH_STATES_MAX} states, or {SEARCH_SECONDS_MAX:g} s"
                text = f"{prop.name}: whether it can be kept is not decided after {limits}"
                follower.undecided += [text] if text not in follower.undecided else []

    def _members(self, prop: Property) -> Iterator[tuple[int, ...]]:
        if not prop.params:
            yield ()
            return
        for k in range(len(self.follower.roster.peers)):
            yield (k,)

    def _open(self, prop: Property, state: Bytes, indices: tuple[int, ...]) -> bool:
        stepper = self.follower.stepper
        here = stepper.at(state, *indices)
        return stepper.holds(prop.exprs[0], here) and not stepper.holds(prop.exprs[1], here)

    def _can_be_kept(self, prop: Property, indices: tuple[int, ...], state: Bytes, ends: float) -> bool | None:
        """Whether some run of what still happens by itself reaches the goal; None: not decided.

        Depth first: nodes that still run take one step after the other, in whatever order, and reach most goals so. In
        breadth, the orders of seven nodes' steps alone are more states than the limit.
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
        """Where the steps lead that happen by themselves."""
        stepper = self.follower.stepper
        crashed = stepper.row(state, "crashed")
        for k in range(len(self.follower.roster.peers)):
            here = stepper.at(state, k)
            for name, transition in stepper.transitions.items():
                if not transition.fair or not transition.params:  # it need not happen
                    continue
                if name in BEATING and not (crashed[k] and name == "heartbeat_ages"):
                    continue
                after = stepper.step(name, here)
                if after is not None:
                    yield after
        here = stepper.at(state)
        for name, transition in stepper.transitions.items():
            if not transition.params and transition.kind is not Kind.FAULT:
                after = stepper.step(name, here)
                if after is not None:
                    yield after


def _said(stepper: Stepper, here: At, part: Expr, node: str) -> str:
    """Why a part of a guard does not hold: the operator decides something else, or it is simply not so."""
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


def _fields(expr: Expr) -> set[str]:
    """The fields that a tree reads."""
    out, todo, seen = set(), [expr], {expr}
    while todo:
        here = todo.pop()
        if here.op == "read":
            out.add(here.name)
        for part in here.args:
            if isinstance(part, Expr) and part not in seen:
                seen.add(part)
                todo.append(part)
    return out
