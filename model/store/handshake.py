"""The proof of a secret between clients and servers, when an adversary has the wire.

Theory of operation. Dolev and Yao's adversary reads every message, drops, repeats and reorders messages, and delivers
each to any session. It has no secret, so it cannot make a proof or the MAC of a frame; it can deliver those that
honest sides have made. A nonce is the session that has made it. A proof is a term over both nonces: a server admits a
client whose proof is over the server's own nonce and over the nonce that comes with the proof. A client accepts a
server whose proof is over the nonces that the client has received and made. RPC has the same two terms; there the
server's proof comes first.

The editions differ in what follows the proofs. PLAIN: nothing is bound to them, so a relay that delivers the proofs
unchanged may then forge frames. BOUND: each frame has a MAC over its number, with a key that follows from both nonces.
TLS: a channel between one client and one server that an adversary cannot read or write; the proofs are within it. So
the adversary has no certificate that is valid for the server: the proofs of a store would not exclude its owner.

Abstractions. Frames go from clients to servers; the other direction has its own key and is the same. Nonces never
repeat, and neither the MAC nor TLS is broken. Dropping a message is not a step: the adversary never delivers it. Bytes
that a relay adds behind a proof end the connection, so they are not a step either.
"""

from __future__ import annotations

import enum

from ..language import *
from ..language.expressions import TRUE

S = SymbolicState


class Protection(enum.Enum):
    """The protection of the frames after the proofs."""

    PLAIN = "nothing"
    BOUND = "a MAC of each frame, whose key follows from both nonces"
    TLS = "a channel that only its two ends can read and write"


class Stage(enum.Enum):
    """A client's session."""

    WAITING = "has no challenge"
    PROVED = "has answered a challenge with its proof"
    ACCEPTED = "has accepted the server's proof"


class Handshake(System, deadlock=False):
    """Sessions of clients and of servers that have one secret, and the adversary between them."""

    title = "The proof of a secret, with an adversary"
    Edition = Protection

    client = index(2)
    server = index(2)
    frames = constant(2, "frames of a client, and frames that a server takes")

    stage = choice(Stage, per="client")
    answered = flag(per=("client", "server"), doc="the client has answered the nonce of this server")
    admitted = flag(per="server", doc="it has accepted a proof, and sent its own")
    partner = flag(per=("client", "server"), doc="the nonce that came with that proof is the client's")
    sent = integer(0, "frames", per="client")
    taken = integer(0, "frames", per="server")
    fooled = flag(per="server", doc="it has taken a frame that is not the next one of its client")
    picked = integer(1, "frames", doc="the number of the frame that the adversary delivers next")
    read = flag(doc="the adversary has read a frame")

    session = machine_of(stage, "A client's session.")

    def lifelines(self) -> Lifelines:
        """Each server, and the clients with the adversary, who reads what they send."""
        places = dict.fromkeys(("answered", "answer_challenge", "accept"))
        return Lifelines("clients", places, homes={"client": [None] * self.sizes["client"]}, members="server")

    # ---- what the proofs and the frames cover

    def proves(self, s: S, client: Expr, server: Expr) -> Condition:
        """The client's proof is over the nonce of this server."""
        return s.answered[client, server]

    def answers(self, s: S, client: Expr, server: Expr) -> Condition:
        """The server's proof is over the nonce of this client, and over the nonce that the client has received."""
        return s.partner[client, server] & s.answered[client, server]

    def reaches(self, s: S, client: Expr, server: Expr) -> Condition:
        """The adversary can deliver this server's nonce to this client."""
        return s.stage[client] == Stage.WAITING

    def valid(self, s: S, client: Expr, server: Expr, following: Condition) -> Condition:
        """The server takes this frame of this client. `following`: it has the number after the last one."""
        return s.partner[client, server] & s.answered[client, server] & following

    # ---- the proofs

    @transition(moves=[arc(Stage.WAITING, Stage.PROVED)])
    def answer_challenge(self, s: S, client: Expr, server: Expr) -> None:
        """A client gets the nonce of a server, and answers with its own nonce and its proof."""
        s.when(self.reaches(s, client, server))
        s.stage[client] = Stage.PROVED
        s.answered[client, server] = True

    @transition()
    def admit(self, s: S, client: Expr, server: Expr) -> None:
        """A server gets the nonce and the proof of a client, admits the client and answers with its own proof."""
        s.when(~s.admitted[server], s.stage[client] != Stage.WAITING, self.proves(s, client, server))
        s.admitted[server] = True
        s.partner[client, server] = True

    @transition(moves=[arc(Stage.PROVED, Stage.ACCEPTED)])
    def accept(self, s: S, client: Expr, server: Expr) -> None:
        """A client gets the proof of a server, and accepts it."""
        s.when(s.admitted[server], self.answers(s, client, server))
        move(s.stage, Stage.PROVED, Stage.ACCEPTED, at=client)

    # ---- the frames

    @transition()
    def send(self, s: S, client: Expr) -> None:
        """A client sends a frame to the server that it has accepted."""
        s.when(s.stage[client] == Stage.ACCEPTED, s.sent[client] < self.frames)
        s.sent[client] += 1

    @transition()
    def take(self, s: S, client: Expr, server: Expr) -> None:
        """A server gets a frame of some client: the next one, one that it has had, or a later one."""
        following = s.picked == s.taken[server] + 1
        s.when(s.admitted[server], s.taken[server] < self.frames, s.picked <= s.sent[client])
        s.when(self.valid(s, client, server, following))
        s.fooled[server] = s.fooled[server] | ~(following & s.partner[client, server])
        s.taken[server] += 1

    @environment()
    def pick_the_next(self, s: S) -> None:
        """The adversary turns to the next frame."""
        s.when(s.picked < self.frames)
        s.picked += 1

    @environment()
    def pick_the_first(self, s: S) -> None:
        """The adversary turns to the first frame again."""
        s.when(s.picked > 1)
        s.picked = 1

    # ---- what must hold

    @sometimes()
    def both_accept(self, s: S) -> Condition:
        """Two pairs of sessions have accepted each other."""
        return s.stage.all(Stage.ACCEPTED) & s.admitted.all()

    @sometimes()
    def all_is_taken(self, s: S) -> Condition:
        """Some server has taken the last frame of its client."""
        return any_(x == self.frames for x in s.taken)

    @always(witness="both_accept")
    def admitted_clients_have_proved(self, s: S) -> Condition:
        """A client that a server has admitted has answered this server, with the nonce that the server has."""
        known = all_(implies(s.partner[c, j], s.admitted[j] & s.answered[c, j]) for c in s.client for j in s.server)
        return known & all_(implies(s.admitted[j], any_(s.partner[c, j] for c in s.client)) for j in s.server)

    @always(witness="both_accept")
    def a_client_answers_one_challenge(self, s: S) -> Condition:
        """A session of a client makes one proof."""
        return all_(
            implies(s.answered[c, i], s.stage[c] != Stage.WAITING)
            & implies(s.answered[c, i] & s.answered[c, j], i == j)
            for c in s.client
            for i in s.server
            for j in s.server
        )

    @always(witness="both_accept")
    def a_proof_is_accepted_once(self, s: S) -> Condition:
        """No proof admits a client at two sessions of servers."""
        return all_(
            implies(s.partner[c, i] & s.partner[c, j], i == j) for c in s.client for i in s.server for j in s.server
        )

    @always(witness="both_accept")
    def accepted_servers_have_proved(self, s: S) -> Condition:
        """A server that a client has accepted has admitted it, so both have the same nonces and the same key."""
        return all_(
            implies(
                s.stage[c] == Stage.ACCEPTED,
                any_(s.admitted[j] & s.answered[c, j] & s.partner[c, j] for j in s.server),
            )
            for c in s.client
        )

    @always(witness="all_is_taken", editions=[Protection.BOUND, Protection.TLS])
    def each_frame_is_the_clients_next(self, s: S) -> Condition:
        """A server takes only the frames of its client, in their order, each once."""
        return ~s.fooled.any()

    @always(witness="all_is_taken", editions=[Protection.TLS])
    def nothing_is_read(self, s: S) -> Condition:
        """The adversary reads no frame."""
        return ~s.read


