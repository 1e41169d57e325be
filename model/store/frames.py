"""Connections and their frames: the connections that are served, and how a request in pieces is carried out.

Each connection writes its own value (its number + 1; 0 is absent). A request is one packet, or a beginning, perhaps a
middle, and an end; a packet is read as a whole. A client's steps are environment: it may stop at any moment, and a
server must not depend on it. The server's steps with complete requests are protocol and fair. A server that is ordered
to end does so between two requests, closes all connections, and carries out no more requests; a server that crashes
does nothing. The properties judge only the server's own actions, in `write`, `close` and `clean_up`, in every edition.
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
    """A fragment is dropped with its connection."""
    return may(fragment, Fragment.NOTHING, of=of)


GONE = (
    *arc((Connection.CONNECTING, Connection.READY, Connection.CLOSING), Connection.CLOSED, of="others"),
    *dropped(Fragment.SET, "others"),
)  # every connection ends with its server


class Frames(System):
    """A server, its connections, two keys, and requests in pieces."""

    title = "Connections and frames"
    Edition = Edition
    returns_at_once: ClassVar[bool] = True  # a set returns when it is sent, not when it is answered

    connection = index(2)
    at = choice(Connection, per="connection", initial=Connection.CLOSED)
    validated = flag(per="connection", doc="sent a VALIDATE")
    held = choice(Fragment, per="connection", doc="the part of an unfinished request")
    asked = flag(per="connection", doc="a complete SET has arrived and is not served")
    first = integer(0, "connection", doc="the value of the first key: connection + 1, or 0 for none")
    second = integer(0, "connection", doc="the value of the second key")
    done = flag(per="connection", doc="its last request was carried out, completely or in part")
    returned = flag(per="connection", doc="its last set has returned")
    shown = flag(doc="a request was carried out before it was complete")
    undone = flag(doc="a request was carried out again, over a later write of another connection")
    intruded = flag(doc="a connection that never validated was served")
    wronged = flag(doc="the server closed a connection that broke no rule")
    left_over = flag(doc="the server still holds a fragment of a closed connection")
    serving = choice(Serving)

    def lifelines(self) -> Lifelines:
        """The server reads and writes; it has the pieces of a request as soon as they arrive."""
        truth = "done shown undone intruded wronged left_over"
        return served("server", "at validated held serve clean_up", requests="asked", here=truth)

    server = machine_of(serving, "The server.")
    connection_state = machine_of(at, "The server's view of a connection.")
    fragment = machine_of(held, "The part of a connection's unfinished request that the server holds.")

    # ---- helpers

    def is_free(self, s: S) -> Any:
        """The server can read now."""
        return not_(False)

    def begin(self, s: S, connection: Expr) -> None:
        """A client begins a request, which has not returned."""
        reset(s.done, s.returned, at=connection)

    def write(self, s: S, connection: Expr, *, both: bool = False) -> None:
        """The server carries out a connection's request, even if it holds only a part of it."""
        own = ord_(connection) + 1
        s.intruded = s.intruded | ~s.validated[connection]
        s.shown = s.shown | (s.held[connection] != Fragment.NOTHING)
        s.undone = s.undone | (s.done[connection] & (s.first != own))
        s.done[connection] = True
        s.first = own
        if both:
            s.second = own

    def close(self, s: S, connection: Expr, *, breaks_a_rule: bool) -> None:
        """The server closes a connection because of a packet that the peer sent."""
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

    @environment(moves=[arc(Connection.CLOSED, Connection.CONNECTING)])
    def connect(self, s: S, connection: Expr) -> None:
        """A peer connects."""
        move(s.at, Connection.CLOSED, Connection.CONNECTING, s.serving == Serving.RUNNING, at=connection)

    # ---- requests

    @environment()
    def ask(self, s: S, connection: Expr) -> None:
        """A complete SET of the first key arrives."""
        s.when(s.at[connection] == Connection.READY, s.held[connection] == Fragment.NOTHING, ~s.asked[connection])
        self.begin(s, connection)
        s.asked[connection] = True
        s.returned[connection] = self.returns_at_once

    @transition(cite="ddp-initialisation 4.2.6: setHandler")
    def serve(self, s: S, connection: Expr) -> None:
        """The server carries out the SET; ours also answers it."""
        move(s.asked, True, False, s.at[connection] == Connection.READY, self.is_free(s), at=connection)
        self.write(s, connection)
        s.returned[connection] = True

    @environment(moves=[arc(Fragment.NOTHING, Fragment.SET)], cite="ddp-initialisation 4.2.6: recvVector blocks")
    def set_begins(self, s: S, connection: Expr) -> None:
        """The first part of a SET arrives."""
        self.between_requests(s, connection)
        self.begin(s, connection)
        s.held[connection] = Fragment.SET

    @environment(moves=[arc(Fragment.SET, Fragment.NOTHING)])
    def set_ends(self, s: S, connection: Expr) -> None:
        """The rest of the SET arrives, and the SET is carried out."""
        move(s.held, Fragment.SET, Fragment.NOTHING, s.at[connection] == Connection.READY, at=connection)
        self.write(s, connection)
        s.returned[connection] = True

    @environment(
        moves=[arc(Connection.READY, Connection.CLOSING)],
        cite="ddp-initialisation 4.2.6.4: query throws at an unexpected query type, and queryFds closes",
    )
    def ask_the_unknown(self, s: S, connection: Expr) -> None:
        """A request of an unknown type arrives: the connection is closed."""
        self.between_requests(s, connection)
        self.begin(s, connection)
        self.close(s, connection, breaks_a_rule=True)

    # ---- the end

    @environment(moves=[arc((Connection.CONNECTING, Connection.READY), Connection.CLOSING)])
    def hang_up(self, s: S, connection: Expr) -> None:
        """The peer closes or dies, at any moment."""
        move(s.at, OPEN, Connection.CLOSING, at=connection)
        s.asked[connection] = False
        self.begin(s, connection)  # no client is left that could have returned

    @transition(
        moves=[arc(Connection.CLOSING, Connection.CLOSED), may(Fragment.SET, Fragment.NOTHING)],
        cite="ddp-initialisation 4.2.6.2: queryFds",
    )
    def clean_up(self, s: S, connection: Expr) -> None:
        """The server removes its data of the connection."""
        own = s.held[connection] != Fragment.NOTHING
        move(s.at, Connection.CLOSING, Connection.CLOSED, self.is_free(s) | own, at=connection)
        self.forget(s, connection)
        s.left_over = s.left_over | (s.held[connection] != Fragment.NOTHING)
        s.held[connection] = Fragment.NOTHING  # this field belongs to the next connection now
        s.validated[connection] = False

    @environment(
        switch="end",
        moves=[arc(Serving.RUNNING, Serving.ENDING)],
        cite="ddp-initialisation 4.2.5.2: the write end of the control pipe is closed",
    )
    def end(self, s: S) -> None:
        """The owner of the server orders it to end."""
        s.when(s.serving == Serving.RUNNING)
        s.serving = Serving.ENDING

    @transition(
        moves=[arc(Serving.ENDING, Serving.ENDED), GONE],
        cite="ddp-initialisation 4.2.6.1: POLLHUP on the control pipe: finished, before queryFds",
    )
    def finish(self, s: S) -> None:
        """The loop sees the order: the server carries out no more requests and closes all connections."""
        s.when(s.serving == Serving.ENDING, self.is_free(s))
        s.serving = Serving.ENDED
        self.let_all_go(s)

    @fault(
        "stop",
        cite="TCPStore.cpp: set sends and returns",
        moves=[arc((Serving.RUNNING, Serving.ENDING), Serving.DEAD), GONE],
    )
    def stop(self, s: S) -> None:
        """The server dies, and the requests that it has not carried out are lost."""
        s.when(~s.serving.isin(OVER))
        s.serving = Serving.DEAD
        self.let_all_go(s)

    def let_all_go(self, s: S) -> None:
        """Every connection ends with the server, and requests that were not carried out are lost."""
        reset(s.at, s.held, s.asked, s.validated)

    # ---- what must hold

    @terminal
    def at_rest(self, s: S) -> Any:
        """The server has ended, and no peer can connect."""
        return s.serving.isin(OVER)

    @sometimes()
    def both_are_ready(self, s: S) -> Any:
        """Every connection is ready."""
        return s.at.all(Connection.READY)

    @sometimes(editions=LATER)
    def both_keys_are_written(self, s: S) -> Any:
        """A MULTI_SET was carried out, and a SET after it."""
        return (s.second != 0) & (s.first != 0) & (s.first != s.second)

    @sometimes()
    def an_upload_was_aborted(self, s: S) -> Any:
        """A connection closed after half a request."""
        return any_((s.at[j] == Connection.CLOSING) & (s.held[j] == Fragment.SET) for j in s.connection)

    @sometimes(needs="stop")
    def the_server_stops(self, s: S) -> Any:
        """The server has died after it carried out a set."""
        return (s.serving == Serving.DEAD) & (s.first != 0)

    @sometimes(needs="end")
    def the_server_ends(self, s: S) -> Any:
        """The server has ended in order after it carried out a set."""
        return (s.serving == Serving.ENDED) & (s.first != 0)

    @sometimes()
    def a_set_returns(self, s: S) -> Any:
        """A set has returned and was carried out."""
        return any_(s.returned[j] & s.done[j] for j in s.connection)

    @always(witness="a_set_returns")
    def what_returned_has_happened(self, s: S) -> Any:
        """A set that has returned was carried out, or the server still has it."""
        return all_(~s.returned[j] | s.done[j] | s.asked[j] for j in s.connection)

    @always(witness="both_keys_are_written", editions=LATER)
    def requests_are_whole(self, s: S) -> Any:
        """A request is carried out only after all of it has arrived."""
        return ~s.shown

    @always(witness="both_keys_are_written", editions=LATER)
    def nothing_is_undone(self, s: S) -> Any:
        """A request is carried out once, and does not overwrite a later write of another connection."""
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
        """The server keeps nothing of a closed connection."""
        gone = all_(
            (s.at[j] != Connection.CLOSED) | ((s.held[j] == Fragment.NOTHING) & ~s.asked[j]) for j in s.connection
        )
        return gone & ~s.left_over

    @always(witness="the_server_ends", needs="end")
    def an_end_leaves_nothing(self, s: S) -> Any:
        """A server that has ended in order holds no connection and no part of a request."""
        closed = all_((s.at[j] == Connection.CLOSED) & (s.held[j] == Fragment.NOTHING) for j in s.connection)
        return (s.serving != Serving.ENDED) | closed

    @leads_to(needs="end")
    def an_end_is_reached(self, s: S) -> Any:
        """A server that is ordered to end does so, whatever its clients leave undone."""
        return s.serving == Serving.ENDING, s.serving.isin(OVER)

    @leads_to()
    def requests_are_served(self, s: S, connection: Expr) -> Any:
        """A complete request is served, whatever other connections do or leave undone."""
        asked = s.asked[connection] & (s.at[connection] == Connection.READY)
        return asked, ~s.asked[connection]


