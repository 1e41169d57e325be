"""Agreement of several processes: Consensus, Voting and Paxos (Lamport), transaction commit, Paxos Commit, and Raft.

Rule: a message that was sent can be received for ever, and also twice or never. So the set of all sent messages is a
flag for each possible message, and components that the sender's ballot or term determines are fields of the message.
"""

from __future__ import annotations

import enum
from typing import Any

from trystate.model.language import *

S = SymbolicState


def majority(members: Any) -> int:
    return len(members) // 2 + 1


def quorum_of(s: S) -> Any:
    """Any smallest majority of the acceptors."""
    quorum = s.subset(s.acceptor)
    s.when(count(quorum) == majority(s.acceptor))
    return quorum


class Consensus(System, deadlock=False):
    """One value is chosen, once."""

    value = index(2)
    chosen = flag(per=value)

    @transition()
    def decide(self, s: S, value: Expr) -> None:
        """A value is chosen."""
        s.when(~s.chosen.any())
        s.chosen[value] = True


class Voting(System, deadlock=False):
    """Acceptors vote in ballots, and only for values that are safe there."""

    acceptor = index(3)
    ballot = index(3)
    value = index(2)
    votes = flag(per=(acceptor, ballot, value))
    max_ballot = one_of(ballot, optional=True, per=acceptor)

    def silent(self, s: S, acceptor: Expr, ballot: Expr) -> Any:
        return ~any_(s.votes[acceptor, ballot, v] for v in s.value)

    def shows_safe(self, s: S, quorum: tuple[Expr, Expr], ballot: Expr, value: Expr) -> Any:
        def within(acceptor: Expr) -> Any:
            return (acceptor == quorum[0]) | (acceptor == quorum[1])

        def silent_after(low: Expr | None) -> Any:
            between = ((d, (d < ballot) & (True if low is None else d > low)) for d in s.ballot)
            return all_(~(within(a) & here) | self.silent(s, a, d) for d, here in between for a in s.acceptor)

        voted = ((c, any_(within(a) & s.votes[a, c, value] for a in s.acceptor)) for c in s.ballot)
        last = any_((c < ballot) & here & silent_after(c) for c, here in voted)
        return all_(~within(a) | (s.max_ballot[a] >= ballot) for a in s.acceptor) & (silent_after(None) | last)

    @transition()
    def increase_max_ballot(self, s: S, acceptor: Expr, ballot: Expr) -> None:
        """An acceptor takes part in a higher ballot."""
        s.when(ballot > s.max_ballot[acceptor])
        s.max_ballot[acceptor] = ballot

    @transition()
    def vote_for(self, s: S, acceptor: Expr, ballot: Expr, value: Expr) -> None:
        """An acceptor votes, once in a ballot, for the only value of the ballot, if a quorum shows that it is safe."""
        s.when(s.max_ballot[acceptor] <= ballot, self.silent(s, acceptor, ballot))
        one = len(s.acceptor) == 1  # a quorum is one of one acceptor, or two of three
        pairs = (((a, b), (a != b) | one) for a in s.acceptor for b in s.acceptor)
        s.when(any_(differ & self.shows_safe(s, (a, b), ballot, value) for (a, b), differ in pairs))
        s.when(~any_(s.votes[a, ballot, v] & (v != value) for a in s.acceptor for v in s.value))
        s.votes[acceptor, ballot, value], s.max_ballot[acceptor] = True, ballot

    def chosen(self, s: S, value: Expr) -> Any:
        return any_(count(s.votes[a, b, value] for a in s.acceptor) >= majority(s.acceptor) for b in s.ballot)

    @refines(Consensus)
    def as_consensus(self, s: S, consensus: S) -> None:
        for v in s.value:
            consensus.chosen[v] = self.chosen(s, v)

    @sometimes()
    def a_value_is_chosen(self, s: S) -> Any:
        """A quorum has voted for one value in one ballot."""
        return any_(self.chosen(s, v) for v in s.value)

    @always(witness="a_value_is_chosen")
    def one_value_per_ballot(self, s: S) -> Any:
        """All votes of a ballot are for one value."""
        voted = ((b, v, any_(s.votes[a, b, v] for a in s.acceptor)) for b in s.ballot for v in s.value)
        return all_(
            ~(here & any_(s.votes[a, b, w] for a in s.acceptor)) | (v == w) for b, v, here in voted for w in s.value
        )

    @always(witness="a_value_is_chosen")
    def votes_are_safe(self, s: S) -> Any:
        """No other value is, or can still be, chosen in a ballot before a vote."""

        def only(c: Expr, v: Expr) -> Any:
            never = ((a, (s.max_ballot[a] > c) & self.silent(s, a, c)) for a in s.acceptor)
            return count(s.votes[a, c, v] | gone for a, gone in never) >= majority(s.acceptor)

        voted = ((b, v, any_(s.votes[a, b, v] for a in s.acceptor)) for b in s.ballot for v in s.value)
        return all_(~here | all_((c >= b) | only(c, v) for c in s.ballot) for b, v, here in voted)


