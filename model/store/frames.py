"""Connections and their frames: which connections are served, and how a request in pieces is carried out.

Each connection writes a value of its own (its number + 1; 0 is absent). A request is one packet, or a beginning,
perhaps a middle, and an end; a packet is read whole. The steps of a client are environment: it may stop at any moment,
and a server must not depend on it. The server's steps with whole requests are protocol, and fair. A server that is told
to end does so between two requests, closes all connections, and carries out no more; one that crashes has no say. Rule:
the properties judge the server's own acts, in `write`, `close` and `clean_up`, in every edition alike.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ..language import *
from .vocabulary import Connection, Edition, Fragment, Serving

S = SymbolicState
OPEN = (Connection.CONNECTING, Connection.VALIDATING, Connection.READY)
OVER = (Serving.ENDED, Serving.DEAD)
LATER = (Edition.TORCH, Edition.TRYSTATE)  # torch 1.9 has neither VALIDATE nor MULTI_SET


def dropped(fragment: Fragment, of: str = "self") -> tuple[Arc, ...]:
    """A fragment goes with its connection."""
    return may(fragment, Fragment.NOTHING, of=of)


GONE = (
    *arc((Connection.CONNECTING, Connection.READY, Connection.CLOSING), Connection.CLOSED, of="others"),
    *dropped(Fragment.SET, "others"),
)  # every connection with its server


class Frames(System):
    """A server, its connections, two keys, and requests in pieces."""

    title = "Connections and frames"
    Edition = Edition
    returns_at_once: ClassVar[bool] = True  # a set returns when it is sent, and not when it is answered

    connection = index(2)
    at = choice(Connection, per="connection", initial=Connection.CLOSED)
    validated = flag(per="connection", doc="sent a VALIDATE")
    held = choice(Fragment, per="connection", doc="of an unfinished request")
    asked = flag(per="connection", doc="a whole SET has arrived and is not served")
    first = integer(0, "connection", doc="the value of the first key: connection + 1, or 0 for none")
    second = integer(0, "connection", doc="the value of the second key")
    done = flag(per="connection", doc="its last request has been carried out, all or part of it")
    returned = flag(per="connection", doc="its last set has returned")
    shown = flag(doc="a request was carried out before it was whole")
    undone = flag(doc="a request was carried out again over what somebody else wrote since")
    intruded = flag(doc="a connection that never validated was served")
    wronged = flag(doc="the server closed a connection that broke no rule")
    left_over = flag(doc="the server still holds a fragment of a closed connection")
    serving = choice(Serving)

    def lifelines(self) -> Lifelines:
        """The server reads and writes; what arrives in pieces is in its hands at once."""
        truth = "done shown undone intruded wronged left_over"
        return served("server", "at validated held serve clean_up", requests="asked", here=truth)

    @machine(Serving)
    def server(self, s: S) -> Any:
        """The server."""
        return s.serving

    @machine(Connection, each="connection")
    def connection_state(self, s: S, connection: Expr) -> Any:
        """A connection, as its server sees it."""
        return s.at[connection]

    @machine(Fragment, each="connection")
    def fragment(self, s: S, connection: Expr) -> Any:
        """The part of a connection's unfinished request that the server holds."""
        return s.held[connection]

    # ---- helpers

    def is_free(self, s: S) -> Any:
        """Can the server read now?"""
        return not_(False)

    def begin(self, s: S, connection: Expr) -> None:
        """A client begins a request. It has not returned."""
        s.done[connection] = False
        s.returned[connection] = False

    def write(self, s: S, connection: Expr, *, both: bool = False) -> None:
        """The server carries out a connection's request, of which it holds a part or nothing."""
        own = ord_(connection) + 1
        s.intruded = s.intruded | ~s.validated[connection]
        s.shown = s.shown | (s.held[connection] != Fragment.NOTHING)
        s.undone = s.undone | (s.done[connection] & (s.first != own))
        s.done[connection] = True
        s.first = own
        if both:
            s.second = own

    def close(self, s: S, connection: Expr, *, breaks_a_rule: bool) -> None:
        """The server closes a connection for the packet that it sent."""
        s.at[connection] = Connection.CLOSING
        s.wronged = s.wronged | not_(breaks_a_rule)

    def forget(self, s: S, connection: Expr) -> None:
        """The server drops the part of an unfinished request with its connection."""
        s.held[connection] = Fragment.NOTHING

    def between_requests(self, s: S, connection: Expr) -> None:
        s.when(
            s.at[connection] == Connection.READY,
            s.held[connection] == Fragment.NOTHING,
            ~s.asked[connection],
            self.is_free(s),
        )

    # ---- getting in

    @environment(each="connection", moves=[arc(Connection.CLOSED, Connection.CONNECTING)])
    def connect(self, s: S, connection: Expr) -> None:
        """Somebody connects."""
        s.when(s.at[connection] == Connection.CLOSED, s.serving == Serving.RUNNING)
        s.at[connection] = Connection.CONNECTING

    # ---- requests

    @environment(each="connection")
    def ask(self, s: S, connection: Expr) -> None:
        """A whole SET of the first key arrives."""
        s.when(s.at[connection] == Connection.READY, s.held[connection] == Fragment.NOTHING, ~s.asked[connection])
        self.begin(s, connection)
        s.asked[connection] = True
        s.returned[connection] = self.returns_at_once

    @transition(each="connection", cite="ddp-initialisation 4.2.6: setHandler")
    def serve(self, s: S, connection: Expr) -> None:
        """The server carries it out, and answers it if it is ours."""
        s.when(s.asked[connection], s.at[connection] == Connection.READY, self.is_free(s))
        s.asked[connection] = False
        self.write(s, connection)
        s.returned[connection] = True

    @environment(
        each="connection",
        moves=[arc(Fragment.NOTHING, Fragment.SET)],
        cite="ddp-initialisation 4.2.6: recvVector blocks",
    )
    def set_begins(self, s: S, connection: Expr) -> None:
        """The first part of a SET arrives."""
        self.between_requests(s, connection)
        self.begin(s, connection)
        s.held[connection] = Fragment.SET

    @environment(each="connection", moves=[arc(Fragment.SET, Fragment.NOTHING)])
    def set_ends(self, s: S, connection: Expr) -> None:
        """The rest of the SET: it is carried out."""
        s.when(s.at[connection] == Connection.READY, s.held[connection] == Fragment.SET)
        s.held[connection] = Fragment.NOTHING
        self.write(s, connection)
        s.returned[connection] = True

    @environment(
        each="connection",
        moves=[arc(Connection.READY, Connection.CLOSING)],
        cite="ddp-initialisation 4.2.6.4: query throws at an unexpected query type, and queryFds closes",
    )
    def ask_the_unknown(self, s: S, connection: Expr) -> None:
        """A request arrives whose type no server knows: the connection is closed."""
        self.between_requests(s, connection)
        self.begin(s, connection)
        self.close(s, connection, breaks_a_rule=True)

    # ---- the end

    @environment(
        each="connection",
        moves=[arc((Connection.CONNECTING, Connection.READY), Connection.CLOSING)],
    )
    def hang_up(self, s: S, connection: Expr) -> None:
        """The peer closes, or dies, at any moment."""
        s.when(s.at[connection].isin(OPEN))
        s.at[connection] = Connection.CLOSING
        s.asked[connection] = False
        self.begin(s, connection)  # nobody is left to say what has returned

    @transition(
        each="connection",
        moves=[arc(Connection.CLOSING, Connection.CLOSED), may(Fragment.SET, Fragment.NOTHING)],
        cite="ddp-initialisation 4.2.6.2: queryFds",
    )
    def clean_up(self, s: S, connection: Expr) -> None:
        """The server removes what it knows of the connection."""
        own = s.held[connection] != Fragment.NOTHING
        s.when(s.at[connection] == Connection.CLOSING, self.is_free(s) | own)
        self.forget(s, connection)
        s.left_over = s.left_over | (s.held[connection] != Fragment.NOTHING)
        s.at[connection] = Connection.CLOSED
        s.held[connection] = Fragment.NOTHING  # of the next connection in this place
        s.validated[connection] = False

    @environment(
        switch="end",
        moves=[arc(Serving.RUNNING, Serving.ENDING)],
        cite="ddp-initialisation 4.2.5.2: the write end of the control pipe is closed",
    )
    def end(self, s: S) -> None:
        """The owner of the server tells it to end."""
        s.when(s.serving == Serving.RUNNING)
        s.serving = Serving.ENDING

    @transition(
        moves=[arc(Serving.ENDING, Serving.ENDED), GONE],
        cite="ddp-initialisation 4.2.6.1: POLLHUP on the control pipe: finished, before queryFds",
    )
    def finish(self, s: S) -> None:
        """The loop sees it: the server carries out nothing more, and closes all connections."""
        s.when(s.serving == Serving.ENDING, self.is_free(s))
        s.serving = Serving.ENDED
        self.let_all_go(s)

    @fault(
        "stop",
        cite="TCPStore.cpp: set sends and returns",
        moves=[arc((Serving.RUNNING, Serving.ENDING), Serving.DEAD), GONE],
    )
    def stop(self, s: S) -> None:
        """The server dies, and with it what it has not carried out."""
        s.when(~s.serving.isin(OVER))
        s.serving = Serving.DEAD
        self.let_all_go(s)

    def let_all_go(self, s: S) -> None:
        """Every connection ends with the server, and what it has not carried out is lost."""
        for j in s.connection:
            s.at[j] = Connection.CLOSED
            s.held[j] = Fragment.NOTHING
            s.asked[j] = False
            s.validated[j] = False

    # ---- what must hold

    @terminal
    def at_rest(self, s: S) -> Any:
        """The server is gone, and nobody can connect."""
        return s.serving.isin(OVER)

    @sometimes()
    def both_are_ready(self, s: S) -> Any:
        """Every connection is ready."""
        return all_(at == Connection.READY for at in s.at)

    @sometimes(editions=LATER)
    def both_keys_are_written(self, s: S) -> Any:
        """A MULTI_SET was carried out, and a SET after it."""
        return (s.second != 0) & (s.first != 0) & (s.first != s.second)

    @sometimes()
    def an_upload_was_aborted(self, s: S) -> Any:
        """A connection hung up with a request half sent."""
        return any_((s.at[j] == Connection.CLOSING) & (s.held[j] == Fragment.SET) for j in s.connection)

    @sometimes(needs="stop")
    def the_server_stops(self, s: S) -> Any:
        """The server has died after it had carried out a set."""
        return (s.serving == Serving.DEAD) & (s.first != 0)

    @sometimes(needs="end")
    def the_server_ends(self, s: S) -> Any:
        """The server has ended in order after it had carried out a set."""
        return (s.serving == Serving.ENDED) & (s.first != 0)

    @sometimes()
    def a_set_returns(self, s: S) -> Any:
        """A set has returned, and was carried out."""
        return any_(s.returned[j] & s.done[j] for j in s.connection)

    @always(witness="a_set_returns")
    def what_returned_has_happened(self, s: S) -> Any:
        """A set that has returned was carried out, or the server still has it."""
        return all_(~s.returned[j] | s.done[j] | s.asked[j] for j in s.connection)

    @always(witness="both_keys_are_written", editions=LATER)
    def requests_are_whole(self, s: S) -> Any:
        """A request is carried out when it has arrived whole, and not before."""
        return ~s.shown

    @always(witness="both_keys_are_written", editions=LATER)
    def nothing_is_undone(self, s: S) -> Any:
        """A request is carried out once: never again over what others wrote since."""
        return ~s.undone

    @always(witness="both_are_ready")
    def only_the_validated_are_served(self, s: S) -> Any:
        """A request is carried out only after its connection's VALIDATE."""
        return ~s.intruded

    @always(witness="both_are_ready")
    def who_keeps_the_rules_stays(self, s: S) -> Any:
        """The server closes only connections that broke a rule, however their bytes were cut into packets."""
        return ~s.wronged

    @always(witness="an_upload_was_aborted")
    def nothing_is_left_of_the_closed(self, s: S) -> Any:
        """Nothing of a closed connection is left in the server."""
        gone = all_(
            (s.at[j] != Connection.CLOSED) | ((s.held[j] == Fragment.NOTHING) & ~s.asked[j]) for j in s.connection
        )
        return gone & ~s.left_over

    @always(witness="the_server_ends", needs="end")
    def an_end_leaves_nothing(self, s: S) -> Any:
        """A server that has ended in order holds no connection, and no part of a request."""
        closed = all_((s.at[j] == Connection.CLOSED) & (s.held[j] == Fragment.NOTHING) for j in s.connection)
        return (s.serving != Serving.ENDED) | closed

    @leads_to(needs="end")
    def an_end_is_reached(self, s: S) -> Any:
        """A server that is told to end does so, whatever its clients leave undone."""
        return s.serving == Serving.ENDING, s.serving.isin(OVER)

    @leads_to(each="connection")
    def requests_are_served(self, s: S, connection: Expr) -> Any:
        """A whole request is served, whatever other connections do or leave undone."""
        asked = s.asked[connection] & (s.at[connection] == Connection.READY)
        return asked, ~s.asked[connection]