# ---- the editions


class Seed(Frames, edition=Edition.SEED):
    """torch 1.9: no VALIDATE; the daemon reads one request to its end before it reads another (S23)."""

    def is_free(self, s: S) -> Any:
        return not_(any_(held != Fragment.NOTHING for held in s.held))

    @environment(moves=[arc(Connection.CONNECTING, Connection.READY)], cite="ddp-initialisation 4.2.6")
    def speak_at_once(self, s: S, connection: Expr) -> None:
        """This release has no VALIDATE: any first byte is taken for a query."""
        move(s.at, Connection.CONNECTING, Connection.READY, at=connection)

    @fault(
        "revents",
        moves=[arc((Serving.RUNNING, Serving.ENDING), Serving.DEAD), GONE],
        cite="ddp-initialisation 4.2.6.1: throw std::system_error, Unexpected poll revent",
    )
    def throw(self, s: S) -> None:
        """poll reports an event of the listening socket other than a new connection: the thread throws."""
        s.when(~s.serving.isin(OVER), self.is_free(s))
        s.serving = Serving.DEAD
        self.let_all_go(s)


ALSO_GONE = (
    *arc(Connection.VALIDATING, Connection.CLOSED, of="others"), *dropped(Fragment.MULTI_SET, "others")
)  # fmt: skip


