"""NVRx's rendezvous barrier: nodes join a round, and its host gives each a rank and closes the round.

Theory of operation. A round has a counter. A node that finds the round open adds 1 to the counter: the result is its
slot. It then writes a record into the slot. The host is node 0, which also serves the store, or a control plane
outside. It polls the counter, reads the slots, orders the nodes in them by the number of their machine, gives each a
rank, and closes the round. The nodes with ranks below `world` train. The others are hot spares and wait for the next
round. When workers fail, their node opens the next round. All others see it, stop their workers and join.

Slots are used again in the next round, so a record has the number of its round. A node that is slow between its counter
and its record may write in a later round. Since 8efe781 a node reads its slot and then sets it only if it is unchanged.

Three kinds of nodes are counted and do not train: a *spare*, a node that comes after the host has read the slots, and a
node that dies. A dead node is in a *task* of the batch system. A node that finds itself unhealthy marks its task, and
the batch system then kills the nodes of the task and may start another task on the same machines.

Abstractions. A slot is one record here; the code has two keys, and writes them one after the other. A node takes both
decisions of step 0 (is the rendezvous shut down, is the round open) at once. Marking a task, and killing its node that
has joined, is one step. There is no timeout: a round that never closes ends with one. The counter of unhealthy nodes,
segments, incomplete tasks, attribution and signals are left out. Source: github.com/NVIDIA/nvidia-resiliency-ext.
"""

from __future__ import annotations

from typing import Any

from ..language import *
from .vocabulary import CONFLICTING, ENDED, FENCED, UNMARKED, WITH_LAST_CALL, At, Call, Door, Edition, Host, Shut

S = SymbolicState


def first_is_open(round: int) -> Door:
    return Door.OPEN if round == 0 else Door.ABSENT