# ---- the editions


class Seed(Frames, edition=Edition.SEED):
    """torch 1.9: no VALIDATE; the daemon reads one request to its end before it looks at another (S23)."""

    def is_free(self, s: S) -> Any:
        return not_(any_(held != Fragment.NOTHING for held in s.held))

    @environment(
        each="connection", moves=[arc(Connection.CONNECTING, Connection.READY)], cite="ddp-initialisation 4.2.6"
    )
    def speak_at_once(self, s: S, connection: Expr) -> None:
        """There is no VALIDATE yet: any first byte is taken for a query."""
        s.when(s.at[connection] == Connection.CONNECTING)
        s.at[connection] = Connection.READY

    @fault(
        "revents",
        moves=[arc((Serving.RUNNING, Serving.ENDING), Serving.DEAD), GONE],
        cite="ddp-initialisation 4.2.6.1: throw std::system_error, Unexpected poll revent",
    )
    def throw(self, s: S) -> None:
        """poll says something else of the listening socket than that somebody came: the thread throws."""
        s.when(~s.serving.isin(OVER), self.is_free(s))
        s.serving = Serving.DEAD
        self.let_all_go(s)


ALSO_GONE = (
    *arc(Connection.VALIDATING, Connection.CLOSED, of="others"), *dropped(Fragment.MULTI_SET, "others")
)  # fmt: skip