# ---- the editions


class Bound(Handshake, edition=Protection.BOUND):
    """Each frame has a MAC. The adversary reads frames."""

    @environment(moves=[arc(Stage.WAITING, Stage.PROVED)])
    def challenge_falsely(self, s: S, client: Expr) -> None:
        """A client gets a nonce that the adversary has made, and answers it."""
        s.when(s.stage[client] == Stage.WAITING)
        s.stage[client] = Stage.PROVED

    @environment()
    def listen(self, s: S) -> None:
        """The adversary reads a frame."""
        s.when(any_(x > 0 for x in s.sent))
        s.read = True

    @sometimes()
    def a_false_challenge_is_answered(self, s: S) -> Condition:
        """A client has proved itself to the adversary, which cannot use the proof."""
        return any_((s.stage[c] == Stage.PROVED) & ~any_(s.answered[c, j] for j in s.server) for c in s.client)


class Plain(Bound, edition=Protection.PLAIN):
    """A relay delivers the proofs, and then its own frames."""

    def valid(self, s: S, client: Expr, server: Expr, following: Condition) -> Condition:
        return TRUE

    @environment()
    def forge(self, s: S, server: Expr) -> None:
        """A server that has admitted a client takes a frame that the adversary has made."""
        s.when(s.admitted[server], s.taken[server] < self.frames)
        s.fooled[server] = True
        s.taken[server] += 1

    @sometimes()
    def a_forged_frame_is_taken(self, s: S) -> Condition:
        """Client and server have accepted each other, and the server takes another frame than the client has sent."""
        return any_(s.fooled[j] & s.partner[c, j] & (s.stage[c] == Stage.ACCEPTED) for j in s.server for c in s.client)


class Tls(Handshake, edition=Protection.TLS):
    """A server's session has one channel: no other client gets its nonce."""

    def reaches(self, s: S, client: Expr, server: Expr) -> Condition:
        return super().reaches(s, client, server) & ~any_(s.answered[c, server] for c in s.client)