class Paxos(System, deadlock=False):
    """Each ballot has a leader, which collects the last votes of a quorum and then proposes a value."""

    acceptor = index(3)
    ballot = index(2)
    value = index(2)
    max_ballot = one_of(ballot, optional=True, per=acceptor)
    voted_in = one_of(ballot, optional=True, per=acceptor)
    voted_for = one_of(value, optional=True, per=acceptor)
    sent_1a = flag(per=ballot)
    sent_1b = flag(per=(acceptor, ballot))
    ballot_1b = one_of(ballot, optional=True, per=(acceptor, ballot))
    value_1b = one_of(value, optional=True, per=(acceptor, ballot))
    value_2a = one_of(value, optional=True, per=ballot, doc="empty: the message of the ballot was not sent")
    sent_2b = flag(per=(acceptor, ballot, value))

    @transition()
    def phase_1a(self, s: S, ballot: Expr) -> None:
        """The leader of a ballot starts it."""
        s.sent_1a[ballot] = True

    @transition()
    def phase_1b(self, s: S, acceptor: Expr, ballot: Expr) -> None:
        """An acceptor joins a higher ballot and sends its last vote."""
        s.when(s.sent_1a[ballot], ballot > s.max_ballot[acceptor])
        s.max_ballot[acceptor], s.sent_1b[acceptor, ballot] = ballot, True
        s.ballot_1b[acceptor, ballot], s.value_1b[acceptor, ballot] = s.voted_in[acceptor], s.voted_for[acceptor]

    @transition()
    def phase_2a(self, s: S, ballot: Expr, value: Expr) -> None:
        """The leader proposes the value of the last vote in a quorum, or any value if there was no vote."""
        quorum = quorum_of(s)
        s.when(s.value_2a[ballot].absent, all_(~quorum[a] | s.sent_1b[a, ballot] for a in s.acceptor))
        last = max_(ite(quorum[a], ord_(s.ballot_1b[a, ballot]), -1) for a in s.acceptor)
        voted = ((a, quorum[a] & (s.value_1b[a, ballot] == value)) for a in s.acceptor)
        s.when((last < 0) | any_(here & (ord_(s.ballot_1b[a, ballot]) == last) for a, here in voted))
        s.value_2a[ballot] = value

    @transition()
    def phase_2b(self, s: S, acceptor: Expr, ballot: Expr) -> None:
        """An acceptor votes as the leader proposes, unless it has joined a higher ballot."""
        value = s.value_2a[ballot]
        s.when(~value.absent, ballot >= s.max_ballot[acceptor])
        s.max_ballot[acceptor], s.voted_in[acceptor], s.voted_for[acceptor] = ballot, ballot, value
        s.sent_2b[acceptor, ballot, value] = True

    @refines(Voting)
    def as_voting(self, s: S, voting: S) -> None:
        for a in s.acceptor:
            voting.max_ballot[a] = s.max_ballot[a]
            for b in s.ballot:
                for v in s.value:
                    voting.votes[a, b, v] = s.sent_2b[a, b, v]

    @sometimes()
    def a_value_is_chosen(self, s: S) -> Any:
        """A quorum has voted for one value in one ballot."""
        votes = (count(s.sent_2b[a, b, v] for a in s.acceptor) for b in s.ballot for v in s.value)
        return any_(n >= majority(s.acceptor) for n in votes)

    @always(witness="a_value_is_chosen")
    def last_votes_are_right(self, s: S) -> Any:
        """An acceptor's last vote was sent, and a last vote that it has reported too."""
        last = (s.voted_in[a].absent | s.sent_2b[a, s.voted_in[a], s.voted_for[a]] for a in s.acceptor)
        old = ((a, s.ballot_1b[a, b], s.value_1b[a, b]) for a in s.acceptor for b in s.ballot)
        return all_(last) & all_(b.absent | s.sent_2b[a, b, v] for a, b, v in old)