class Later(Frames):
    """torch since 2.0: a connection begins with VALIDATE, and a MULTI_SET may come in pieces."""

    @environment(
        each="connection",
        moves=[arc(Connection.CONNECTING, Connection.READY)],
        cite="TCPStoreLibUvBackend.cpp: validate",
    )
    def validate(self, s: S, connection: Expr) -> None:
        """The first packet is a VALIDATE with the right magic."""
        s.when(s.at[connection] == Connection.CONNECTING)
        s.at[connection] = Connection.READY
        s.validated[connection] = True

    @environment(
        each="connection",
        moves=[arc(Fragment.NOTHING, Fragment.MULTI_SET)],
        cite="TCPStoreLibUvBackend.cpp: parse_multi_set_command",
    )
    def multi_set_begins(self, s: S, connection: Expr) -> None:
        """A MULTI_SET of both keys arrives up to the second key."""
        self.between_requests(s, connection)
        self.begin(s, connection)
        s.held[connection] = Fragment.MULTI_SET
        self.multi_set_comes(s, connection)

    def multi_set_comes(self, s: S, connection: Expr) -> None:
        """The server receives the first part of a MULTI_SET."""

    @environment(each="connection", moves=[arc(Fragment.MULTI_SET, Fragment.NOTHING)])
    def multi_set_ends(self, s: S, connection: Expr) -> None:
        """The rest of it: both keys are written."""
        s.when(s.at[connection] == Connection.READY, s.held[connection] == Fragment.MULTI_SET)
        s.held[connection] = Fragment.NOTHING
        self.write(s, connection, both=True)
        s.returned[connection] = True

    hang_up = Frames.hang_up.claiming(*Frames.hang_up.arcs, arc(Connection.VALIDATING, Connection.CLOSING))
    clean_up = Frames.clean_up.claiming(*Frames.clean_up.arcs, dropped(Fragment.MULTI_SET))
    finish = Frames.finish.claiming(*Frames.finish.arcs, ALSO_GONE)
    stop = Frames.stop.claiming(*Frames.stop.arcs, ALSO_GONE)


