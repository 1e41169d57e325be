"""Shared resources: two allocators, the bakery, Lamport's mutual exclusion by clocks."""

from __future__ import annotations

import enum
from itertools import permutations
from typing import Any

from trystate.model.language import *

S = SymbolicState


class SimpleAllocator(System):
    """Merz: clients request sets of resources, get them in parts and return them."""

    client = index(3)
    resource = index(2)
    wanted = flag(per=(client, resource))
    owned = flag(per=(client, resource))

    def wants(self, s: S, client: Expr) -> Any:
        return any_(s.wanted[client, r] for r in s.resource)

    def owns(self, s: S, client: Expr) -> Any:
        return any_(s.owned[client, r] for r in s.resource)

    @transition(fair=False)
    def request(self, s: S, client: Expr) -> None:
        """A client that has nothing and wants nothing requests resources."""
        chosen = s.subset(s.resource)
        s.when(~self.wants(s, client), ~self.owns(s, client))
        for r in s.resource:
            s.wanted[client, r] = chosen[r]

    @transition(fair="strong")
    def allocate(self, s: S, client: Expr) -> None:
        """A client gets free resources that it wants."""
        self.take(s, client, s.subset(s.resource))

    def take(self, s: S, client: Expr, chosen: Any) -> None:
        free = ((r, s.wanted[client, r] & ~any_(s.owned[c, r] for c in s.client)) for r in s.resource)
        s.when(all_(~chosen[r] | here for r, here in free))
        for r in s.resource:
            s.owned[client, r] = s.owned[client, r] | chosen[r]
            s.wanted[client, r] = s.wanted[client, r] & ~chosen[r]

    @transition(fair=False)
    def give(self, s: S, client: Expr) -> None:
        """A client returns some of its resources."""
        chosen = s.subset(s.resource)
        s.when(all_(~chosen[r] | s.owned[client, r] for r in s.resource))
        for r in s.resource:
            s.owned[client, r] = s.owned[client, r] & ~chosen[r]

    @transition()
    def give_all(self, s: S, client: Expr) -> None:
        """A client returns all its resources."""
        for r in s.resource:
            s.owned[client, r] = False

    @sometimes()
    def two_own(self, s: S) -> Any:
        """Two clients have resources."""
        return count(self.owns(s, c) for c in s.client) == 2

    @always(witness="two_own")
    def resource_mutex(self, s: S) -> Any:
        """No two clients have the same resource (ResourceMutex)."""
        return all_(count(s.owned[c, r] for c in s.client) <= 1 for r in s.resource)

    @leads_to(each=(client, resource))
    def clients_will_obtain(self, s: S, client: Expr, resource: Expr) -> Any:
        """A client gets each resource that it wants (ClientsWillObtain)."""
        return s.wanted[client, resource], s.owned[client, resource]

    @leads_to()
    def again_and_again_satisfied(self, s: S, client: Expr) -> Any:
        """Each client wants nothing again and again (InfOftenSatisfied)."""
        return self.wants(s, client), ~self.wants(s, client)


