"""A room: the requests of nodes, their answers and the server's notices taken apart.

Theory of operation. A node sends a request and waits for its answer; one request of a node is under way at a time. The
server applies a request in one step, which is the node's step in `Served`. A completed round is sent to each member, in
an answer or in a notice. A connection may be lost at any time, with the answers and notices on it: then the node sends
its request again on another connection, and the request on the lost one may still arrive. These rules make each request
count once, and no node returns from a round by a request or a notice of another one:

- A join returns only while no request of its own is under way (`receives`). A request that is under way may be
  applied after the round was replaced, and would report that a node whose workers run comes to the next round.
- A request about a round is applied to that round or not at all (`of`).
- Connections are numbered. A request on a later connection ends the earlier one, and a request on an earlier one is
  refused (`refused`).
- Joins are numbered. The server keeps the number of a join that it has ended, also on its disk: the request is
  answered as before, and does not list the node again (`ended`).
- A change is on disk before its answer and its notices are sent. So a server that comes back has each change that was
  reported to a node, and only the windows begin again. A server that lost records begins another life.
- A node returns only while its lease holds. The server's window for it ends later (`falls_silent`).

Each step is a step of `Served`, or none (`refinement.py`). `trystate prove rooms` proves the properties for any number
of nodes.

Abstractions, in addition to the abstractions of `served.py`. Each request of a member that runs workers (a heartbeat,
CLOSE) is one step, as there. A POKE is a JOIN. A joining node may send JOIN at any time, so a notice with another
content than a complete round has no step. One earlier connection at most has a request that may still arrive. No
request arrives from a node that is stalled or cut off, or after its process has died: an end before the arrival has the
same effect as an end after it, because the other nodes notice neither before the window is over.
"""

from __future__ import annotations

import enum
from dataclasses import replace
from typing import Any

from ..language import *
from .fields import LEASED, LISTED
from .ours import FAILS, LIVING, RETURNS
from .served import Served
from .vocabulary import Action, AgentPhase, Membership

LATEST, EARLIER = 0, 1  # a node has two connections at most
TRYING = (AgentPhase.EXITING, AgentPhase.JOINING)
ENDS = (Action.ERROR_CLOSED, Action.ERROR_TIMEOUT)
GOES_ON = (Action.FINISH, Action.SYNC, Action.KEEP_ALIVE, Action.MARK_RENDEZVOUS_COMPLETE)


class Request(enum.Enum):
    """A request on its way to the server."""

    NONE = "none"
    JOIN = "the node joins, or joins on; its workers are stopped"
    LEAVE = "the node leaves"


class Answer(enum.Enum):
    """An answer on its way to the node."""

    NONE = "none"
    CONTINUE = "the join continues"
    ENDED = "the join has ended with an error"
    GONE = "the node is on no list"


class Offer(enum.Enum):
    """A message on its way to a member, or in its hands: the round is complete, with this rank and this world."""

    NONE = "none"
    PRESENT = "of the present round"
    PAST = "of a round that has been replaced"