class Manager(enum.Enum):
    """The states of a resource manager."""

    WORKING = "has promised nothing"
    PREPARED = "is prepared to commit"
    COMMITTED = "has committed"
    ABORTED = "has aborted"


class TransactionCommit(System, deadlock=False):
    """All resource managers commit, or all abort."""

    rm = index(3)
    state = choice(Manager, per=rm)

    @transition()
    def prepare(self, s: S, rm: Expr) -> None:
        """A resource manager is prepared."""
        move(s.state, Manager.WORKING, Manager.PREPARED, at=rm)

    @transition()
    def commit(self, s: S, rm: Expr) -> None:
        """A resource manager commits, when all are prepared or have committed."""
        move(s.state, Manager.PREPARED, Manager.COMMITTED, s.state.all(Manager.PREPARED, Manager.COMMITTED), at=rm)

    @transition()
    def abort(self, s: S, rm: Expr) -> None:
        """A resource manager aborts, when none has committed."""
        open_ = (Manager.WORKING, Manager.PREPARED)
        move(s.state, open_, Manager.ABORTED, ~s.state.any(Manager.COMMITTED), at=rm)

    @sometimes()
    def all_commit(self, s: S) -> Any:
        """All managers have committed."""
        return s.state.all(Manager.COMMITTED)

    @always(witness="all_commit")
    def is_consistent(self, s: S) -> Any:
        """No manager has committed while another has aborted."""
        return ~(s.state.any(Manager.COMMITTED) & s.state.any(Manager.ABORTED))


class Vote(enum.Enum):
    """The vote of an acceptor for one resource manager."""

    NONE = "none yet"
    PREPARED = "it is prepared"
    ABORTED = "it aborts"