class SchedulingAllocator(SimpleAllocator):
    """Merz's allocator with weak fairness: clients wait in a schedule, and none takes from the clients before it."""

    schedule = sequence(3, who=SimpleAllocator.client)

    def places(self, s: S) -> list[tuple[Any, Any]]:
        return [(there, record.who) for there, record in s.schedule]

    def is_new(self, s: S, client: Expr) -> Any:
        return self.wants(s, client) & ~s.schedule.contains(who=client)

    @transition()
    def allocate(self, s: S, client: Expr) -> None:
        """A client that waits gets free resources that no client before it wants."""
        chosen, places = s.subset(s.resource), self.places(s)
        wanted = [there & any_(chosen[r] & s.wanted[who, r] for r in s.resource) for there, who in places]
        s.when(or_(*(there & (who == client) & ~or_(*wanted[:k]) for k, (there, who) in enumerate(places))))
        ends = all_(chosen[r] | ~s.wanted[client, r] for r in s.resource)
        self.take(s, client, chosen)
        s.schedule.clear(when=ends)
        for there, who in places:
            s.schedule.push(who=who, when=ends & there & (who != client))

    @transition()
    def extend(self, s: S) -> None:
        """All clients that want resources and do not wait for them are appended, in any order."""
        order = [s.client[number] for number in s.choose(tuple(permutations(range(len(s.client)))))]
        new = [self.is_new(s, c) for c in order]
        s.when(any_(self.is_new(s, c) for c in s.client))
        for c, here in zip(order, new, strict=True):
            s.schedule.push(who=c, when=here)

    @transition()
    def give_all(self, s: S, client: Expr) -> None:
        """A client that wants nothing returns all its resources."""
        s.when(~self.wants(s, client))
        for r in s.resource:
            s.owned[client, r] = False

    @always(witness="two_own")
    def schedule_is_possible(self, s: S) -> Any:
        """A client waits for what is free, or with a client before it, or with one outside (AllocatorInvariant)."""
        places = self.places(s)

        def holds(who: Expr, before: list[Any]) -> Any:
            def is_left(r: Expr) -> Any:
                outside = ((c, ~s.schedule.contains(who=c)) for c in s.client)
                free = ~any_(s.owned[c, r] for c in s.client) | any_(s.owned[c, r] & here for c, here in outside)
                return free | or_(*(s.wanted[c, r] | s.owned[c, r] for c in before))

            keeps = all_(~(s.owned[who, r] & or_(*(s.wanted[c, r] for c in before))) for r in s.resource)
            return self.wants(s, who) & keeps & all_(~s.wanted[who, r] | is_left(r) for r in s.resource)

        return and_(*(~there | holds(who, [c for _, c in places[:k]]) for k, (there, who) in enumerate(places)))

    @leads_to()
    def clients_will_return(self, s: S, client: Expr) -> Any:
        """A client that wants nothing returns its resources (ClientsWillReturn)."""
        return ~self.wants(s, client), ~self.owns(s, client)


class Step(enum.Enum):
    """The next step of a process in the bakery."""

    NCS = "is outside"
    E1 = "raises its flag"
    E2 = "reads the numbers"
    E3 = "takes a number"
    E4 = "lowers its flag"
    W1 = "waits for a flag"
    W2 = "waits for a number"
    CS = "is inside"
    EXIT = "gives its number back"