class NvrxBarrier(System):
    """The nodes of a job and the host that closes each round. At most `world` nodes train at a time."""

    title = "NVRx's rendezvous barrier"
    Edition = Edition
    of_conflict = At.BROKEN  # how a node ends whose slot has changed, but not to a record of a later round
    caps = False  # a node that is counted beyond `most` shuts the rendezvous down

    node = index(3)
    slot = index(3, "at most so many nodes are counted in a round")
    round = index(3, "the last round is never opened")
    world = constant(2, "min_nodes: how many nodes train")
    most = constant(3, "max_nodes: how many nodes may join, spares included")
    outside = constant(0, "1: a control plane outside is the host, and node 0 is not")

    shut = choice(Shut, doc="the key `shutdown`; before df0b358 it has no reason")
    failed = flag(doc="the rendezvous was shut down because of an error")
    door = choice(Door, per="round", initial=first_is_open, doc="round_done")
    joined = integer(0, "slot", per="round", doc="join_count")

    written = one_of(round, optional=True, per="slot", doc="the round of the record in the slot")
    owner = one_of(node, optional=True, per="slot", doc="whose record it is")
    rank = integer(0, "slot", per="slot", doc="the rank in the record, plus 1; 0: unassigned")
    ghost = flag(per="slot", doc="its node is dead, and the node's task is marked as unhealthy")

    at = choice(At, per="node")
    of = one_of(round, per="node", doc="the round that the node joins or has joined")
    mine = one_of(slot, optional=True, per="node", doc="its slot")
    read = one_of(round, optional=True, per="node", doc="the round of the record that it has read in its slot")

    host = choice(Host)
    host_of = one_of(round, doc="the round of a host outside")
    counted = integer(0, "slot", doc="the counter as the host has read it")
    taken = flag(per="slot", doc="the host has read a record of its round there")
    previous = flag(per="node", editions=WITH_LAST_CALL, doc="had a rank below `world` in the round that closed last")
    lost = flag(editions=UNMARKED, doc="a node that was dead had such a rank: the last call waits for it in vain")
    call = choice(Call, editions=WITH_LAST_CALL)

    def lifelines(self) -> Lifelines:
        """The store has the counters and the slots."""
        kept = "joined written owner rank ghost door shut failed"
        return served("store", kept, here="host host_of counted taken previous lost call")

    launcher = machine_of(at, "A node.")

    # ---- a node joins

    @property
    def is_outside(self) -> bool:
        return bool(self.sizes["outside"])

    def round_of_host(self, s: S) -> Any:
        return s.host_of if self.is_outside else s.of[0]

    def first_not_closed(self, s: S) -> Any:
        found: Any = s.round[-1]
        for r in reversed(range(self.sizes["round"] - 1)):
            found = ite(s.door[s.round[r]] != Door.CLOSED, s.round[r], found)
        return found

    @transition(
        moves=[arc(At.WAITING, At.ADMITTED), may(At.WAITING, (At.LEFT, At.FAILED))],
        cite="ft_rendezvous_barrier.py: _wait_for_rendezvous_open, _sync_from_per_round_state",
    )
    def look_for_round(self, s: S, node: Expr) -> None:
        """A node reads whether its round is open. If the round is closed, its round is the first that is not."""
        s.when(s.at[node] == At.WAITING)
        is_shut, door = s.shut != Shut.NO, s.door[s.of[node]]
        ended = ite(s.shut == Shut.FAILED, At.FAILED, At.LEFT)
        s.at[node] = ite(is_shut, ended, ite(door == Door.OPEN, At.ADMITTED, At.WAITING))
        s.of[node] = ite(~is_shut & (door == Door.CLOSED), self.first_not_closed(s), s.of[node])

    @transition(moves=[arc(At.ADMITTED, At.COUNTED)], cite="ft_rendezvous_barrier.py: perform_rendezvous, step 1")
    def take_slot(self, s: S, node: Expr) -> None:
        """It adds 1 to the counter of its round; the result is its slot."""
        s.when(s.at[node] == At.ADMITTED)
        before = s.joined[s.of[node]]
        surplus = before + 1 > self.most if self.caps else False
        s.at[node] = ite(surplus, At.FAILED, At.COUNTED)
        s.mine[node] = ite(surplus, None, s.slot[before % self.sizes["slot"]])
        self.shut_down(s, surplus, Shut.GRACEFUL)
        s.joined[s.of[node]] = before + 1

    def shut_down(self, s: S, condition: Any, reason: Shut) -> None:
        now = (s.shut == Shut.NO) & condition
        s.failed, s.shut = s.failed | now, ite(now, reason, s.shut)

    @transition(
        moves=[arc(At.COUNTED, At.WRITING), may(At.COUNTED, At.WAITING)],
        cite="ft_rendezvous_barrier.py: _round_fenced_compare_set: get",
    )
    def read_slot(self, s: S, node: Expr) -> None:
        """It reads its slot. If the record there is of a later round, it waits for an open round again."""
        s.when(s.at[node] == At.COUNTED)
        later = self.is_later(s, node)
        s.at[node] = ite(later, At.WAITING, At.WRITING)
        s.read[node] = ite(later, None, s.written[s.mine[node]])
        s.mine[node] = ite(later, None, s.mine[node])

    def is_later(self, s: S, node: Expr) -> Any:
        there = s.written[s.mine[node]]
        return ~there.absent & (ord_(there) > ord_(s.of[node]))

    @transition(
        moves=[arc(At.WRITING, At.JOINED), may(At.WRITING, (At.WAITING, At.BROKEN))],
        cite="ft_rendezvous_barrier.py: _round_fenced_compare_set: compare_set",
    )
    def write_slot(self, s: S, node: Expr) -> None:
        """It sets its slot if the record is the one that it has read. Otherwise it waits for an open round, or ends."""
        s.when(s.at[node] == At.WRITING)
        same, later = s.written[s.mine[node]] == s.read[node], self.is_later(s, node)
        s.at[node] = ite(same, At.JOINED, ite(later, At.WAITING, self.of_conflict))
        self.put(s, node, same)
        s.mine[node] = ite(s.at[node].isin((At.WAITING, At.BROKEN)), None, s.mine[node])
        s.read[node] = None

    def put(self, s: S, node: Expr, condition: Any) -> None:
        """The record of a node is in its slot; node 0 begins to close the round if it is the host."""
        k = s.mine[node]
        s.written[k], s.owner[k] = ite(condition, s.of[node], s.written[k]), ite(condition, node, s.owner[k])
        s.rank[k], s.ghost[k] = ite(condition, 0, s.rank[k]), s.ghost[k] & not_(condition)
        if not self.is_outside:
            s.host = ite((ord_(node) == 0) & condition, Host.POLLING, s.host)

    @transition(
        moves=[arc(At.JOINED, (At.TRAINING, At.WAITING)), may(At.JOINED, At.FAILED)],
        cite="ft_rendezvous_barrier.py: _wait_for_round_done",
    )
    def read_rank(self, s: S, node: Expr) -> None:
        """The round is closed: it reads its rank and trains, or waits for the next round."""
        s.when(s.at[node] == At.JOINED, (s.shut != Shut.NO) | (s.door[s.of[node]] == Door.CLOSED))
        s.when(self.is_outside | (ord_(node) != 0) | (s.host == Host.IDLE))
        k = s.mine[node]
        is_active = (s.written[k] == s.of[node]) & self.is_active(s, k)
        s.at[node] = ite(s.shut != Shut.NO, At.FAILED, ite(is_active, At.TRAINING, At.WAITING))
        s.mine[node] = None

    # ---- the host closes the round

    @transition(editions=FENCED, cite="ft_rendezvous_barrier.py: close_current_round_as_host")
    def begin_closing(self, s: S) -> None:
        """A host outside finds its round open."""
        s.when(self.is_outside, s.host == Host.IDLE)
        is_shut, door = s.shut != Shut.NO, s.door[s.host_of]
        s.host = ite(is_shut, Host.ENDED, ite(door == Door.OPEN, Host.POLLING, Host.IDLE))
        s.host_of = ite(~is_shut & (door == Door.CLOSED), self.first_not_closed(s), s.host_of)

    @transition(
        moves=[may(At.JOINED, At.FAILED, of="others")],
        cite="ft_rendezvous_barrier.py: _host_close_round, _check_timeout_and_closure",
    )
    def read_counter(self, s: S) -> None:
        """The host reads the counter; enough nodes are counted. It ends if the rendezvous is shut down."""
        is_shut, joined = s.shut != Shut.NO, s.joined[self.round_of_host(s)]
        s.when(s.host == Host.POLLING, is_shut | (joined >= self.world))
        s.host = ite(is_shut, Host.ENDED if self.is_outside else Host.IDLE, Host.FETCHING)
        s.counted = ite(is_shut, 0, joined)
        if not self.is_outside:
            s.at[0] = ite(is_shut, At.FAILED, s.at[0])
            s.mine[0] = ite(is_shut, None, s.mine[0])

    def is_present(self, s: S, k: Expr) -> Any:
        """Slot k is one of the counted slots, and its record is of the host's round."""
        return (ord_(k) < s.counted) & (s.written[k] == self.round_of_host(s))

    def is_candidate(self, s: S, k: Expr) -> Any:
        return self.is_present(s, k)

    def is_complete(self, s: S) -> Any:
        """Whether the slots suffice to close the round."""
        return count(self.is_candidate(s, k) for k in s.slot) >= self.world

    def is_twice(self, s: S) -> Any:
        """Whether two slots have a record of one machine."""
        return any_(
            self.is_candidate(s, j) & self.is_candidate(s, k) & (s.owner[j] == s.owner[k]) & (ord_(j) < ord_(k))
            for j in s.slot
            for k in s.slot
        )

    def has_gap(self, s: S) -> Any:
        """Whether the request for the slots waits, since one of them does not exist."""
        return False

    def is_calling(self, s: S) -> Any:
        """Whether the host waits for a node of the round before."""
        missing = any_(s.previous[n] & ~any_(self.is_present(s, k) & (s.owner[k] == n) for k in s.slot) for n in s.node)
        missing = missing | (s.lost if self.edition in UNMARKED else False)
        spares = self.most > self.world
        return missing & (ord_(self.round_of_host(s)) > 0) & spares

    @transition(cite="ft_rendezvous_barrier.py: _host_close_round, get_all_participants")
    def fetch_slots(self, s: S) -> None:
        """The host reads the slots and the counter again. If they do not suffice to close the round, it polls again."""
        s.when(s.host == Host.FETCHING, not_(self.has_gap(s)))
        enough = self.is_complete(s) & (s.joined[self.round_of_host(s)] == s.counted)
        if self.edition in WITH_LAST_CALL:
            waits = self.is_calling(s) & (s.call != Call.OVER)
            s.call = ite(enough & waits, Call.RUNNING, s.call)
            enough = enough & not_(waits)
        twice = enough & self.is_twice(s)
        good = enough & ~twice
        for k in s.slot:
            s.taken[k] = good & self.is_candidate(s, k)
        self.shut_down(s, twice, Shut.FAILED)
        s.host, s.counted = ite(good, Host.CLOSING, Host.POLLING), 0

    @transition(cite="ft_rendezvous_barrier.py: assign_group_ranks, _host_close_round")
    def close_round(self, s: S) -> None:
        """The host writes a rank into each slot that it has read, by the order of machines, and closes the round."""
        s.when(s.host == Host.CLOSING)
        before = s.fork()
        for k in s.slot:
            lower = count(before.taken[j] & self.is_lower(before, j, k) for j in s.slot)
            s.rank[k] = ite(before.taken[k], lower + 1, before.rank[k])
            s.taken[k] = False
        if self.edition in WITH_LAST_CALL:
            for n in s.node:
                s.previous[n] = any_(
                    before.taken[k] & self.is_active(s, k) & ~s.ghost[k] & (s.owner[k] == n) for k in s.slot
                )
            if self.edition in UNMARKED:
                s.lost = any_(before.taken[k] & self.is_active(s, k) & s.ghost[k] for k in s.slot)
            s.call = Call.NONE
        s.door[self.round_of_host(before)] = Door.CLOSED
        s.host = Host.IDLE

    def is_active(self, s: S, k: Expr) -> Any:
        """The record in slot k has a rank below `world`."""
        return (s.rank[k] != 0) & (s.rank[k] <= self.world)

    def is_lower(self, s: S, j: Expr, k: Expr) -> Any:
        """Slot j is before k in the order of the machines; a dead node is before its replacement."""
        same = (s.owner[j] == s.owner[k]) & s.ghost[j] & ~s.ghost[k]
        return (s.owner[j] != s.owner[k]) & (ord_(s.owner[j]) < ord_(s.owner[k])) | same

    # ---- training

    @environment(moves=[arc(At.TRAINING, At.WAITING)], cite="ft_rendezvous_barrier.py: open_rendezvous")
    def fail_workers(self, s: S, node: Expr) -> None:
        """Workers fail: the node opens the next round, if it is not open yet, and joins it."""
        after = s.round.after(s.of[node])
        s.when(s.at[node] == At.TRAINING, s.shut == Shut.NO, ord_(s.of[node]) < self.sizes["round"] - 2)
        s.door[after] = ite(s.door[after] == Door.ABSENT, Door.OPEN, s.door[after])
        s.at[node] = At.WAITING

    @transition(moves=[arc(At.TRAINING, At.WAITING)], cite="ft_rendezvous_barrier.py: is_next_round_open")
    def see_next_round(self, s: S, node: Expr) -> None:
        """A node sees that the next round is open: it stops its workers and joins."""
        s.when(s.at[node] == At.TRAINING, s.door[s.round.after(s.of[node])] != Door.ABSENT)
        s.at[node] = At.WAITING

    @environment(
        switch="end", bound=4, moves=[arc(At.TRAINING, At.COMPLETE)], cite="ft_rendezvous_barrier.py: set_shutdown"
    )
    def complete(self, s: S, node: Expr) -> None:
        """The training is complete: a node that has seen it shuts the rendezvous down."""
        all_train = count((s.at[n] == At.TRAINING) & (s.of[n] == s.of[node]) for n in s.node) == self.world
        s.when(s.at[node] == At.TRAINING, all_train | (s.shut == Shut.GRACEFUL))
        s.at[node] = At.COMPLETE
        s.shut = ite(s.shut == Shut.NO, Shut.GRACEFUL, s.shut)

    @transition(editions=CONFLICTING, cite="ft_rendezvous_barrier.py: set_shutdown, by launch_agent")
    def end_launcher(self, s: S, node: Expr) -> None:
        """A launcher that ends with an unexpected error shuts the rendezvous down, without a reason."""
        s.when(s.at[node] == At.BROKEN, s.shut == Shut.NO)
        self.shut_down(s, True, Shut.GRACEFUL)

    @environment(fair=True, editions=WITH_LAST_CALL, cite="ft_rendezvous_barrier.py: _PreviousActiveLastCallGate")
    def last_call_ends(self, s: S) -> None:
        """The time of the last call is over."""
        s.when(s.call == Call.RUNNING)
        s.call = Call.OVER

    # ---- faults

    def may_die(self, node: Expr) -> Any:
        """Node 0 does not die if it is the host: the store would die with it."""
        return True if self.is_outside else ord_(node) != 0

    @fault("crash", moves=[arc((At.COUNTED, At.WRITING), At.GONE)])
    def crash(self, s: S, node: Expr) -> None:
        """A node dies between its counter and its record."""
        s.when(s.at[node].isin((At.COUNTED, At.WRITING)), self.may_die(node))
        s.at[node] = At.GONE
        reset(s.of, s.mine, s.read, at=node)

    def kill_joined(self, s: S, node: Expr, at: At) -> None:
        s.when(s.at[node] == At.JOINED, self.may_die(node), s.door[s.of[node]] == Door.OPEN)
        s.when(s.host != Host.CLOSING, s.shut == Shut.NO)
        s.ghost[s.mine[node]] = True
        s.at[node] = at
        reset(s.of, s.mine, at=node)

    @fault("kill", moves=[arc(At.JOINED, At.GONE)], cite="ft_rendezvous_barrier.py: _mark_replacement_group_unhealthy")
    def kill(self, s: S, node: Expr) -> None:
        """A node that has joined is killed, because another node of its task is unhealthy and has marked the task."""
        self.kill_joined(s, node, At.GONE)

    @fault("refill", moves=[arc(At.JOINED, At.WAITING)])
    def refill(self, s: S, node: Expr) -> None:
        """A node that has joined is killed with its task, which is marked; a new task starts on the same machine."""
        self.kill_joined(s, node, At.WAITING)

    @fault("restart", moves=[arc(At.TRAINING, At.WAITING)], cite="ft_rendezvous_barrier.py: _sync_from_per_round_state")
    def restart(self, s: S, node: Expr) -> None:
        """A node that trains is killed with its workers, and its launcher is started again: it looks at round 0."""
        s.when(s.at[node] == At.TRAINING, self.may_die(node), s.shut == Shut.NO)
        s.at[node] = At.WAITING
        reset(s.of, at=node)

    # ---- what must hold

    def alive(self, s: S) -> Any:
        return count(~a.isin(ENDED) for a in s.at)

    @terminal
    def at_rest(self, s: S) -> Condition:
        """No round is open, or the rendezvous is shut down, or fewer nodes live than must train."""
        return (s.shut != Shut.NO) | ~s.door.any(Door.OPEN) | (self.alive(s) < self.world)

    @sometimes()
    def a_round_is_closed(self, s: S) -> Condition:
        """The first round is closed."""
        return s.door[0] == Door.CLOSED

    @sometimes()
    def the_next_round_is_closed(self, s: S) -> Condition:
        """The round after a failure is closed."""
        return s.door[1] == Door.CLOSED

    @sometimes()
    def a_spare_waits(self, s: S) -> Condition:
        """`world` nodes train, and another waits."""
        return (s.at.count(At.TRAINING) == self.world) & s.at.any(At.WAITING)

    @always(witness="a_round_is_closed")
    def no_failure_shuts_down(self, s: S) -> Condition:
        """The rendezvous is not shut down because of an error."""
        return ~s.failed

    @always(witness="a_round_is_closed")
    def a_failure_is_no_success(self, s: S) -> Condition:
        """No node ends without an error after a shutdown because of an error."""
        return ~s.failed | ~s.at.any(At.LEFT)

    @always(witness="a_round_is_closed")
    def conflicts_are_excluded(self, s: S) -> Condition:
        """No node ends because its slot has changed."""
        return ~s.at.any(At.BROKEN)

    @step(witness="the_next_round_is_closed")
    def slots_do_not_go_back(self, before: S, after: S) -> Condition:
        """The record of a later round is not replaced by the record of an earlier round."""
        return all_(before.written[k].absent | (ord_(after.written[k]) >= ord_(before.written[k])) for k in before.slot)

    @always(witness="a_round_is_closed")
    def at_most_world_train(self, s: S) -> Condition:
        """At most `world` nodes train in a round."""
        return all_(count((s.at[n] == At.TRAINING) & (s.of[n] == r) for n in s.node) <= self.world for r in s.round)

    @always(witness="a_round_is_closed")
    def the_dead_have_no_rank(self, s: S) -> Condition:
        """No rank below `world` is given to a node that was dead when the host read the slots."""
        return ~any_(s.ghost[k] & self.is_active(s, k) for k in s.slot)

    @step(editions=WITH_LAST_CALL, witness="the_next_round_is_closed")
    def survivors_come_first(self, before: S, after: S) -> Condition:
        """A round that closes has each node of the round before, or its last call is over, or its task is marked."""
        closes = (before.host == Host.CLOSING) & (after.host == Host.IDLE) & (ord_(self.round_of_host(before)) > 0)
        there = all_(
            ~before.previous[n]
            | any_((before.written[k] == self.round_of_host(before)) & (before.owner[k] == n) for k in before.slot)
            for n in before.node
        )
        return implies(closes & (self.most > self.world), there | (before.call == Call.OVER))

    @leads_to()
    def an_open_round_closes(self, s: S) -> Condition:
        """While enough nodes live and the rendezvous is not shut down, an open round is closed."""
        over = self.at_rest.body(self, s)
        return ~over, over

    @leads_to(needs="restart")
    def a_round_is_opened_again(self, s: S) -> Condition:
        """If enough nodes live and none trains, a round is opened, unless the rendezvous is shut down."""
        rounds_left = ord_(self.first_not_closed(s)) < self.sizes["round"] - 1
        idle = ~s.at.any(At.TRAINING) & ~s.door.any(Door.OPEN) & (s.shut == Shut.NO) & (self.alive(s) >= self.world)
        return idle & rounds_left, ~idle


