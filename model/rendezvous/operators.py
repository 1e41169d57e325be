"""The operators of the rendezvous as decision tables, in every edition.

In torch's editions each row is one branch of the operator's `__call__` in dynamic_rendezvous.py, in its order. The
systems take their guards from these rows, and the conformance suite compares every row with torch's own operator.
"""

from __future__ import annotations

from ..language import Atom, DecisionTable, row
from .vocabulary import Action, Edition, Raised

CLOSED = Atom("closed", "closed", "the rendezvous is closed")
REDUNDANT = Atom("redundant", "node ∈ R", "the node is on the redundancy list")
COMPLETE = Atom("complete", "complete", "the round is complete")
PARTICIPANT = Atom("participant", "node ∈ P", "the node is a participant")
LATE = Atom("late", "now > deadline", "the operation's deadline has passed")
ROLLBACK = Atom("rollback", "now ≤ deadline + 5 s", "the node may still take its join back")
WAITING = Atom("waiting", "node ∈ W", "the node is on the wait list")
ROOM = Atom("room", "|P| < max", "the round has room")
FITS = Atom("fits", "|P| ≤ max", "the round is not overfull")
QUORUM = Atom("quorum", "|P| ≥ min", "the round has enough participants")
LAST_CALL = Atom("last_call", "last call set", "a deadline for the last call is set")
LAST_CALL_OVER = Atom("last_call_over", "last call over", "the deadline of the last call has passed")
BEAT_DUE = Atom("beat_due", "heartbeat due", "the node's heartbeat is older than the interval")

AGREES = Atom("agrees", "settings agree", "the node has the settings in force, or no settings are in force")
EXPECTED = Atom("expected", "node ∈ E", "the node is a member of the previous round, and expected in this round")
SEAT = Atom("seat", "|P| + |E| < max", "the round has a seat that is neither taken nor kept for a node")
LEASE = Atom("lease", "lease holds", "the node confirmed a heartbeat within the window, by its own clock")
READY = Atom("ready", "last call over, E = ∅", "the last call is over, and no node is expected any more")
DRAINED = Atom("drained", "node ∈ D", "an operator has marked the node, so it leaves")
LISTED = Atom("listed", "node ∈ P ∪ E ∪ W ∪ R", "the shared state lists the node")
SILENT = Atom("silent", "a node is silent", "the heartbeat of a listed node has not changed for the whole window")

_LISTS_DISJOINT = (
    {"participant": True, "waiting": True},
    {"participant": True, "redundant": True},
    {"waiting": True, "redundant": True},
)
_TIME = {"late": False, "rollback": False}  # impossible: the rollback window ends after the deadline

# fmt: off
JOIN_TORCH = DecisionTable(
    "join",
    doc="Become a participant of the next complete round, or wait for one.",
    cite="rendezvous-engine 3.2.4; dynamic_rendezvous.py:_RendezvousJoinOp",
    atoms=(CLOSED, REDUNDANT, COMPLETE, PARTICIPANT, LATE, ROLLBACK, WAITING, ROOM, FITS, QUORUM, LAST_CALL_OVER,
           BEAT_DUE),
    impossible=(*_LISTS_DISJOINT, _TIME, {"room": True, "fits": False}),
    rows=(
        row(Raised.GRACEFUL_EXIT,                closed=True, redundant=True),
        row(Action.ERROR_CLOSED,                 closed=True),
        row(Action.KEEP_ALIVE,                   redundant=True, room=False, fits=True, beat_due=True),
        row(Action.SYNC,                         redundant=True, room=False, fits=True),
        row(Action.REMOVE_FROM_REDUNDANCY_LIST,  redundant=True),
        row(Action.FINISH,                       complete=True, participant=True),
        row(Action.REMOVE_FROM_PARTICIPANTS,     late=True, rollback=True, participant=True),
        row(Action.REMOVE_FROM_WAIT_LIST,        late=True, rollback=True, waiting=True),
        row(Action.ERROR_TIMEOUT,                late=True),
        row(Action.ADD_TO_WAIT_LIST,             complete=True, room=True, waiting=False),
        row(Action.ADD_TO_REDUNDANCY_LIST,       complete=True, room=False, waiting=False),
        row(Action.MARK_RENDEZVOUS_COMPLETE,     complete=False, participant=True, quorum=True, fits=True,
                                                 last_call_over=True),
        row(Action.ADD_TO_PARTICIPANTS,          complete=False, participant=False),
        row(Action.KEEP_ALIVE,                   beat_due=True),
        row(Action.SYNC),
    ),
)

