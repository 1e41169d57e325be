"""The runs that the articles show in pictures: a set, sets of a watched key, and the loop of the master."""

from __future__ import annotations

from ..checker.expectations import Run
from ..checker.walks import Taken, Walk
from .frames import Frames
from .handshake import Handshake, Protection
from .vocabulary import Edition
from .watches import Watches

ONE = Run(Watches, {"client": 1, "key": 1, "writes": 1}, Edition.SEED)
WORKERS = Run(Watches, {"client": 2, "key": 1, "writes": 2}, Edition.SEED)
PLAIN, BOUND = (
    Run(Handshake, {"client": 1, "server": 1, "frames": 2}, edition) for edition in (Protection.PLAIN, Protection.BOUND)
)
TWO = Run(Frames, {"connection": 2}, Edition.SEED, faults=("end",))

SET = Walk(
    "set-a-key", "A worker sets a key (ddp-initialisation 4.2.2.2).", ONE,
    (Taken("ask(0, 0)", "the worker sends SET, the key and the value"),
     Taken("set_or_add(0, 0)", "the master reads them and writes its map")),
    witness="a_change_is_made",
)  # fmt: skip
SET_AND_WATCH_KEY = Walk(
    "set-and-watch-key", "A worker watches a key and sets it (ddp-initialisation 4.2.2.3).", ONE,
    (Taken("watch_key(0, 0)", "the worker records the callback and sends the request", (1, 2)),
     Taken("register(0, 0)", "the master registers the connection for the key", (3,)),
     Taken("return_registered(0)", "watchKey returns"),
     Taken("ask(0, 0)", "the worker sets the key", (4,)),
     Taken("set_or_add(0, 0)", "the master writes it and sends an event on each connection that watches", (5,)),
     Taken("run_callback(0)", "the thread of the worker runs the callback", (6,)),
     Taken("return_callback(0)")),
    witness="a_watch_returns",
)  # fmt: skip
CALLBACK = Walk(
    "set-and-callback", "A worker sets a key, and another gets an event (ddp-initialisation 4.2.7).", WORKERS,
    (Taken("ask(1, 0)", "set: storeSocket_ of the worker, MasterPort of the master", (1,)),
     Taken("set_or_add(1, 0)", "the master writes tcpStore_", (1,)),
     Taken("watch_key(0, 0)", "listenSocket_ takes the request; keyToCallbacks_ has the callback", (2, 3)),
     Taken("register(0, 0)", "the master records watchedSockets_[key] = socket"),
     Taken("return_registered(0)", "watchKey returns"),
     Taken("ask(1, 0)", "the key that is watched is set"),
     Taken("set_or_add(1, 0)", "the master writes it and sends an event to watchedSockets_[key]", (4,)),
     Taken("run_callback(0)", "TCPStoreWorkerDaemon reads it and runs the callback of the key")),
    witness="a_callback_runs",
)  # fmt: skip
MASTER_RUNS = Walk(
    "master-runs", "The daemon of the master polls, accepts and serves (ddp-initialisation 4.2.6.1).", TWO,
    (Taken("connect(0)", "poll: the listening socket has POLLIN"),
     Taken("speak_at_once(0)", "accept: from now on the socket is polled too"),
     Taken("connect(1)", "another worker connects"),
     Taken("speak_at_once(1)", "accept"),
     Taken("set_begins(1)", "queryFds: a part of a request has arrived; the read blocks the loop"),
     Taken("ask(0)", "meanwhile a complete request arrives"),
     Taken("set_ends(1)", "the rest arrives: the request is carried out"),
     Taken("serve(0)", "queryFds: the complete request is read and carried out"),
     Taken("hang_up(0)", "poll: the socket has POLLIN, and the read fails"),
     Taken("clean_up(0)", "queryFds: the socket is closed and no longer polled"),
     Taken("end", "the owner closes the control pipe"),
     Taken("finish", "poll: the control pipe has POLLHUP, and the loop ends")),
    witness="the_server_ends",
)  # fmt: skip
RELAY = Walk(
    "relay", "A relay delivers both proofs, and then a forged frame.", PLAIN,
    (Taken("answer_challenge(0, 0)", "the relay delivers the server's nonce; the client answers with a proof"),
     Taken("admit(0, 0)", "the relay delivers both; the server admits the client"),
     Taken("accept(0, 0)", "the relay delivers the server's proof; the client accepts the server"),
     Taken("forge(0)", "no frame is bound to the proofs: the server takes the relay's")),
    witness="a_forged_frame_is_taken",
)  # fmt: skip
BOUND_FRAMES = Walk(
    "bound-frames", "A server takes the frames of its client in their order.", BOUND,
    (Taken("answer_challenge(0, 0)"), Taken("admit(0, 0)"), Taken("accept(0, 0)", "both have the same two nonces"),
     Taken("send(0)", "the first frame, with a MAC over its number"), Taken("send(0)", "the second"),
     Taken("take(0, 0)", "the first one is valid, once"), Taken("pick_the_next"),
     Taken("take(0, 0)", "then the second")),
    witness="all_is_taken",
)  # fmt: skip
WALKS = (SET, SET_AND_WATCH_KEY, CALLBACK, MASTER_RUNS, RELAY, BOUND_FRAMES)
