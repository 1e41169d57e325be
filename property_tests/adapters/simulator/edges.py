"""Steps of the model `Rendezvous`, performed by the engine's operators and changes.

Rule: an operator is called where the model's node calls it, with the view of that node. This subject keeps the phase of
each node, and each fault. The state that the engine writes is compared with the model's list by list.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from trystate.impl.rendezvous import operators
from trystate.impl.rendezvous.changes import Table, after
from trystate.impl.rendezvous.engine import Engine, Joined, Standing
from trystate.impl.rendezvous.operators import View
from trystate.impl.rendezvous.state import Node, Participant, Settings, State
from trystate.model.language import Kind
from trystate.model.language.sorts import ordinal
from trystate.model.rendezvous import OPERATORS, Edition, Rendezvous
from trystate.model.rendezvous.vocabulary import Action, AgentPhase, Deadline, Heartbeat, JoinDeadline, Membership

from ...harness.subjects import Refused
from ..steps import Steps

# The steps of the join operation, each with the action after which it is named.
JOINS = {
    action.name.lower().replace("mark_rendezvous_", "mark_"): action
    for action in Action
    if action in OPERATORS[Edition.TRYSTATE]["join"].outcomes() and action not in (Action.KEEP_ALIVE, Action.SYNC)
}
WRITES_NOTHING = (Action.FINISH, Action.ERROR_TIMEOUT, Action.ERROR_CLOSED, Action.ERROR_SETTINGS)
# Every write of a listed node is also a heartbeat in the runtime. In the model only the writes that list a node and
# KEEP_ALIVE are heartbeats.
BEATS = (
    Action.ADD_TO_PARTICIPANTS,
    Action.ADD_TO_WAIT_LIST,
    Action.ADD_TO_REDUNDANCY_LIST,
    Action.REPLACE_ROUND,
    Action.KEEP_ALIVE,
)
LEASED = (AgentPhase.RETURNING, AgentPhase.RUNNING)
OPERATOR = Participant(Node("operator", 1, 0, "operator"), "", 0)  # a participant on no list
SHORTER_SECONDS = 1.0  # interval of a node with a shorter expiry window, in seconds
INTERVAL_SECONDS = 100.0
KEY, LATER_KEY = "rack2", "rack10"  # natural order


@dataclass(slots=True)
class Seat:
    """One node of the model: its process, its phase and its faults."""

    number: int
    settings: Settings
    engine: Engine
    life: int = 0
    phase: AgentPhase = AgentPhase.EXITING
    join_deadline: JoinDeadline = JoinDeadline.IN_TIME
    joined: Joined | None = None
    broken: set[str] = field(default_factory=set)  # crashed, stalled, partitioned, interrupted
    before: str = ""  # the token of the process before this one, which is still listed
    key: str = KEY
    checks: bool = False  # it has a health command ...
    unhealthy: bool = False  # ... that failed
    rests: bool = False  # less than the scale-up interval has passed since it saw its round complete

    @property
    def token(self) -> str:
        return self.engine.token

    @property
    def alive(self) -> bool:
        return not self.broken & {"crashed", "stalled"}

    def be(self, phase: AgentPhase) -> None:
        self.phase = phase
        if phase is AgentPhase.EXITING:
            self.join_deadline, self.rests = JoinDeadline.IN_TIME, False


def engine(number: int, life: int, settings: Settings, key: str = KEY) -> Engine:
    node = Node(f"node{number}", life, 0, f"{number}-{life}")
    me = Participant(node, f"host{number}", 29_500, rank_key=key)
    return Engine(me, settings, draw=lambda: 0.5, life="life")


class EngineSteps(Steps):
    """Subject for the model `Rendezvous` (edition TRYSTATE)."""

    def __init__(self, model: Rendezvous) -> None:
        self.model = model
        # Not by the environment.
        self.TRIED = self.decided = {t.name for t in model.transitions if t.kind is Kind.PROTOCOL}
        self.settings = Settings(int(model.min_nodes), int(model.max_nodes))
        self.reset()

    def reset(self) -> None:
        self.state: State | None = None
        self.ages: dict[str, Heartbeat] = {}  # the age of the heartbeat of each listed token
        self.over: set[tuple[int, int]] = set()  # the last calls that have passed or were cancelled
        self.down = self.young = False
        size = self.model.sizes["node"]
        self.seats = [Seat(k, self.settings, engine(k, 0, self.settings)) for k in range(size)]

    def perform(self, step: str, indices: tuple[int, ...]) -> None:
        seats = [self.seats[k] for k in indices]
        if step in self.decided and step != "start_workers":
            (seat,) = seats
            if self.down or seat.broken & {"crashed", "stalled", "partitioned"}:
                raise Refused("the node does not act")
        if step in JOINS:
            self._join(seats[0], JOINS[step])
        else:
            getattr(self, f"_{step}")(*seats)

    # ---- what a node sees, decides and writes

    def view(self, seat: Seat) -> View:
        age = self._age(seat.token)
        silent = frozenset(t for t, a in self.ages.items() if a is Heartbeat.EXPIRED and t != seat.token)
        return View(
            self.state, seat.token, seat.settings, late=seat.join_deadline is not JoinDeadline.IN_TIME,
            lease=age is not Heartbeat.EXPIRED, beat_due=age in (Heartbeat.DUE, Heartbeat.EXPIRED),
            call_over=self.state is not None and (self.state.round, self.state.call) in self.over, silent=silent,
        )  # fmt: skip

    def _age(self, token: str) -> Heartbeat:
        return self.ages.get(token, Heartbeat.NONE)

    def _write(self, seat: Seat, action: Action, view: View) -> None:
        self._note(self.state, _changed(seat, action, view), seat.token)
        if action in BEATS:
            self.ages[seat.token] = Heartbeat.FRESH
            seat.broken.discard("interrupted")

    def _note(self, before: State | None, after: State, writer: str) -> None:
        """A write has been won. It is noted only in the listing of its writer."""
        assert after.version == (before.version if before is not None else 0) + 1
        self.state = after
        if before is None or not before.complete or before.round != after.round:
            self.young = after.complete and after.settings.scale_up_interval > 0.0
        if before is not None and before.round != after.round:
            for one in self.seats:
                one.rests = False
        if before is not None and before.calling and not after.calling:
            self.over.add((before.round, before.call))
        for p in after.listed():
            noted = p.written == after.version
            assert noted == (p.node.token == writer), f"a write of {writer} beats for {p.node.token}"
        listed = {p.node.token for p in after.listed()}
        self.ages = {token: age for token, age in self.ages.items() if token in listed}

    def _in(self, seat: Seat, *phases: AgentPhase) -> None:
        if seat.phase not in phases:
            raise Refused(f"the node is {seat.phase.name}")

    def _decided(self, decided: Action, wanted: Action) -> None:
        if decided is not wanted:
            raise Refused(f"the engine decides {decided.name}")

    def _join(self, seat: Seat, action: Action) -> None:
        self._in(seat, AgentPhase.JOINING)
        view = self.view(seat)
        self._decided(operators.join(view), action)
        if action not in WRITES_NOTHING:
            self._write(seat, action, view)
        if action in (Action.WITHDRAW, Action.ERROR_TIMEOUT, Action.ERROR_CLOSED, Action.ERROR_SETTINGS):
            seat.be(AgentPhase.FAILED)
        elif action is Action.ADD_TO_REDUNDANCY_LIST:
            seat.join_deadline = JoinDeadline.IN_TIME  # a spare has no deadline
        else:
            self._returns(seat)

    def _returns(self, seat: Seat) -> None:
        """The engine reads the state that it has just written, and may return."""
        view = self.view(seat)
        seat.be(AgentPhase.JOINING)
        if operators.join(view) is Action.FINISH:
            joined = seat.engine._ends(Action.FINISH, view, 0.0)
            assert joined is not None
            seat.joined, seat.rests = replace(joined, since=0.0), joined.state.settings.scale_up_interval > 0.0
            seat.be(AgentPhase.RETURNING)

    def _replace_round(self, seat: Seat) -> None:
        self._in(seat, AgentPhase.EXITING)
        self._alone(seat)
        view = self.view(seat)
        self._decided(operators.exit_(view), Action.REPLACE_ROUND)
        self._write(seat, Action.REPLACE_ROUND, view)
        if not seat.checks:
            self._returns(seat)

    def _exit_finish(self, seat: Seat) -> None:
        self._in(seat, AgentPhase.EXITING)
        if self.state is None or self.state.closed is None:
            self._alone(seat)
        self._decided(operators.exit_(self.view(seat)), Action.FINISH)
        if seat.unhealthy and not self._closed():
            raise Refused("its health command fails")
        seat.be(AgentPhase.JOINING)

    def _closed(self) -> bool:
        return self.state is not None and self.state.closed is not None

    def _leave_unhealthy(self, seat: Seat) -> None:
        self._step_back(seat)
        seat.be(AgentPhase.FAILED)

    def _stand_by(self, seat: Seat) -> None:
        if self.state is None or self.state.find(seat.token) is None:
            raise Refused("the node is not listed")
        self._step_back(seat)

    def _step_back(self, seat: Seat) -> None:
        self._in(seat, AgentPhase.EXITING)
        if not seat.unhealthy or self._closed():
            raise Refused("the node is to join")
        if self.state is not None and self.state.find(seat.token) is not None:
            self._write(seat, Action.WITHDRAW, self.view(seat))

    def _check_fails(self, seat: Seat) -> None:
        seat.unhealthy = True

    def _check_passes_again(self, seat: Seat) -> None:
        seat.unhealthy = False

    def _start_with_health_check(self, seat: Seat) -> None:
        seat.checks = True

    def _alone(self, seat: Seat) -> None:
        if self._predecessor_listed(seat):
            raise Refused("left out of the model: it joins next to the listing of the process before it")

    def _predecessor_listed(self, seat: Seat) -> bool:
        return seat.before in self.ages

    def _keep_alive(self, seat: Seat) -> None:
        self._in(
            seat, AgentPhase.EXITING, AgentPhase.JOINING, AgentPhase.RETURNING, AgentPhase.RUNNING, AgentPhase.DONE
        )
        view = self.view(seat)
        self._decided(operators.keep_alive(view), Action.KEEP_ALIVE)
        self._write(seat, Action.KEEP_ALIVE, view)

    def _expel(self, seat: Seat) -> None:
        self._in(seat, AgentPhase.EXITING, AgentPhase.JOINING, AgentPhase.RUNNING, AgentPhase.DONE)
        view = self.view(seat)
        self._decided(operators.expel(view), Action.EXPEL)
        self._write(seat, Action.EXPEL, view)

    # ---- the agent

    def _restart_workers(self, seat: Seat) -> None:
        self._in(seat, AgentPhase.RUNNING)
        assert seat.joined is not None
        now = 0.0 if seat.rests else INTERVAL_SECONDS
        if self._age(seat.token) is not Heartbeat.EXPIRED:
            seat.engine.lease.confirm(now)
        standing = seat.engine.standing(seat.joined, self.state, now)
        if standing not in (Standing.NEWCOMERS, Standing.REPLACED, Standing.EXPELLED):
            raise Refused(standing.value)
        seat.be(AgentPhase.EXITING)

    def _mark_closed(self, seat: Seat) -> None:
        self._in(seat, AgentPhase.DONE)
        view = self.view(seat)
        self._decided(operators.close(view), Action.MARK_RENDEZVOUS_CLOSED)
        self._write(seat, Action.MARK_RENDEZVOUS_CLOSED, view)

    def _close_finish(self, seat: Seat) -> None:
        self._in(seat, AgentPhase.FAILED, AgentPhase.DONE)
        if seat.phase is AgentPhase.DONE:
            self._decided(operators.close(self.view(seat)), Action.FINISH)
        seat.be(AgentPhase.LEFT)

    def _start_workers(self, seat: Seat) -> None:
        if not seat.alive:
            raise Refused("the node does not act")
        self._in(seat, AgentPhase.RETURNING)
        seat.be(AgentPhase.RUNNING)

    # ---- an operator

    def _drain(self, seat: Seat) -> None:
        before = self.state
        assert before is not None
        listing = before.find(self._listing(seat))
        assert listing is not None
        self._note(before, after(before, Table.drain, OPERATOR.node, listing.node), OPERATOR.node.token)

    # ---- the environment

    def _last_call_passes(self) -> None:
        assert self.state is not None
        self.over.add((self.state.round, self.state.call))

    def _interval_passes(self) -> None:
        self.young = False

    def _own_interval_passes(self, seat: Seat) -> None:
        seat.rests = False

    def _heartbeat_ages(self, seat: Seat) -> None:
        self.ages[self._listing(seat)] = Heartbeat.DUE

    def _heartbeat_expires(self, seat: Seat) -> None:
        self.ages[self._listing(seat)] = Heartbeat.EXPIRED

    def _join_deadline_passes(self, seat: Seat) -> None:
        seat.join_deadline = JoinDeadline.ROLLBACK

    def _job_ends(self, seat: Seat) -> None:
        seat.be(AgentPhase.DONE)

    def _worker_fails(self, seat: Seat) -> None:
        seat.be(AgentPhase.EXITING)

    _lose_lease = _worker_fails

    def _crash(self, seat: Seat) -> None:
        seat.broken |= {"crashed", "interrupted"}
        seat.broken -= {"stalled", "partitioned"}

    def _restart_process(self, seat: Seat) -> None:
        seat.broken.discard("crashed")
        seat.before = self._listing(seat)
        seat.unhealthy = False
        seat.life += 1
        seat.engine = engine(seat.number, seat.life, seat.settings, seat.key)
        seat.be(AgentPhase.EXITING)

    def _stall(self, seat: Seat) -> None:
        seat.broken |= {"stalled", "interrupted"}

    def _resume(self, seat: Seat) -> None:
        seat.broken.discard("stalled")
        if seat.phase in LEASED and self._age(seat.token) in (Heartbeat.NONE, Heartbeat.EXPIRED):
            seat.be(AgentPhase.EXITING)

    def _partition(self, seat: Seat) -> None:
        seat.broken |= {"partitioned", "interrupted"}

    def _reconnect(self, seat: Seat) -> None:
        seat.broken.discard("partitioned")

    def _store_stops(self) -> None:
        self.down = True
        for seat in self.seats:
            seat.broken.add("interrupted")

    def _store_returns(self) -> None:
        self.down = False

    def _start_with_other_min(self, seat: Seat) -> None:
        self._configure(seat, replace(seat.settings, min_nodes=self.settings.min_nodes + 1))

    def _start_with_shorter_expiry(self, seat: Seat) -> None:
        self._configure(seat, replace(seat.settings, keep_alive_interval=SHORTER_SECONDS))

    def _configure(self, seat: Seat, settings: Settings) -> None:
        seat.settings = settings
        seat.engine = engine(seat.number, seat.life, settings, seat.key)

    def _start_with_scale_up_interval(self) -> None:
        for seat in self.seats:
            self._configure(seat, replace(seat.settings, scale_up_interval=INTERVAL_SECONDS))

    def _start_with_later_key(self, seat: Seat) -> None:
        seat.key = LATER_KEY
        self._configure(seat, seat.settings)

    def _start_with_late_clock(self, seat: Seat) -> None:
        """Does nothing: no clock is compared with another one."""

    _clock_steps_back = _start_with_late_clock

    # ---- what can be seen

    def observe(self) -> Mapping[str, int]:
        state = self.state
        out = {
            "complete": int(state is not None and state.complete),
            "closed": int(state is not None and state.closed is not None),
            "round": (state.round if state is not None else 0) % int(self.model.rounds),
            "deadline": ordinal(self._deadline(state)),
            "store_down": int(self.down),
            "young": int(self.young),
            "holds_back": int(self.seats[0].settings.scale_up_interval > 0.0),
            "agreed_larger_min": int(state is not None and state.settings.min_nodes != self.settings.min_nodes),
            "agreed_shorter_window": int(state is not None and state.settings.keep_alive_interval == SHORTER_SECONDS),
        }
        for seat in self.seats:
            self._observe_seat(out, seat, state)
        return {name: value for name, value in out.items() if name in self.model.positions}

    def _deadline(self, state: State | None) -> Deadline:
        if state is None or not state.calling:
            return Deadline.UNSET
        return Deadline.PASSED if (state.round, state.call) in self.over else Deadline.RUNNING

    def _listing(self, seat: Seat) -> str:
        """The token under which the node is listed: its dead predecessor's, while that is listed."""
        return seat.before if self._predecessor_listed(seat) else seat.token

    def _observe_seat(self, out: dict[str, int], seat: Seat, state: State | None) -> None:
        k, token = seat.number, self._listing(seat)
        ranks = [p.node.token for p in state.participants] if state is not None and state.complete else []
        out[f"member[{k}]"] = ordinal(state.membership(token) if state is not None else Membership.OUTSIDE)
        out[f"rank[{k}]"] = ranks.index(token) if token in ranks else 0
        listing = state.find(token) if state is not None else None
        out[f"checks[{k}]"], out[f"unhealthy[{k}]"] = int(seat.checks), int(seat.unhealthy)
        out[f"rests[{k}]"] = int(seat.rests)
        out[f"later_key[{k}]"] = int((listing.rank_key if listing is not None else seat.key) == LATER_KEY)
        out[f"heartbeat_age[{k}]"] = ordinal(self._age(token))
        out[f"phase[{k}]"] = ordinal(seat.phase)
        if seat.phase is AgentPhase.JOINING:  # only a join has this deadline
            out[f"join_deadline[{k}]"] = ordinal(seat.join_deadline)
        out[f"drained[{k}]"] = int(state is not None and token in state.draining)
        out[f"predecessor_listed[{k}]"] = int(self._predecessor_listed(seat))
        joined = seat.joined
        current = joined is not None and state is not None and joined.state.round == state.round
        out[f"returned[{k}]"] = int(current)
        if joined is not None and (current or seat.phase is AgentPhase.RETURNING):
            out[f"saw_rank[{k}]"] = joined.rank
        if joined is not None and seat.phase in LEASED:
            out[f"master[{k}]"] = int(joined.master.node.address.removeprefix("node")) + 1
        members = {p.node.address for p in joined.state.participants} if current and joined is not None else set()
        for j in range(len(self.seats)):
            out[f"saw[{k}][{j}]"] = int(f"node{j}" in members)


def _changed(seat: Seat, action: Action, view: View) -> State:
    """The state after the action, made by the operation of the engine that performs the action."""
    engine = seat.engine
    if action is Action.REPLACE_ROUND:
        return engine._rejoined(view, failed=False, lapsed=False, checked_first=seat.checks)
    if action is Action.MARK_RENDEZVOUS_CLOSED:
        return after(engine._begun(view.state), Table.mark_closed, engine.me.node, "")
    return engine._changed(action, view)