JOIN_SEED = DecisionTable(
    "join",
    doc="Become a participant of the next complete round, or wait for one.",
    cite="rendezvous-engine 3.2.4",
    atoms=(CLOSED, COMPLETE, PARTICIPANT, LATE, ROLLBACK, WAITING, ROOM, QUORUM, LAST_CALL, LAST_CALL_OVER, BEAT_DUE),
    impossible=({"participant": True, "waiting": True}, _TIME, {"last_call": False, "last_call_over": True}),
    rows=(
        row(Action.ERROR_CLOSED,                 closed=True),
        row(Action.FINISH,                       complete=True, participant=True),
        row(Action.REMOVE_FROM_PARTICIPANTS,     late=True, rollback=True, participant=True),
        row(Action.REMOVE_FROM_WAIT_LIST,        late=True, rollback=True, waiting=True),
        row(Action.ERROR_TIMEOUT,                late=True),
        row(Action.ADD_TO_WAIT_LIST,             complete=True, room=True, waiting=False),
        # The article's code compares the deadline without checking that it is set.
        row(Raised.TYPE_ERROR,                   complete=False, participant=True, quorum=True, last_call=False),
        row(Action.MARK_RENDEZVOUS_COMPLETE,     complete=False, participant=True, quorum=True, last_call_over=True),
        row(Action.ADD_TO_PARTICIPANTS,          complete=False, participant=False),
        row(Action.KEEP_ALIVE,                   beat_due=True),
        row(Action.SYNC),
    ),
)

EXIT = DecisionTable(
    "exit",
    doc="Leave the participants before joining again.",
    cite="rendezvous-engine 3.2.3; dynamic_rendezvous.py:_RendezvousExitOp",
    atoms=(PARTICIPANT, LATE),
    rows=(
        row(Action.ERROR_TIMEOUT,                participant=True, late=True),
        row(Action.REMOVE_FROM_PARTICIPANTS,     participant=True),
        row(Action.FINISH),
    ),
)

CLOSE = DecisionTable(
    "close",
    doc="Close the rendezvous for everyone and for good.",
    cite="rendezvous-engine 3.2.2; dynamic_rendezvous.py:_RendezvousCloseOp",
    atoms=(CLOSED, LATE),
    rows=(
        row(Action.FINISH,                       closed=True),
        row(Action.ERROR_TIMEOUT,                late=True),
        row(Action.MARK_RENDEZVOUS_CLOSED),
    ),
)

KEEP_ALIVE = DecisionTable(
    "keep-alive",
    doc="Write a heartbeat when one is due.",
    cite="rendezvous-engine 3.2.1; dynamic_rendezvous.py:_RendezvousKeepAliveOp",
    atoms=(BEAT_DUE, LATE),
    rows=(
        row(Action.ERROR_TIMEOUT,                beat_due=True, late=True),
        row(Action.KEEP_ALIVE,                   beat_due=True),
        row(Action.FINISH),
    ),
)

_OURS = (CLOSED, AGREES, COMPLETE, PARTICIPANT, EXPECTED, WAITING, REDUNDANT, LATE, SEAT, LEASE, READY, BEAT_DUE,
         DRAINED)
