"""The runs that the articles show in pictures: a set, and a set of a key that is watched."""

from __future__ import annotations

from ..checker.expectations import Run
from ..checker.walks import Walk
from .vocabulary import Edition
from .watches import Watches

ONE = Run(Watches, {"client": 1, "key": 1, "writes": 1}, Edition.SEED)

SET = Walk("set-a-key", "A worker sets a key (ddp-initialisation 4.2.2.2).", ONE, ("ask(0, 0)", "set_or_add(0, 0)"))
# Its steps in the article: 1 and 2 the callback is noted, and the request sent; 3 the master registers; 4 a set;
# 5 the master tells the worker; 6 the callback runs.
SET_AND_WATCH_KEY = Walk(
    "set-and-watch-key", "A worker watches a key and sets it (ddp-initialisation 4.2.2.3).", ONE,
    ("watch_key(0, 0)", "register(0, 0)", "return_registered(0)", "ask(0, 0)", "set_or_add(0, 0)", "run_callback(0)",
     "return_callback(0)"),
)  # fmt: skip
WALKS = (SET, SET_AND_WATCH_KEY)