class Later(Frames):
    """torch since 2.0: a connection begins with VALIDATE, and a MULTI_SET may arrive in pieces."""

    @environment(moves=[arc(Connection.CONNECTING, Connection.READY)], cite="TCPStoreLibUvBackend.cpp: validate")
    def validate(self, s: S, connection: Expr) -> None:
        """The first packet is a VALIDATE with the right magic."""
        move(s.at, Connection.CONNECTING, Connection.READY, at=connection)
        s.validated[connection] = True

    @environment(
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

    @environment(moves=[arc(Fragment.MULTI_SET, Fragment.NOTHING)])
    def multi_set_ends(self, s: S, connection: Expr) -> None:
        """The rest of the MULTI_SET arrives, and both keys are written."""
        move(s.held, Fragment.MULTI_SET, Fragment.NOTHING, s.at[connection] == Connection.READY, at=connection)
        self.write(s, connection, both=True)
        s.returned[connection] = True

    hang_up = Frames.hang_up.also(arc(Connection.VALIDATING, Connection.CLOSING))
    clean_up = Frames.clean_up.also(dropped(Fragment.MULTI_SET))
    finish = Frames.finish.also(ALSO_GONE)
    stop = Frames.stop.also(ALSO_GONE)


class Torch(Later, edition=Edition.TORCH):
    """torch 2.13: the first packet is not checked again (S9, S10), and part of a request is kept (S17)."""

    def forget(self, s: S, connection: Expr) -> None:
        """The server keeps the part for good."""

    def multi_set_comes(self, s: S, connection: Expr) -> None:
        """The server parses from the start with every packet and writes the keys that it can read (S8)."""
        self.write(s, connection)

    @environment(
        moves=[arc(Connection.CONNECTING, Connection.CLOSING)],
        cite="TCPStoreLibUvBackend.cpp: validate wants all of it in one read",
    )
    def split_validate_is_refused(self, s: S, connection: Expr) -> None:
        """A VALIDATE arrives in two packets, and the server closes the connection."""
        s.when(s.at[connection] == Connection.CONNECTING)
        self.close(s, connection, breaks_a_rule=False)

    @environment(
        moves=[arc(Connection.CONNECTING, Connection.VALIDATING), arc(Fragment.NOTHING, Fragment.STRANGER)],
        cite="TCPStoreLibUvBackend.cpp: the first read is dropped from view, not from the buffer",
    )
    def stranger_is_ignored(self, s: S, connection: Expr) -> None:
        """The first packet is a SET without a VALIDATE: it is not carried out but kept."""
        move(s.at, Connection.CONNECTING, Connection.VALIDATING, at=connection)
        s.held[connection] = Fragment.STRANGER

    @environment(moves=[arc(Connection.VALIDATING, Connection.READY), arc(Fragment.STRANGER, Fragment.NOTHING)])
    def stranger_is_served(self, s: S, connection: Expr) -> None:
        """Another packet arrives: the connection counts as validated, and the first packet is carried out too."""
        move(s.held, Fragment.STRANGER, Fragment.NOTHING, s.at[connection] == Connection.VALIDATING, at=connection)
        s.at[connection] = Connection.READY
        self.write(s, connection)

    @environment()  # not a step where it changes nothing
    def multi_set_goes_on(self, s: S, connection: Expr) -> None:
        """More of the MULTI_SET arrives, but not its end."""
        s.when(s.at[connection] == Connection.READY, s.held[connection] == Fragment.MULTI_SET)
        self.write(s, connection)

    clean_up = Later.clean_up.also(dropped(Fragment.STRANGER))
    finish = Later.finish.also(dropped(Fragment.STRANGER, "others"))
    stop = Later.stop.also(dropped(Fragment.STRANGER, "others"))


class Ours(Later, edition=Edition.TRYSTATE):
    """Ours: a request may arrive in any pieces; it is carried out when it is complete, and answered."""

    returns_at_once = False

    @environment(moves=[arc(Connection.CONNECTING, Connection.VALIDATING), arc(Fragment.NOTHING, Fragment.VALIDATE)])
    def begin_to_validate(self, s: S, connection: Expr) -> None:
        """The first packet is part of a VALIDATE."""
        move(s.at, Connection.CONNECTING, Connection.VALIDATING, at=connection)
        s.held[connection] = Fragment.VALIDATE

    @environment(moves=[arc(Connection.VALIDATING, Connection.READY), arc(Fragment.VALIDATE, Fragment.NOTHING)])
    def end_to_validate(self, s: S, connection: Expr) -> None:
        """The rest of the VALIDATE arrives."""
        move(s.at, Connection.VALIDATING, Connection.READY, s.held[connection] == Fragment.VALIDATE, at=connection)
        s.held[connection] = Fragment.NOTHING
        s.validated[connection] = True

    @environment(moves=[arc(Connection.CONNECTING, Connection.CLOSING)])
    def stranger_is_refused(self, s: S, connection: Expr) -> None:
        """The first packet is not a VALIDATE: the connection is closed."""
        s.when(s.at[connection] == Connection.CONNECTING)
        self.close(s, connection, breaks_a_rule=True)

    clean_up = Later.clean_up.also(dropped(Fragment.VALIDATE))
    finish = Later.finish.also(dropped(Fragment.VALIDATE, "others"))
    stop = Later.stop.also(dropped(Fragment.VALIDATE, "others"))