# ---- the editions


class Newest(NvrxBarrier, edition=Edition.NVRX):
    """Since 2645ee3: the host leaves out the slots of a task that is marked as unhealthy."""

    def is_candidate(self, s: S, k: Expr) -> Any:
        return self.is_present(s, k) & ~s.ghost[k]


class Mended(Newest, edition=Edition.MENDED):
    """The remedies: a node whose slot has changed to another record of an earlier round reads it again.

    A launcher that is started again finds its machine among the nodes that train, and opens the next round.
    """

    of_conflict = At.COUNTED
    write_slot = Newest.write_slot.claiming(arc(At.WRITING, At.JOINED), may(At.WRITING, (At.WAITING, At.COUNTED)))

    @transition()
    def open_again(self, s: S, node: Expr) -> None:
        """It waits, although its own record in the round that closed last has a rank below `world`."""
        s.when(s.at[node] == At.WAITING, s.shut == Shut.NO)
        found = [self.lacks_successor(s, node, s.round[r]) for r in range(self.sizes["round"] - 2)]
        s.when(any_(found))
        for r, here in enumerate(found):
            s.door[s.round[r + 1]] = ite(here, Door.OPEN, s.door[s.round[r + 1]])

    def lacks_successor(self, s: S, node: Expr, r: Any) -> Any:
        trains = any_((s.owner[k] == node) & (s.written[k] == r) & self.is_active(s, k) & ~s.ghost[k] for k in s.slot)
        return (s.door[r] == Door.CLOSED) & (s.door[s.round.after(r)] == Door.ABSENT) & trains