class Torch(Later, edition=Edition.TORCH):
    """torch 2.13: the first packet is not looked at again (S9, S10), and part of a request stays (S17)."""

    def forget(self, s: S, connection: Expr) -> None:
        """It is kept for good."""

    def multi_set_comes(self, s: S, connection: Expr) -> None:
        """It parses from the start with every packet, and carries out what it can (S8)."""
        self.write(s, connection)

    @environment(
        each="connection",
        moves=[arc(Connection.CONNECTING, Connection.CLOSING)],
        cite="TCPStoreLibUvBackend.cpp: validate wants all of it in one read",
    )
    def split_validate_is_refused(self, s: S, connection: Expr) -> None:
        """A VALIDATE comes in two packets; the server closes."""
        s.when(s.at[connection] == Connection.CONNECTING)
        self.close(s, connection, breaks_a_rule=False)

    @environment(
        each="connection",
        moves=[arc(Connection.CONNECTING, Connection.VALIDATING), arc(Fragment.NOTHING, Fragment.STRANGER)],
        cite="TCPStoreLibUvBackend.cpp: the first read is dropped from view, not from the buffer",
    )
    def stranger_is_ignored(self, s: S, connection: Expr) -> None:
        """The first packet is a SET without a VALIDATE: not carried out, but kept."""
        s.when(s.at[connection] == Connection.CONNECTING)
        s.at[connection] = Connection.VALIDATING
        s.held[connection] = Fragment.STRANGER

    @environment(
        each="connection",
        moves=[arc(Connection.VALIDATING, Connection.READY), arc(Fragment.STRANGER, Fragment.NOTHING)],
    )
    def stranger_is_served(self, s: S, connection: Expr) -> None:
        """Another packet: the connection counts as validated, and the first is carried out too."""
        s.when(s.held[connection] == Fragment.STRANGER, s.at[connection] == Connection.VALIDATING)
        s.at[connection] = Connection.READY
        s.held[connection] = Fragment.NOTHING
        self.write(s, connection)

    @environment(each="connection")  # where it changes nothing, it is no step
    def multi_set_goes_on(self, s: S, connection: Expr) -> None:
        """More of it arrives, not the end."""
        s.when(s.at[connection] == Connection.READY, s.held[connection] == Fragment.MULTI_SET)
        self.write(s, connection)

    clean_up = Later.clean_up.claiming(*Later.clean_up.arcs, dropped(Fragment.STRANGER))
    finish = Later.finish.claiming(*Later.finish.arcs, dropped(Fragment.STRANGER, "others"))
    stop = Later.stop.claiming(*Later.stop.arcs, dropped(Fragment.STRANGER, "others"))