_OURS_IMPOSSIBLE = (
    *_LISTS_DISJOINT,
    *({"expected": True, other: True} for other in ("participant", "waiting", "redundant", "complete", "ready")),
    *({"agrees": False, listed: True} for listed in ("participant", "expected", "waiting", "redundant")),
    {"complete": True, "ready": True}, {"lease": False, "beat_due": False},
    {"late": True, "redundant": True},  # a spare has no deadline
    # A node that is not listed has no lease to lose.
    {"lease": False, "participant": False, "expected": False, "waiting": False, "redundant": False},
    # Only listed nodes are marked, and a marked participant loses its place in the round.
    {"drained": True, "participant": True},
    {"drained": True, "expected": False, "waiting": False, "redundant": False},
)
JOIN_TRYSTATE = DecisionTable(
    "join",
    doc="Become a member of the next complete round, or wait for one.",
    cite="docs/rendezvous.md",
    atoms=_OURS,
    impossible=_OURS_IMPOSSIBLE,
    rows=(
        row(Action.ERROR_CLOSED,                 closed=True),
        row(Action.ERROR_SETTINGS,               agrees=False),
        row(Action.WITHDRAW,                     drained=True),
        row(Action.KEEP_ALIVE,                   lease=False),
        row(Action.FINISH,                       complete=True, participant=True),
        row(Action.WITHDRAW,                     late=True, participant=True),
        row(Action.WITHDRAW,                     late=True, expected=True),
        row(Action.WITHDRAW,                     late=True, waiting=True),
        row(Action.ERROR_TIMEOUT,                late=True),
        row(Action.ADD_TO_WAIT_LIST,             complete=True, seat=True, waiting=False),
        row(Action.MARK_RENDEZVOUS_COMPLETE,     participant=True, ready=True),
        row(Action.ADD_TO_PARTICIPANTS,          expected=True),
        row(Action.ADD_TO_PARTICIPANTS,          complete=False, participant=False, seat=True),
        row(Action.ADD_TO_REDUNDANCY_LIST,       participant=False, seat=False, redundant=False),
        row(Action.KEEP_ALIVE,                   beat_due=True),
        row(Action.SYNC),
    ),
)

EXIT_TRYSTATE = DecisionTable(
    "exit",
    doc="Replace the complete round that has the node as a member, before the node joins again.",
    cite="docs/rendezvous.md",
    atoms=(CLOSED, COMPLETE, PARTICIPANT),
    rows=(
        row(Action.REPLACE_ROUND,                closed=False, complete=True, participant=True),
        row(Action.FINISH),
    ),
)

EXPEL_TRYSTATE = DecisionTable(
    "expel",
    doc="Remove the silent nodes from the lists; replace a complete round that loses a member.",
    cite="docs/rendezvous.md",
    atoms=(CLOSED, SILENT),
    rows=(
        row(Action.EXPEL,                        closed=False, silent=True),
        row(Action.FINISH),
    ),
)

CLOSE_TRYSTATE = DecisionTable(
    "close",
    doc="Close the rendezvous for everyone and for good; only a member may.",
    cite="docs/rendezvous.md",
    atoms=(CLOSED, PARTICIPANT, EXPECTED),
    impossible=({"participant": True, "expected": True},),
    rows=(
        row(Action.FINISH,                       closed=True),
        row(Action.MARK_RENDEZVOUS_CLOSED,       participant=True),
        row(Action.MARK_RENDEZVOUS_CLOSED,       expected=True),
        row(Action.FINISH),
    ),
)

KEEP_ALIVE_TRYSTATE = DecisionTable(
    "keep-alive",
    doc="Increment the heartbeat when it is due, and find out whether the node is still listed.",
    cite="docs/rendezvous.md",
    atoms=(LISTED, BEAT_DUE),
    rows=(
        row(Action.KEEP_ALIVE,                   listed=True, beat_due=True),
        row(Action.FINISH),
    ),
)
# fmt: on

OPERATORS: dict[Edition, dict[str, DecisionTable]] = {
    Edition.SEED: {"join": JOIN_SEED, "exit": EXIT, "close": CLOSE, "keep-alive": KEEP_ALIVE},
    Edition.TORCH: {"join": JOIN_TORCH, "exit": EXIT, "close": CLOSE, "keep-alive": KEEP_ALIVE},
    Edition.TORCH_2_12: {"join": JOIN_TORCH, "exit": EXIT, "close": CLOSE, "keep-alive": KEEP_ALIVE},
    Edition.TRYSTATE: {
        "join": JOIN_TRYSTATE,
        "exit": EXIT_TRYSTATE,
        "expel": EXPEL_TRYSTATE,
        "close": CLOSE_TRYSTATE,
        "keep-alive": KEEP_ALIVE_TRYSTATE,
    },
}