class Bakery(System, deadlock=False):
    """Lamport, 1974: a read during a write gives any value, so a value may be written several times."""

    proc = index(2)
    most = constant(2)
    num = integer(0, most, per=proc)
    raised = flag(per=proc)
    step = choice(Step, per=proc)
    unchecked = flag(per=(proc, proc))
    max = integer(0, most, per=proc)
    next = one_of(proc, per=proc)

    @transition(fair=False)
    def ncs(self, s: S, proc: Expr) -> None:
        """A process wants to enter."""
        move(s.step, Step.NCS, Step.E1, at=proc)

    @transition(fair="weak:p[proc]")
    def e1(self, s: S, proc: Expr) -> None:
        """It raises its flag."""
        ends = s.choose(bool)
        move(s.step, Step.E1, ite(ends, Step.E2, Step.E1), at=proc)
        s.raised[proc], s.max[proc] = ends | ~s.raised[proc], ite(ends, 0, s.max[proc])
        self.uncheck(s, proc, ends)

    def uncheck(self, s: S, proc: Expr, when: Expr) -> None:
        for j in s.proc:
            s.unchecked[proc, j] = ite(when, j != proc, s.unchecked[proc, j])

    @transition(fair="weak:p[proc]")
    def e2(self, s: S, proc: Expr) -> None:
        """It reads the number of another."""
        other = s.choose(s.proc)
        s.when(s.step[proc] == Step.E2, s.unchecked[proc, other])
        s.unchecked[proc, other], s.max[proc] = False, max_([s.num[other], s.max[proc]])

    @transition(fair="weak:p[proc]")
    def e2_ends(self, s: S, proc: Expr) -> None:
        """It has read all numbers."""
        move(s.step, Step.E2, Step.E3, ~any_(s.unchecked[proc, j] for j in s.proc), at=proc)

    @transition(fair="weak:p[proc]")
    def e3(self, s: S, proc: Expr) -> None:
        """It writes any number, and at last one above all that it has read."""
        ends, number = s.choose(bool), s.choose(range(self.sizes["most"] + 1))
        move(s.step, Step.E3, ite(ends, Step.E4, Step.E3), ~ends | (number > s.max[proc]), at=proc)
        s.num[proc] = number

    @transition(fair="weak:p[proc]")
    def e4(self, s: S, proc: Expr) -> None:
        """It lowers its flag."""
        ends = s.choose(bool)
        move(s.step, Step.E4, ite(ends, Step.W1, Step.E4), at=proc)
        s.raised[proc] = ~ends & ~s.raised[proc]
        self.uncheck(s, proc, ends)

    @transition(fair="weak:p[proc]")
    def w1(self, s: S, proc: Expr) -> None:
        """It finds a lowered flag."""
        other = s.choose(s.proc)
        move(s.step, Step.W1, Step.W2, s.unchecked[proc, other], ~s.raised[other], at=proc)
        s.next[proc] = other

    @transition(fair="weak:p[proc]")
    def w1_ends(self, s: S, proc: Expr) -> None:
        """It has waited for all."""
        move(s.step, Step.W1, Step.CS, ~any_(s.unchecked[proc, j] for j in s.proc), at=proc)

    @transition(fair="weak:p[proc]")
    def w2(self, s: S, proc: Expr) -> None:
        """The other has no number, or a higher one."""
        other = s.next[proc]
        move(s.step, Step.W2, Step.W1, (s.num[other] == 0) | self.precedes(s, proc, other), at=proc)
        s.unchecked[proc, other] = False

    def precedes(self, s: S, i: Expr, j: Expr) -> Any:
        return (s.num[i] < s.num[j]) | (s.num[i] == s.num[j]) & (i < j)

    @transition(fair="weak:p[proc]")
    def cs(self, s: S, proc: Expr) -> None:
        """It leaves."""
        move(s.step, Step.CS, Step.EXIT, at=proc)

    @transition(fair="weak:p[proc]")
    def exit(self, s: S, proc: Expr) -> None:
        """It writes any number, and at last 0."""
        ends, number = s.choose(bool), s.choose(range(self.sizes["most"] + 1))
        move(s.step, Step.EXIT, ite(ends, Step.NCS, Step.EXIT), ~ends | (number == 0), at=proc)
        s.num[proc] = number

    @sometimes()
    def one_is_inside(self, s: S) -> Any:
        """A process is inside."""
        return s.step.any(Step.CS)

    @always(witness="one_is_inside")
    def mutual_exclusion(self, s: S) -> Any:
        """At most one process is inside."""
        return s.step.count(Step.CS) <= 1

    @always(witness="one_is_inside")
    def invariant(self, s: S) -> Any:
        """Each step preserves it."""
        return self.inductive(s)

    def inductive(self, s: S) -> Any:
        def before(i: Expr, j: Expr) -> Any:
            waits = s.step[j].isin((Step.W1, Step.W2))
            reads = (s.step[j] == Step.E2) & (s.unchecked[j, i] | (s.max[j] >= s.num[i]))
            chooses = (s.step[j] == Step.E3) & (s.max[j] >= s.num[i])
            higher = s.step[j].isin((Step.E4, Step.W1, Step.W2)) & self.precedes(s, i, j) & (~waits | s.unchecked[j, i])
            outside = s.step[j].isin((Step.NCS, Step.E1, Step.EXIT))
            return (s.num[i] > 0) & (outside | reads | chooses | higher)

        def holds(i: Expr) -> Any:
            step, other = s.step[i], s.next[i]
            waits = step.isin((Step.W1, Step.W2))
            passed = (s.step[other] == Step.E2) & ~s.unchecked[other, i] | (s.step[other] == Step.E3)
            return (
                (~step.isin((Step.E4, Step.W1, Step.W2, Step.CS)) | (s.num[i] != 0))
                & (~step.isin((Step.E2, Step.E3)) | s.raised[i])
                & ((step != Step.W2) | (other != i))
                & (~waits | ~s.unchecked[i, i] & all_((j == i) | s.unchecked[i, j] | before(i, j) for j in s.proc))
                & (~((step == Step.W2) & passed) | (s.max[other] >= s.num[i]))
                & ((step != Step.CS) | all_((j == i) | before(i, j) for j in s.proc))
            )

        return all_(holds(i) for i in s.proc)


