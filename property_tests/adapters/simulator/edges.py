"""Steps of the model `Rendezvous`, performed by the engine's operators and changes: what a node decides, and writes.

Rule: the operators are asked in the places where the model's nodes are, with what such a node sees; who is where, and
what is broken, is kept here. What the store would hold is the engine's own state, and is compared list by list.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from trystate.impl.rendezvous import changes, operators
from trystate.impl.rendezvous.engine import Engine, Joined, Standing
from trystate.impl.rendezvous.operators import View
from trystate.impl.rendezvous.state import Node, Participant, Settings, State
from trystate.model.language.sorts import ordinal
from trystate.model.rendezvous import Rendezvous
from trystate.model.rendezvous.vocabulary import Action, Deadline, Heartbeat, Membership, Patience, Place

from ...harness.subjects import Refused

A, H, P = Action, Heartbeat, Place
JOINS = {
    "take_seat": A.ADD_TO_PARTICIPANTS, "wait_for_the_next": A.ADD_TO_WAIT_LIST,
    "become_spare": A.ADD_TO_REDUNDANCY_LIST, "complete_round": A.MARK_RENDEZVOUS_COMPLETE, "find_complete": A.FINISH,
    "withdraw": A.WITHDRAW, "be_late": A.ERROR_TIMEOUT, "be_told_of_the_end": A.ERROR_CLOSED,
    "be_refused": A.ERROR_SETTINGS,
}  # fmt: skip
STEPS = (
    *JOINS, "replace", "go_on_to_join", "beat", "expel", "restart_for_a_change", "close", "go", "start",
)  # fmt: skip
WRITES_NOTHING = (A.FINISH, A.ERROR_TIMEOUT, A.ERROR_CLOSED, A.ERROR_SETTINGS)
# In the runtime every write of a node is a heartbeat; in the model, those that list it and those that only beat.
BEATS = (A.ADD_TO_PARTICIPANTS, A.ADD_TO_WAIT_LIST, A.ADD_TO_REDUNDANCY_LIST, A.REPLACE_ROUND, A.KEEP_ALIVE)
LEASED = (P.RETURNING, P.RUNNING)
HASTY = 1.0  # interval of a node with a shorter expiry window, in seconds


@dataclass(slots=True)
class Seat:
    """One node of the model: a process, and what has become of it."""

    number: int
    settings: Settings
    engine: Engine
    life: int = 0
    place: Place = P.EXITING
    patience: Patience = Patience.IN_TIME
    joined: Joined | None = None
    broken: set[str] = field(default_factory=set)  # crashed, stalled, cut, lapsed, clock_low
    before: str = ""  # the token of the process before this one, which is still listed

    @property
    def token(self) -> str:
        return self.engine.token

    @property
    def alive(self) -> bool:
        return not self.broken & {"crashed", "stalled"}

    def be(self, place: Place) -> None:
        self.place = place
        if place is P.EXITING:
            self.patience = Patience.IN_TIME


def engine(number: int, life: int, settings: Settings) -> Engine:
    node = Node(f"node{number}", life, 0, f"{number}.{life}")
    return Engine(Participant(node, f"host{number}", 29_500), settings, draw=lambda: 0.5, life="life")


class EngineSteps:
    """Subject for the model `Rendezvous` (edition TRYSTATE)."""

    def __init__(self, model: Rendezvous) -> None:
        self.model = model
        self.settings = Settings(int(model.min_nodes), int(model.max_nodes))
        self.reset()

    def reset(self) -> None:
        self.state: State | None = None
        self.ages: dict[str, Heartbeat] = {}  # of each listed token
        self.over: set[tuple[int, int]] = set()  # the last calls that have passed, or were broken off
        self.down = False
        size = self.model.sizes["node"]
        self.seats = [Seat(k, self.settings, engine(k, 0, self.settings)) for k in range(size)]

    def can_refuse(self, step: str) -> bool:
        return step in STEPS

    def perform(self, step: str, indices: tuple[int, ...]) -> None:
        seats = [self.seats[k] for k in indices]
        if step in STEPS and step != "start":
            (seat,) = seats
            if self.down or seat.broken & {"crashed", "stalled", "cut"}:
                raise Refused("the node does not act")
        if step in JOINS:
            self._join(seats[0], JOINS[step])
        else:
            getattr(self, f"_{step}")(*seats)

    # ---- what a node sees, decides and writes

    def view(self, seat: Seat) -> View:
        age = self._age(seat.token)
        silent = frozenset(t for t, a in self.ages.items() if a is H.EXPIRED and t != seat.token)
        return View(
            self.state, seat.token, seat.settings, late=seat.patience is not Patience.IN_TIME,
            lease=age is not H.EXPIRED, beat_due=age in (H.DUE, H.EXPIRED),
            call_over=self.state is not None and (self.state.round, self.state.call) in self.over, silent=silent,
        )  # fmt: skip

    def _age(self, token: str) -> Heartbeat:
        return self.ages.get(token, H.NONE)

    def _write(self, seat: Seat, action: Action, view: View) -> None:
        before, after = self.state, _changed(seat.engine, action, view)
        assert after.version == (before.version if before is not None else 0) + 1
        self.state = after
        if before is not None and before.calling and not after.calling:
            self.over.add((before.round, before.call))
        old = {p.node.token: p.beats for p in before.listed()} if before is not None else {}
        for p in after.listed():
            counted = old.get(p.node.token) != p.beats
            assert counted == (p.node.token == seat.token), f"{action.name} of {seat.token} beats for {p.node.token}"
        listed = {p.node.token for p in after.listed()}
        self.ages = {token: age for token, age in self.ages.items() if token in listed}
        if action in BEATS:
            self.ages[seat.token] = H.FRESH
            seat.broken.discard("lapsed")

    def _in(self, seat: Seat, *places: Place) -> None:
        if seat.place not in places:
            raise Refused(f"the node is {seat.place.name}")

    def _decided(self, decided: Action, wanted: Action) -> None:
        if decided is not wanted:
            raise Refused(f"the engine decides {decided.name}")

    def _join(self, seat: Seat, action: Action) -> None:
        self._in(seat, P.JOINING)
        view = self.view(seat)
        self._decided(operators.join(view), action)
        if action not in WRITES_NOTHING:
            self._write(seat, action, view)
        if action in (A.WITHDRAW, A.ERROR_TIMEOUT, A.ERROR_CLOSED, A.ERROR_SETTINGS):
            seat.be(P.FAILED)
        elif action is A.ADD_TO_REDUNDANCY_LIST:
            seat.patience = Patience.IN_TIME  # a spare has no deadline
        else:
            self._returns(seat)

    def _returns(self, seat: Seat) -> None:
        """The engine looks at what it has just written, or read."""
        view = self.view(seat)
        seat.be(P.JOINING)
        if operators.join(view) is A.FINISH:
            seat.joined = seat.engine._ends(A.FINISH, view, 0.0)
            seat.be(P.RETURNING)

    def _replace(self, seat: Seat) -> None:
        self._in(seat, P.EXITING)
        self._alone(seat)
        view = self.view(seat)
        self._decided(operators.exit_(view), A.REPLACE_ROUND)
        self._write(seat, A.REPLACE_ROUND, view)
        self._returns(seat)

    def _go_on_to_join(self, seat: Seat) -> None:
        self._in(seat, P.EXITING)
        if self.state is None or self.state.closed is None:
            self._alone(seat)
        self._decided(operators.exit_(self.view(seat)), A.FINISH)
        seat.be(P.JOINING)

    def _alone(self, seat: Seat) -> None:
        if self._ghost(seat):
            raise Refused("left out of the model: it joins beside the listing of the process before it")

    def _ghost(self, seat: Seat) -> bool:
        return seat.before in self.ages

    def _beat(self, seat: Seat) -> None:
        self._in(seat, P.EXITING, P.JOINING, P.RETURNING, P.RUNNING, P.DONE)
        view = self.view(seat)
        self._decided(operators.keep_alive(view), A.KEEP_ALIVE)
        self._write(seat, A.KEEP_ALIVE, view)

    def _expel(self, seat: Seat) -> None:
        self._in(seat, P.EXITING, P.JOINING, P.RUNNING, P.DONE)
        view = self.view(seat)
        self._decided(operators.expel(view), A.EXPEL)
        self._write(seat, A.EXPEL, view)

    # ---- the agent

    def _restart_for_a_change(self, seat: Seat) -> None:
        self._in(seat, P.RUNNING)
        assert seat.joined is not None
        if self._age(seat.token) is not H.EXPIRED:
            seat.engine.lease.confirm(0.0)
        standing = seat.engine.standing(seat.joined, self.state, 0.0)
        if standing not in (Standing.NEWCOMERS, Standing.REPLACED, Standing.EXPELLED):
            raise Refused(standing.value)
        seat.be(P.EXITING)

    def _close(self, seat: Seat) -> None:
        self._in(seat, P.DONE)
        view = self.view(seat)
        self._decided(operators.close(view), A.MARK_RENDEZVOUS_CLOSED)
        self._write(seat, A.MARK_RENDEZVOUS_CLOSED, view)

    def _go(self, seat: Seat) -> None:
        self._in(seat, P.FAILED, P.DONE)
        if seat.place is P.DONE:
            self._decided(operators.close(self.view(seat)), A.FINISH)
        seat.be(P.LEFT)

    def _start(self, seat: Seat) -> None:
        if not seat.alive:
            raise Refused("the node does not act")
        self._in(seat, P.RETURNING)
        seat.be(P.RUNNING)

    # ---- what happens to them

    def _last_call_passes(self) -> None:
        assert self.state is not None
        self.over.add((self.state.round, self.state.call))

    def _heartbeat_ages(self, seat: Seat) -> None:
        self.ages[self._listing(seat)] = H.DUE

    def _heartbeat_expires(self, seat: Seat) -> None:
        self.ages[self._listing(seat)] = H.EXPIRED

    def _join_deadline_passes(self, seat: Seat) -> None:
        seat.patience = Patience.ROLLBACK

    def _job_ends(self, seat: Seat) -> None:
        seat.be(P.DONE)

    def _worker_fails(self, seat: Seat) -> None:
        seat.be(P.EXITING)

    def _lose_the_lease(self, seat: Seat) -> None:
        seat.be(P.EXITING)

    def _crash(self, seat: Seat) -> None:
        seat.broken |= {"crashed", "lapsed"}
        seat.broken -= {"stalled", "cut"}

    def _start_anew(self, seat: Seat) -> None:
        seat.broken.discard("crashed")
        seat.before = self._listing(seat)
        seat.life += 1
        seat.engine = engine(seat.number, seat.life, seat.settings)
        seat.be(P.EXITING)

    def _stall(self, seat: Seat) -> None:
        seat.broken |= {"stalled", "lapsed"}

    def _wake_up(self, seat: Seat) -> None:
        seat.broken.discard("stalled")
        if seat.place in LEASED and self._age(seat.token) in (H.NONE, H.EXPIRED):
            seat.be(P.EXITING)

    def _cut_off(self, seat: Seat) -> None:
        seat.broken |= {"cut", "lapsed"}

    def _reconnect(self, seat: Seat) -> None:
        seat.broken.discard("cut")

    def _store_stops(self) -> None:
        self.down = True
        for seat in self.seats:
            seat.broken.add("lapsed")

    def _store_returns(self) -> None:
        self.down = False

    def _start_with_other_min(self, seat: Seat) -> None:
        self._configure(seat, replace(seat.settings, min_nodes=self.settings.min_nodes + 1))

    def _start_with_shorter_expiry(self, seat: Seat) -> None:
        self._configure(seat, replace(seat.settings, interval=HASTY))

    def _configure(self, seat: Seat, settings: Settings) -> None:
        seat.settings = settings
        seat.engine = engine(seat.number, seat.life, settings)

    def _start_with_late_clock(self, seat: Seat) -> None:
        """No clock is compared with another one: nothing to do."""

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
            "agreed_stern": int(state is not None and state.settings.min_nodes != self.settings.min_nodes),
            "agreed_hasty": int(state is not None and state.settings.interval == HASTY),
        }
        for seat in self.seats:
            self._observe_seat(out, seat, state)
        return {name: value for name, value in out.items() if name in self.model.positions}

    def _deadline(self, state: State | None) -> Deadline:
        if state is None or not state.calling:
            return Deadline.UNSET
        return Deadline.PASSED if (state.round, state.call) in self.over else Deadline.RUNNING

    def _listing(self, seat: Seat) -> str:
        """Under which token the node is listed: a dead process's, for as long as that is."""
        return seat.before if self._ghost(seat) else seat.token

    def _observe_seat(self, out: dict[str, int], seat: Seat, state: State | None) -> None:
        k, token = seat.number, self._listing(seat)
        ranks = [p.node.token for p in state.participants] if state is not None and state.complete else []
        out[f"member[{k}]"] = ordinal(state.membership(token) if state is not None else Membership.OUTSIDE)
        out[f"rank[{k}]"] = ranks.index(token) if token in ranks else 0
        out[f"hb[{k}]"] = ordinal(self._age(token))
        out[f"place[{k}]"] = ordinal(seat.place)
        if seat.place is P.JOINING:  # a deadline of nothing else
            out[f"patience[{k}]"] = ordinal(seat.patience)
        out[f"ghost[{k}]"] = int(self._ghost(seat))
        joined = seat.joined
        current = joined is not None and state is not None and joined.state.round == state.round
        out[f"returned[{k}]"] = int(current)
        if joined is not None and (current or seat.place is P.RETURNING):
            out[f"saw_rank[{k}]"] = joined.rank
        if joined is not None and seat.place in LEASED:
            out[f"master[{k}]"] = int(joined.master.node.address.removeprefix("node")) + 1
        members = {p.node.address for p in joined.state.participants} if current and joined is not None else set()
        for j in range(len(self.seats)):
            out[f"saw[{k}][{j}]"] = int(f"node{j}" in members)


def _changed(engine: Engine, action: Action, view: View) -> State:
    """What the engine makes of the state, whichever of its operations decides the action."""
    if action is A.REPLACE_ROUND:
        return engine._rejoined(view, failed=False, lapsed=False)
    if action is A.MARK_RENDEZVOUS_CLOSED:
        return changes.mark_closed(view.state, engine.me, "", engine.settings, next(engine._lives))
    return engine._changed(action, view)