class Lenient(NvrxBarrier, edition=Edition.LENIENT):
    """Since f59cfc6: the host takes the slots that are there. Two slots of one machine shut the rendezvous down."""


class Capped(NvrxBarrier):
    """Before f59cfc6: a node that is counted beyond `most` shuts the rendezvous down; each counted slot is needed."""

    caps = True
    take_slot = NvrxBarrier.take_slot.also(may(At.ADMITTED, At.FAILED))

    def is_complete(self, s: S) -> Any:
        return count(self.is_present(s, k) for k in s.slot) == s.counted

    def is_twice(self, s: S) -> Any:
        return False

    def has_gap(self, s: S) -> Any:
        return any_((ord_(k) < s.counted) & s.written[k].absent for k in s.slot)


class Reasoned(Capped, edition=Edition.REASONED):
    """Since df0b358: a shutdown has a reason. A surplus node gives the reason `graceful`."""


class Release06(Capped, edition=Edition.NVRX_0_6):
    """0.6.0: no last call, no marks of tasks, and no reason of a shutdown."""


class Unfenced(Release06, edition=Edition.SET):
    """Before 8efe781: a node sets its slot if the round was open when it looked."""

    @transition(moves=[arc(At.COUNTED, (At.WRITING, At.JOINED))], cite="ft_rendezvous_barrier.py: perform_rendezvous")
    def read_slot(self, s: S, node: Expr) -> None:
        """It reads whether its round is still open, and writes nothing if it is closed."""
        move(s.at, At.COUNTED, ite(s.door[s.of[node]] == Door.CLOSED, At.JOINED, At.WRITING), at=node)

    @transition(moves=[arc(At.WRITING, At.JOINED)], cite="ft_rendezvous_barrier.py: perform_rendezvous: set")
    def write_slot(self, s: S, node: Expr) -> None:
        """It sets its slot."""
        move(s.at, At.WRITING, At.JOINED, at=node)
        self.put(s, node, True)