class BakeryInvariant(Bakery):
    """The bakery begins in any state of its invariant (ISpec): the invariant is inductive."""

    num = integer(0, Bakery.most, per=Bakery.proc, initial=ANY)
    raised = flag(per=Bakery.proc, initial=ANY)
    step = choice(Step, per=Bakery.proc, initial=ANY)
    unchecked = flag(per=(Bakery.proc, Bakery.proc), initial=ANY)
    max = integer(0, Bakery.most, per=Bakery.proc, initial=ANY)
    next = one_of(Bakery.proc, per=Bakery.proc, initial=ANY)
    begins = initial(Bakery.inductive)


class Note(enum.Enum):
    """A message of Lamport's mutual exclusion."""

    REQUEST = "a request with a clock"
    ACK = "the answer"
    RELEASE = "the end of the request"


class LamportMutex(System, deadlock=False):
    """Lamport, "Time, clocks and the ordering of events", 1978: the lowest request enters when all have answered."""

    proc = index(3)
    last = constant(6)
    clock = integer(1, last + 1, per=proc)
    req = integer(0, last + 1, per=(proc, proc))
    ack = flag(per=(proc, proc))
    network = sequence(3, per=(proc, proc), kind=Note, clock=(0, last + 1))
    inside = flag(per=proc)

    @constraint
    def clocks(self, s: S) -> Any:
        return all_(s.clock[p] <= self.sizes["last"] for p in s.proc)

    def broadcast(self, s: S, proc: Expr, kind: Note, clock: Any = 0) -> None:
        for j in s.proc:
            s.network[proc, j].push(when=j != proc, kind=kind, clock=clock)

    @transition()
    def request(self, s: S, proc: Expr) -> None:
        """A process requests to enter."""
        s.when(s.req[proc, proc] == 0)
        s.req[proc, proc] = s.clock[proc]
        self.broadcast(s, proc, Note.REQUEST, s.clock[proc])
        for j in s.proc:
            s.ack[proc, j] = j == proc

    def read(self, s: S, proc: Expr, other: Expr, kind: Note) -> None:
        line = s.network[other, proc]
        s.when(proc != other, ~line.is_empty, line.head.kind == kind)
        line.pop()

    @transition(each=(proc, proc))
    def receive_request(self, s: S, proc: Expr, other: Expr) -> None:
        """A process receives a request, answers it and advances its clock."""
        clock = s.network[other, proc].head.clock
        self.read(s, proc, other, Note.REQUEST)
        s.network[proc, other].push(kind=Note.ACK)
        s.req[proc, other], s.clock[proc] = clock, max_([clock, s.clock[proc]]) + 1

    @transition(each=(proc, proc))
    def receive_ack(self, s: S, proc: Expr, other: Expr) -> None:
        """A process receives an answer."""
        self.read(s, proc, other, Note.ACK)
        s.ack[proc, other] = True

    @transition(each=(proc, proc))
    def receive_release(self, s: S, proc: Expr, other: Expr) -> None:
        """A process receives the end of a request."""
        self.read(s, proc, other, Note.RELEASE)
        s.req[proc, other] = 0

    @transition()
    def enter(self, s: S, proc: Expr) -> None:
        """A process enters: all have answered, and its request is before each other request."""
        mine = s.req[proc, proc]
        theirs = ((j, s.req[proc, j]) for j in s.proc)
        first = ((j == proc) | (r == 0) | (mine < r) | (mine == r) & (proc < j) for j, r in theirs)
        s.when(all_(s.ack[proc, j] for j in s.proc), all_(first))
        s.inside[proc] = True

    @transition()
    def exit(self, s: S, proc: Expr) -> None:
        """A process leaves."""
        s.when(s.inside[proc])
        s.inside[proc], s.req[proc, proc] = False, 0
        self.broadcast(s, proc, Note.RELEASE)
        for j in s.proc:
            s.ack[proc, j] = False

    @sometimes()
    def one_is_inside(self, s: S) -> Any:
        """A process is inside."""
        return s.inside.any()

    @always(witness="one_is_inside")
    def mutex(self, s: S) -> Any:
        """At most one process is inside."""
        return s.inside.count() <= 1
