"""The runs that the articles show in pictures: a set, a set of a key that is watched, and the loop of the master."""

from __future__ import annotations

from ..checker.expectations import Run
from ..checker.walks import Taken, Walk
from .frames import Frames
from .vocabulary import Edition
from .watches import Watches

ONE = Run(Watches, {"client": 1, "key": 1, "writes": 1}, Edition.SEED)
TWO = Run(Frames, {"connection": 2}, Edition.SEED, faults=("end",))

SET = Walk(
    "set-a-key", "A worker sets a key (ddp-initialisation 4.2.2.2).", ONE,
    (Taken("ask(0, 0)", "the worker sends SET, the key and the value"),
     Taken("set_or_add(0, 0)", "the master reads them, and writes its map")),
)  # fmt: skip
SET_AND_WATCH_KEY = Walk(
    "set-and-watch-key", "A worker watches a key and sets it (ddp-initialisation 4.2.2.3).", ONE,
    (Taken("watch_key(0, 0)", "the worker notes the callback, and sends the request", (1, 2)),
     Taken("register(0, 0)", "the master registers the connection for the key", (3,)),
     Taken("return_registered(0)", "watchKey returns"),
     Taken("ask(0, 0)", "the worker sets the key", (4,)),
     Taken("set_or_add(0, 0)", "the master writes it, and tells the connections that watch", (5,)),
     Taken("run_callback(0)", "the thread of the worker runs the callback", (6,)),
     Taken("return_callback(0)")),
)  # fmt: skip
MASTER_RUNS = Walk(
    "master-runs", "The daemon of the master polls, accepts and serves (ddp-initialisation 4.2.6.1).", TWO,
    (Taken("connect(0)", "poll: the listening socket has POLLIN"),
     Taken("speak_at_once(0)", "accept: the socket is polled too, from here on"),
     Taken("connect(1)", "another worker"),
     Taken("speak_at_once(1)", "accept"),
     Taken("set_begins(1)", "queryFds: a request of which a part is there; the read blocks the loop"),
     Taken("ask(0)", "meanwhile a whole request is there"),
     Taken("set_ends(1)", "the rest is there: the request is carried out"),
     Taken("serve(0)", "queryFds: the whole request is read and carried out"),
     Taken("hang_up(0)", "poll: the socket has POLLIN, and the read fails"),
     Taken("clean_up(0)", "queryFds: the socket is closed, and polled no more"),
     Taken("end", "the owner closes the control pipe"),
     Taken("finish", "poll: the control pipe has POLLHUP, and the loop ends")),
)  # fmt: skip
WALKS = (SET, SET_AND_WATCH_KEY, MASTER_RUNS)