class Rooms(Served):
    """Nodes, connections and a server with the state."""

    title = "Rooms: requests, answers and notices"
    sizes_in_proofs = {"connection": 2}  # noqa: RUF012  # a mapping that no class changes

    connection = index(2, "0 is the latest of a node, 1 an earlier one")
    asked = choice(Request, per=("node", "connection"))
    of = flag(per=("node", "connection"), doc="the request leaves the round that is complete now")
    answer = choice(Answer, per="node")
    offer = choice(Offer, per="node")
    ended = flag(per="node", doc="the server has ended its present join, and remembers that")

    # Health commands, other settings and other clocks are as in `Ours`. The requests of running members are left out.
    start_with_health_check = check_fails = leave_unhealthy = stand_by = check_passes_again = None  # type: ignore[assignment]
    start_with_other_min = start_with_shorter_expiry = error_settings = None  # type: ignore[assignment]
    start_with_late_clock = clock_steps_back = None  # type: ignore[assignment]
    give_notice = leave_and_close = mark_done = close_as_failed = None  # type: ignore[assignment]
    error_closed = error_timeout = None  # type: ignore[assignment]  # an answer: `request_ends`

    def lifelines(self) -> Lifelines:
        """The server has the shared state; requests, answers and notices are messages."""
        state = "member rank heartbeat_age predecessor_listed drained promised ended"
        here = "phase returned saw_rank saw interrupted of"
        known = served(
            "server",
            f"{state} heartbeat_ages heartbeat_expires drain",
            requests="asked",
            answers="answer offer",
            here=here,
        )
        return replace(known, members="node")

    # ---- what a step sees

    def waits_for_nothing(self, s: SymbolicState, node: Expr) -> Condition:
        """No request of the node is under way."""
        return (s.asked[node, LATEST] == Request.NONE) & (s.answer[node] == Answer.NONE)

    def refused(self, s: SymbolicState, node: Expr, connection: Expr) -> Condition:
        """Once a request on the latest connection has arrived, those on earlier ones are refused."""
        return ord_(connection) == LATEST

    def speaks_of_it(self, s: SymbolicState, node: Expr, connection: Expr) -> Condition:
        """The request is about the round that is complete now."""
        return s.of[node, connection] & ~s.closed

    def has_ended(self, s: SymbolicState, node: Expr) -> Condition:
        """The server remembers that it has ended this join."""
        return s.ended[node]

    # ---- what a step does

    def ask(self, s: SymbolicState, node: Expr, request: Any, of: Any = False) -> None:
        """The node sends a request on its latest connection."""
        s.asked[node, LATEST] = request
        s.of[node, LATEST] = of

    def arrives(self, s: SymbolicState, node: Expr, connection: Expr, request: Request) -> None:
        """The request arrives; on the latest connection it ends the earlier ones."""
        self.acts(s, node)
        s.when(s.asked[node, connection] == request)
        fence = self.refused(s, node, connection)
        for c in s.connection:
            gone = (c == connection) | fence
            s.asked[node, c] = ite(gone, Request.NONE, s.asked[node, c])
            s.of[node, c] = s.of[node, c] & ~gone

    def join_arrives(self, s: SymbolicState, node: Expr, connection: Expr) -> None:
        """A JOIN arrives that leaves no round."""
        self.arrives(s, node, connection, Request.JOIN)
        s.when(s.phase[node] != AgentPhase.EXITING)

    def answers(self, s: SymbolicState, node: Expr, connection: Expr, answer: Any) -> None:
        """The answer is sent on the connection of the request; notices that were sent before it have no effect."""
        latest = ord_(connection) == LATEST
        member = s.complete & (s.member[node] == Membership.PARTICIPANT)
        s.answer[node] = ite(latest, answer, s.answer[node])
        s.offer[node] = ite(latest, ite(member, Offer.PRESENT, Offer.NONE), s.offer[node])

    def disconnect(self, s: SymbolicState, node: Expr) -> None:
        """The node's connection is lost: it sends what was not answered again."""
        kind = ite(s.answer[node] == Answer.GONE, Request.LEAVE, Request.JOIN)
        s.asked[node, LATEST] = ite(s.answer[node] != Answer.NONE, kind, s.asked[node, LATEST])
        reset(s.answer, s.offer, at=node)

    def assign_ranks(self, s: SymbolicState, done: Any) -> None:
        """The server sends each member a notice that the round is complete."""
        super().assign_ranks(s, done)
        for j in s.node:
            told = (s.member[j] == Membership.PARTICIPANT) & ~s.crashed[j] & done
            s.offer[j] = ite(told, Offer.PRESENT, s.offer[j])

    def begin_new_round(self, s: SymbolicState, replaced: Any) -> None:
        """Messages about the replaced round are late."""
        super().begin_new_round(s, replaced)
        for j in s.node:
            s.offer[j] = ite((s.offer[j] == Offer.PRESENT) & replaced, Offer.PAST, s.offer[j])
        reset(s.of, when=replaced)

    def joins(self, s: SymbolicState, node: Expr, outcome: Any) -> None:
        """The server runs the join operator for a request, whatever the phase of the node is."""
        s.when(self.decides(s, "join", outcome, node), ~self.has_ended(s, node))

    def restart(self, s: SymbolicState, node: Expr, when: Any = True) -> None:
        """A notice is for a node that joins."""
        super().restart(s, node, when)
        reset(s.offer, at=node, when=when)

    def guard_join_deadline(self, s: SymbolicState, node: Expr) -> None:
        """A join that the server has ended has no deadline."""
        super().guard_join_deadline(s, node)
        s.when(~s.ended[node])

    # ---- a node's own steps

    @transition()
    def ask_to_join(self, s: SymbolicState, node: Expr) -> None:
        """A node whose workers are stopped sends JOIN, with the next number and with the round that it leaves."""
        self.enters(s, node, AgentPhase.EXITING)
        s.when(self.waits_for_nothing(s, node))
        self.ask(s, node, Request.JOIN, s.returned[node] & ~s.predecessor_listed[node])
        s.ended[node] = False

    @transition()
    def ask_again(self, s: SymbolicState, node: Expr) -> None:
        """A joining node whose request was answered sends JOIN again, after a notice or when a heartbeat is due."""
        self.enters(s, node, AgentPhase.JOINING)
        # While a notice is on its way the state is the same as if the JOIN had been sent before the notice.
        s.when(self.waits_for_nothing(s, node), (s.offer[node] == Offer.NONE) | ~s.heartbeat_age[node].isin(LIVING))
        self.ask(s, node, Request.JOIN)

    @environment(switch="departure")
    def depart(self, s: SymbolicState, node: Expr) -> None:
        """A node whose workers are stopped sends LEAVE."""
        self.enters(s, node, *TRYING)
        s.when(self.waits_for_nothing(s, node))
        self.ask(s, node, Request.LEAVE)

    @transition(moves=[FAILS])
    def receive_answer(self, s: SymbolicState, node: Expr) -> None:
        """A node receives the answer to its request."""
        self.acts(s, node)
        s.when(s.answer[node] != Answer.NONE)
        fails = (s.answer[node] == Answer.ENDED) & (s.phase[node] == AgentPhase.JOINING)
        s.phase[node] = ite(fails, AgentPhase.FAILED, s.phase[node])
        reset(s.join_deadline, at=node, when=fails)
        reset(s.answer, at=node)

    @transition(moves=[RETURNS])
    def notice_finishes(self, s: SymbolicState, node: Expr) -> None:
        """A node at rest returns from the round that an answer or a notice was about, if its lease holds."""
        s.when(s.offer[node] == Offer.PRESENT)
        Served.notice_finishes.body(self, s, node)
        reset(s.offer, at=node)

    @transition(moves=[RETURNS])
    def late_notice_finishes(self, s: SymbolicState, node: Expr) -> None:
        """A node at rest returns from a round that has been replaced."""
        s.when(s.offer[node] == Offer.PAST)
        Served.late_notice_finishes.body(self, s, node)
        reset(s.offer, at=node)

    def receives(self, s: SymbolicState, node: Expr) -> None:
        """It returns only while no request of its own is under way."""
        super().receives(s, node)
        s.when(self.waits_for_nothing(s, node))

    # ---- the server applies a request

    @transition(moves=Served.replace_round.arcs)
    def replace_round(self, s: SymbolicState, node: Expr, connection: Expr) -> None:
        """A JOIN arrives from a member of the complete round: its workers are stopped, and it joins the next round."""
        s.when(self.speaks_of_it(s, node, connection), s.complete, s.member[node] == Membership.PARTICIPANT)
        self.arrives(s, node, connection, Request.JOIN)
        self.begin_new_round(s, True)
        self.enlist(s, node, Membership.PARTICIPANT)
        self.move_up(s, True)
        self.returns_if(s, node, self.settle(s))
        self.answers(s, node, connection, Answer.CONTINUE)

    @transition(moves=Served.exit_finish.arcs)
    def exit_finish(self, s: SymbolicState, node: Expr, connection: Expr) -> None:
        """The round that a JOIN leaves is over, or there was none: it only joins."""
        s.when(s.asked[node, connection] == Request.JOIN, ~self.speaks_of_it(s, node, connection))
        Served.exit_finish.body(self, s, node)

    @transition(moves=Served.add_to_participants.arcs)
    def add_to_participants(self, s: SymbolicState, node: Expr, connection: Expr) -> None:
        """A JOIN arrives while the round is open: reaching min starts the last call, reaching max completes it."""
        self.join_arrives(s, node, connection)
        Served.add_to_participants.body(self, s, node)
        self.answers(s, node, connection, Answer.CONTINUE)

    @transition(moves=Served.add_to_wait_list.arcs)
    def add_to_wait_list(self, s: SymbolicState, node: Expr, connection: Expr) -> None:
        """A JOIN arrives when the round is complete and has a seat: the node waits for the next one."""
        self.join_arrives(s, node, connection)
        Served.add_to_wait_list.body(self, s, node)
        self.answers(s, node, connection, Answer.CONTINUE)

    @transition(moves=Served.add_to_redundancy_list.arcs)
    def add_to_redundancy_list(self, s: SymbolicState, node: Expr, connection: Expr) -> None:
        """A JOIN arrives when every seat is taken or kept: the node becomes a spare."""
        self.join_arrives(s, node, connection)
        Served.add_to_redundancy_list.body(self, s, node)
        self.answers(s, node, connection, Answer.CONTINUE)

    @transition(moves=tuple(a for a in Served.withdraw.arcs if a not in FAILS))
    def withdraw(self, s: SymbolicState, node: Expr, connection: Expr) -> None:
        """A late or drained node's JOIN arrives: the server removes the node and keeps the number of the join."""
        self.join_arrives(s, node, connection)
        phase = s.phase[node]
        Served.withdraw.body(self, s, node)
        s.phase[node] = phase
        s.ended[node] = True
        self.answers(s, node, connection, Answer.ENDED)

    @transition()
    def request_ends(self, s: SymbolicState, node: Expr, connection: Expr) -> None:
        """A JOIN arrives that changes nothing: its answer reports whether the join continues."""
        self.join_arrives(s, node, connection)
        ends = self.has_ended(s, node) | any_([self.decides(s, "join", each, node) for each in ENDS])
        s.when(ends | any_([self.decides(s, "join", each, node) for each in GOES_ON]))
        self.answers(s, node, connection, ite(ends, Answer.ENDED, Answer.CONTINUE))

    @transition(moves=Served.leave.arcs)
    def leave(self, s: SymbolicState, node: Expr, connection: Expr) -> None:
        """A LEAVE arrives: the node is removed from the lists."""
        self.arrives(s, node, connection, Request.LEAVE)
        phase = s.phase[node]
        Served.leave.body(self, s, node)
        s.phase[node] = ite(phase.isin(TRYING), AgentPhase.LEFT, phase)
        self.answers(s, node, connection, Answer.GONE)

    @transition()
    def leave_finish(self, s: SymbolicState, node: Expr, connection: Expr) -> None:
        """A LEAVE arrives from a node that is on no list, or whose predecessor is."""
        self.arrives(s, node, connection, Request.LEAVE)
        s.when(~s.member[node].isin(LISTED) | s.predecessor_listed[node])
        self.answers(s, node, connection, Answer.GONE)

    # ---- faults

    @fault("cut")
    def lose_connection(self, s: SymbolicState, node: Expr) -> None:
        """A node's connection is lost; its request may still arrive, after the same one on another connection."""
        self.acts(s, node)
        s.when(~self.waits_for_nothing(s, node) | (s.offer[node] != Offer.NONE))
        sent = s.asked[node, LATEST] != Request.NONE
        s.asked[node, EARLIER] = ite(sent, s.asked[node, LATEST], s.asked[node, EARLIER])
        s.of[node, EARLIER] = ite(sent, s.of[node, LATEST], s.of[node, EARLIER])
        self.disconnect(s, node)

    def lose_connections(self, s: SymbolicState) -> None:
        """All connections end with the server's process, with all that was under way on them."""
        for j in s.node:
            s.asked[j, EARLIER] = Request.NONE
            s.of[j, EARLIER] = False
            self.disconnect(s, j)

    @fault("server_restart", moves=Served.server_restarts.arcs)
    def server_restarts(self, s: SymbolicState) -> None:
        """The server's process ends and begins again with its records: all windows and the last call begin again."""
        Served.server_restarts.body(self, s)
        self.lose_connections(s)

    @fault("lost_tail", moves=Served.another_life.arcs)
    def another_life(self, s: SymbolicState) -> None:
        """The server's process ends, and its last records are lost: another life begins with an empty state."""
        s.when(~any_(s.ended[j] & (s.phase[j] == AgentPhase.JOINING) for j in s.node))
        Served.another_life.body(self, s)
        self.lose_connections(s)
        reset(s.of, s.ended)

    @fault("crash")
    def crash(self, s: SymbolicState, node: Expr) -> None:
        """A process dies."""
        s.when(all_(s.asked[node, c] == Request.NONE for c in s.connection))
        Served.crash.body(self, s, node)
        reset(s.answer, s.offer, at=node)

    @fault("restart", moves=Served.restart_process.arcs)
    def restart_process(self, s: SymbolicState, node: Expr) -> None:
        """A new process starts under the address of a dead one, which may still be listed; it remembers nothing."""
        Served.restart_process.body(self, s, node)
        s.ended[node] = False

    @environment(switch="comes_again", bound=1, moves=Served.come_again.arcs)
    def come_again(self, s: SymbolicState, node: Expr) -> None:
        """A node that has left joins again."""
        s.when(self.waits_for_nothing(s, node))
        Served.come_again.body(self, s, node)

    # ---- why the properties of every edition hold here

    @sometimes(needs="cut")
    def a_request_is_late(self, s: SymbolicState) -> Condition:
        """A request on an earlier connection may still arrive."""
        return any_(s.asked[j, EARLIER] != Request.NONE for j in s.node)

    @sometimes()
    def a_notice_is_late(self, s: SymbolicState) -> Condition:
        """A node at rest is about to receive a notice of a round that has been replaced."""
        return any_((s.offer[j] == Offer.PAST) & self.waits_for_nothing(s, j) for j in s.node)

    @sometimes(needs=("cut", "drain"))
    def an_ended_join_is_repeated(self, s: SymbolicState) -> Condition:
        """The answer that a join has ended was lost, and the node sends its JOIN again."""
        return any_(self.is_ended(s, j) & (s.asked[j, LATEST] == Request.JOIN) for j in s.node)

    def is_ended(self, s: SymbolicState, node: Expr) -> Condition:
        """The server has ended the join, and the node has not received that answer."""
        return s.ended[node] & (s.phase[node] == AgentPhase.JOINING)

    @always(witness="two_return")
    def who_acts_is_at_rest(self, s: SymbolicState) -> Condition:
        """A node that acts on a round, or leaves one, has no request under way from before."""
        return all_(
            implies(
                s.phase[j].isin((*LEASED, AgentPhase.DONE)),
                self.waits_for_nothing(s, j) & (s.asked[j, EARLIER] == Request.NONE),
            )
            for j in s.node
        )

    @always(witness="an_ended_join_is_repeated", needs=("cut", "drain"))
    def an_ended_join_stays_ended(self, s: SymbolicState) -> Condition:
        """A node whose join the server has ended is on no list before it begins another join."""
        return all_(implies(s.ended[j], s.member[j] == Membership.OUTSIDE) for j in s.node)

    @step(on=("withdraw",), witness="a_member_is_drained", needs="drain")
    def a_drain_spends_no_restart(
        self, before: SymbolicState, after: SymbolicState, node: Expr, connection: Expr
    ) -> Condition:
        """A drained node is not a member of a complete round when its request to leave is applied."""
        return Served.a_drain_spends_no_restart.body(self, before, after, node)

    @step(on=("replace_round",), each=("node", "connection"), witness="two_return")
    def a_request_ends_its_own_round(
        self, before: SymbolicState, after: SymbolicState, node: Expr, connection: Expr
    ) -> Condition:
        """A JOIN replaces only the round from which its node has returned."""
        return before.returned[node]