class PaxosCommit(System, deadlock=False):
    """A Paxos consensus on each resource manager's decision; in ballot 0 the manager is the leader."""

    rm = index(2)
    acceptor = index(3)
    ballot = index(2)
    state = choice(Manager, per=rm)
    joined = one_of(ballot, per=(rm, acceptor))
    voted_in = one_of(ballot, optional=True, per=(rm, acceptor))
    voted_for = choice(Vote, per=(rm, acceptor))
    sent_1a = flag(per=(rm, ballot))
    sent_1b = flag(per=(rm, acceptor, ballot))
    ballot_1b = one_of(ballot, optional=True, per=(rm, acceptor, ballot))
    vote_1b = choice(Vote, per=(rm, acceptor, ballot))
    vote_2a = choice(Vote, per=(rm, ballot), doc="none: the message of the ballot was not sent")
    vote_2b = choice(Vote, per=(rm, acceptor, ballot))
    sent_commit = flag()
    sent_abort = flag()

    @transition()
    def prepare(self, s: S, rm: Expr) -> None:
        """A resource manager is prepared and proposes so in ballot 0."""
        move(s.state, Manager.WORKING, Manager.PREPARED, at=rm)
        s.vote_2a[rm, 0] = Vote.PREPARED

    @transition()
    def choose_to_abort(self, s: S, rm: Expr) -> None:
        """A resource manager aborts by itself and proposes so in ballot 0."""
        move(s.state, Manager.WORKING, Manager.ABORTED, at=rm)
        s.vote_2a[rm, 0] = Vote.ABORTED

    @transition()
    def receive_commit(self, s: S, rm: Expr) -> None:
        """A resource manager receives the decision to commit."""
        s.when(s.sent_commit)
        s.state[rm] = Manager.COMMITTED

    @transition()
    def receive_abort(self, s: S, rm: Expr) -> None:
        """A resource manager receives the decision to abort."""
        s.when(s.sent_abort)
        s.state[rm] = Manager.ABORTED

    @transition()
    def phase_1a(self, s: S, rm: Expr, ballot: Expr) -> None:
        """A leader starts a ballot above 0."""
        s.when(ballot != 0)
        s.sent_1a[rm, ballot] = True

    @transition()
    def phase_1b(self, s: S, rm: Expr, acceptor: Expr, ballot: Expr) -> None:
        """An acceptor joins a higher ballot and sends its last vote."""
        s.when(s.sent_1a[rm, ballot], s.joined[rm, acceptor] < ballot)
        here = rm, acceptor, ballot
        s.joined[rm, acceptor], s.sent_1b[here] = ballot, True
        s.ballot_1b[here], s.vote_1b[here] = s.voted_in[rm, acceptor], s.voted_for[rm, acceptor]

    @transition()
    def phase_2a(self, s: S, rm: Expr, ballot: Expr) -> None:
        """The leader proposes the last vote of a quorum, or else to abort."""
        quorum = quorum_of(s)
        s.when(ballot != 0, s.vote_2a[rm, ballot] == Vote.NONE)
        s.when(all_(~quorum[a] | s.sent_1b[rm, a, ballot] for a in s.acceptor))
        last = max_(ite(quorum[a], ord_(s.ballot_1b[rm, a, ballot]), -1) for a in s.acceptor)
        prepared = ((a, quorum[a] & (s.vote_1b[rm, a, ballot] == Vote.PREPARED)) for a in s.acceptor)
        is_prepared = any_(here & (ord_(s.ballot_1b[rm, a, ballot]) == last) for a, here in prepared)
        s.vote_2a[rm, ballot] = ite(is_prepared, Vote.PREPARED, Vote.ABORTED)

    @transition()
    def phase_2b(self, s: S, rm: Expr, acceptor: Expr, ballot: Expr) -> None:
        """An acceptor votes as the leader proposes, unless it has joined a higher ballot."""
        vote = s.vote_2a[rm, ballot]
        s.when(vote != Vote.NONE, s.joined[rm, acceptor] <= ballot)
        s.joined[rm, acceptor], s.voted_in[rm, acceptor], s.voted_for[rm, acceptor] = ballot, ballot, vote
        s.vote_2b[rm, acceptor, ballot] = vote

    def decided(self, s: S, rm: Expr, vote: Vote) -> Any:
        return any_(count(s.vote_2b[rm, a, b] == vote for a in s.acceptor) >= majority(s.acceptor) for b in s.ballot)

    @transition()
    def decide_to_commit(self, s: S) -> None:
        """For each manager a quorum has voted that it is prepared."""
        s.when(all_(self.decided(s, r, Vote.PREPARED) for r in s.rm))
        s.sent_commit = True

    @transition()
    def decide_to_abort(self, s: S) -> None:
        """For one manager a quorum has voted that it aborts."""
        s.when(any_(self.decided(s, r, Vote.ABORTED) for r in s.rm))
        s.sent_abort = True

    @sometimes()
    def all_commit(self, s: S) -> Any:
        """All managers have committed."""
        return s.state.all(Manager.COMMITTED)

    @refines(TransactionCommit)
    def as_commit(self, s: S, commit: S) -> None:
        for r in s.rm:
            commit.state[r] = s.state[r]