class Ours(Later, edition=Edition.TRYSTATE):
    """Ours: a request is read however it is cut, carried out when it is whole, and answered."""

    returns_at_once = False

    @environment(
        each="connection",
        moves=[arc(Connection.CONNECTING, Connection.VALIDATING), arc(Fragment.NOTHING, Fragment.VALIDATE)],
    )
    def begin_to_validate(self, s: S, connection: Expr) -> None:
        """The first packet is part of a VALIDATE."""
        s.when(s.at[connection] == Connection.CONNECTING)
        s.at[connection] = Connection.VALIDATING
        s.held[connection] = Fragment.VALIDATE

    @environment(
        each="connection",
        moves=[arc(Connection.VALIDATING, Connection.READY), arc(Fragment.VALIDATE, Fragment.NOTHING)],
    )
    def end_to_validate(self, s: S, connection: Expr) -> None:
        """The rest of the VALIDATE."""
        s.when(s.at[connection] == Connection.VALIDATING, s.held[connection] == Fragment.VALIDATE)
        s.at[connection] = Connection.READY
        s.held[connection] = Fragment.NOTHING
        s.validated[connection] = True

    @environment(each="connection", moves=[arc(Connection.CONNECTING, Connection.CLOSING)])
    def stranger_is_refused(self, s: S, connection: Expr) -> None:
        """The first packet is no VALIDATE: the connection is closed."""
        s.when(s.at[connection] == Connection.CONNECTING)
        self.close(s, connection, breaks_a_rule=True)

    clean_up = Later.clean_up.claiming(*Later.clean_up.arcs, dropped(Fragment.VALIDATE))
    finish = Later.finish.claiming(*Later.finish.arcs, dropped(Fragment.VALIDATE, "others"))
    stop = Later.stop.claiming(*Later.stop.arcs, dropped(Fragment.VALIDATE, "others"))