class Role(enum.Enum):
    """The role of a server."""

    FOLLOWER = "follows a leader"
    CANDIDATE = "collects votes"
    LEADER = "appends entries"


class Raft(System, deadlock=False):
    """Raft with a log of a few places. A message is a fact about its term: it can be received late and again."""

    server = index(3)
    term = index(3, "terms; the first is before any election")
    place = index(1, "places of a log")
    now = one_of(term, per=server)
    role = choice(Role, per=server)
    voted_for = one_of(server, optional=True, per=server)
    log = one_of(term, optional=True, per=(server, place), doc="the term of an entry")
    committed = one_of(place, optional=True, per=server, doc="the last that is committed")
    requested = flag(per=(server, term))
    requested_length = integer(0, place, per=(server, term))
    requested_last = one_of(term, optional=True, per=(server, term))
    vote = flag(per=(server, server, term), doc="from a server, for a candidate")
    entry = one_of(term, optional=True, per=(server, term, place), doc="sent by a leader; empty: not sent")
    previous = one_of(term, optional=True, per=(server, term, place))
    accepted = flag(per=(server, server, term, place), doc="from a server, to a leader")
    notice = flag(per=(server, term, place), doc="the leader has committed the place")

    def length(self, s: S, server: Expr) -> Any:
        return count(~s.log[server, k].absent for k in s.place)

    def last(self, s: S, server: Expr) -> Any:
        return max_(ord_(s.log[server, k]) for k in s.place)

    def before(self, s: S, server: Expr, place: Expr) -> Any:
        return ite(place == 0, None, s.log[server, s.place.before(place)])

    @transition()
    def time_out(self, s: S, server: Expr) -> None:
        """A server becomes a candidate of the next term, votes for itself and requests votes."""
        s.when(s.role[server] != Role.LEADER, s.now[server] != s.term[-1])
        term = s.term.after(s.now[server])
        s.now[server], s.role[server], s.voted_for[server] = term, Role.CANDIDATE, server
        s.vote[server, server, term], s.requested[server, term] = True, True
        s.requested_length[server, term] = self.length(s, server)
        s.requested_last[server, term] = s.log[server, s.place[-1]]

    @transition()
    def update_term(self, s: S, server: Expr, term: Expr) -> None:
        """A server receives a message of a higher term, and each term begins with a request."""
        s.when(term > s.now[server], any_(s.requested[j, term] for j in s.server))
        s.now[server], s.role[server], s.voted_for[server] = term, Role.FOLLOWER, None

    @transition(each=(server, server))
    def grant_vote(self, s: S, server: Expr, candidate: Expr) -> None:
        """A server votes, once in a term, for a candidate whose log is not behind its own."""
        term = s.now[server]
        last, own = ord_(s.requested_last[candidate, term]), self.last(s, server)
        longer = s.requested_length[candidate, term] >= self.length(s, server)
        s.when(s.requested[candidate, term], s.voted_for[server].absent | (s.voted_for[server] == candidate))
        s.when((last > own) | ((last == own) & longer))
        s.voted_for[server], s.vote[server, candidate, term] = candidate, True

    @transition()
    def become_leader(self, s: S, server: Expr) -> None:
        """A candidate has the votes of a majority."""
        votes = count(s.vote[j, server, s.now[server]] for j in s.server)
        move(s.role, Role.CANDIDATE, Role.LEADER, votes >= majority(s.server), at=server)

    @transition()
    def append(self, s: S, server: Expr, place: Expr) -> None:
        """The leader appends an entry to its log."""
        s.when(s.role[server] == Role.LEADER, self.length(s, server) == ord_(place))
        s.log[server, place] = s.now[server]

    @transition()
    def send_entry(self, s: S, server: Expr, place: Expr) -> None:
        """The leader sends an entry, with the term of the entry before."""
        s.when(s.role[server] == Role.LEADER, ~s.log[server, place].absent)
        here = server, s.now[server], place
        s.entry[here], s.previous[here] = s.log[server, place], self.before(s, server, place)

    @transition(each=(server, server, place))
    def accept_entry(self, s: S, server: Expr, leader: Expr, place: Expr) -> None:
        """A server whose log agrees up to the entry stores it; an entry that differs is dropped with all after it."""
        here = leader, s.now[server], place
        s.when(server != leader, ~s.entry[here].absent, self.before(s, server, place) == s.previous[here])
        differs = s.log[server, place] != s.entry[here]
        s.role[server], s.accepted[server, leader, s.now[server], place] = Role.FOLLOWER, True
        for k in s.place:
            s.log[server, k] = ite(differs & (k > place), None, s.log[server, k])
        s.log[server, place] = s.entry[here]

    @transition()
    def commit(self, s: S, server: Expr, place: Expr) -> None:
        """The leader commits an entry of its term that a majority has stored."""
        stored = count((j == server) | s.accepted[j, server, s.now[server], place] for j in s.server)
        s.when(s.role[server] == Role.LEADER, s.log[server, place] == s.now[server], stored >= majority(s.server))
        s.when(s.committed[server] < place)
        s.committed[server], s.notice[server, s.now[server], place] = place, True

    @transition(each=(server, server, place))
    def follow(self, s: S, server: Expr, leader: Expr, place: Expr) -> None:
        """A server whose log agrees up to the entry commits it too."""
        here = leader, s.now[server], place
        s.when(s.notice[here], s.log[server, place] == s.entry[here], s.committed[server] < place)
        s.committed[server] = place

    @environment()
    def restart(self, s: S, server: Expr) -> None:
        """A server restarts: it loses its role, and which entries are committed."""
        s.role[server], s.committed[server] = Role.FOLLOWER, None

    def has_committed(self, s: S, server: Expr, place: Expr) -> Any:
        return s.committed[server] >= place

    @sometimes()
    def an_entry_is_replaced(self, s: S) -> Any:
        """The entry of the last term is committed at a place where another server has an older one."""
        done = ((k, self.has_committed(s, i, k) & (s.log[i, k] == s.term[-1])) for i in s.server for k in s.place)
        return any_(here & any_(s.log[j, k] == s.term[1] for j in s.server) for k, here in done)

    def pairs(self, s: S, holds: Any) -> Any:
        return all_(holds(i, j, k) for i in s.server for j in s.server for k in s.place)

    @always(witness="an_entry_is_replaced")
    def one_leader_in_a_term(self, s: S) -> Any:
        """Two leaders have different terms (ElectionSafety)."""
        return all_(count((s.role[i] == Role.LEADER) & (s.now[i] == t) for i in s.server) <= 1 for t in s.term)

    @always(witness="an_entry_is_replaced")
    def logs_match(self, s: S) -> Any:
        """Logs with the same entry at a place have the same entry before it (LogMatching)."""

        def match(i: Expr, j: Expr, k: Expr) -> Any:
            return (s.log[i, k] != s.log[j, k]) | s.log[i, k].absent | (self.before(s, i, k) == self.before(s, j, k))

        return self.pairs(s, match)

    @always(witness="an_entry_is_replaced")
    def leaders_are_complete(self, s: S) -> Any:
        """A leader of a higher term has each committed entry (LeaderCompleteness)."""

        def has(i: Expr, j: Expr, k: Expr) -> Any:
            later = (s.role[j] == Role.LEADER) & (s.now[j] > s.log[i, k])
            return ~(self.has_committed(s, i, k) & later) | (s.log[i, k] == s.log[j, k])

        return self.pairs(s, has)

    @always(witness="an_entry_is_replaced")
    def committed_entries_agree(self, s: S) -> Any:
        """Two servers have committed the same entry at a place (StateMachineSafety)."""

        def agree(i: Expr, j: Expr, k: Expr) -> Any:
            return ~(self.has_committed(s, i, k) & self.has_committed(s, j, k)) | (s.log[i, k] == s.log[j, k])

        return self.pairs(s, agree)
