"""A virtual environment for real handlers: threads, clocks, chance, sockets, and the process they are in.

Rule: classes are not changed. The names by which their modules use the real world are replaced, all in this module:
`virtual` replaces this process by the simulated process whose thread runs, for our rendezvous and for torch's.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import datetime
import logging
import os
import random
import secrets
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from multiprocessing.util import Finalize
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import torch.distributed.elastic.rendezvous.c10d_rendezvous_backend as torch_backend
import torch.distributed.elastic.rendezvous.dynamic_rendezvous as torch_rendezvous

from trystate.impl.rendezvous import bootstrap, handler, state_holder
from trystate.impl.rendezvous.encoding import decode
from trystate.impl.rendezvous.rooms import part
from trystate.impl.rendezvous.rooms.part import RoomPart
from trystate.impl.rendezvous.state_holder import StateHolder

from .rooms import READ, Condition, Opened, Readable, RoomClient, Selector
from .servers import Connected, Listener, Prefixed, Served, TorchServed
from .threads import RUNNING, Event, Lock, Thread, current, living

NOW = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
PACKAGES = ("trystate.impl.rendezvous.", "torch.distributed.elastic.rendezvous.")


def monotonic() -> float:
    process = current()
    return process.machine.clock() if process is not None else 0.0


def unregister(call: Callable[[], object]) -> None:
    process = current()
    if process is not None and call in process.at_exit:
        process.at_exit.remove(call)


def _rng() -> random.Random:
    return living().machine.rng


def _pid() -> int:
    process = current()
    return process.pid if process is not None else 0


def _host() -> str:
    return living().name.partition(".")[0]


# The keys are the objects, not their names in a module: a new import of any of these is replaced as well.
WORLD: dict[Any, Any] = {
    threading: SimpleNamespace(
        Event=Event, Lock=Lock, Thread=Thread, Condition=Condition, RLock=lambda: None, current_thread=RUNNING.get
    ),
    _thread: SimpleNamespace(start_new_thread=lambda body, args: Thread(target=lambda: body(*args)).start()),
    threading.Event: Event,
    Finalize: lambda *end, exitpriority: SimpleNamespace(cancel=lambda: None),  # simulated processes are not children
    threading.Thread: Thread,
    time: SimpleNamespace(monotonic=monotonic, time=monotonic, sleep=lambda seconds: Event().wait(seconds)),
    # The wall clocks of all nodes agree; the replays have torch with clocks that do not.
    datetime.datetime: SimpleNamespace(now=lambda tz=None: NOW + datetime.timedelta(seconds=living().time.now)),
    random: SimpleNamespace(random=lambda: _rng().random(), uniform=lambda low, high: _rng().uniform(low, high)),
    secrets: SimpleNamespace(token_hex=lambda size: _rng().randbytes(size).hex()),
    uuid: SimpleNamespace(uuid4=lambda: SimpleNamespace(hex=_rng().randbytes(16).hex())),
    atexit: SimpleNamespace(register=lambda call: living().at_exit.append(call), unregister=unregister),
    os: SimpleNamespace(
        getpid=_pid, getenv=lambda name, default=None: default, environ={}, pipe=lambda: (Readable(),) * 2,
        set_blocking=lambda pipe, blocks: None, read=Readable.read, write=Readable.write, close=lambda pipe: None,
    ),
    socket: SimpleNamespace(gethostname=_host, getfqdn=_host),
}  # fmt: skip

SOCKETS: dict[ModuleType, dict[str, Any]] = {
    state_holder: {"decode": lru_cache(maxsize=64)(decode)},  # the same bytes are the same state, for all of a crowd
    handler: {  # the defaults of their clocks are the real one
        "StateHolder": partial(StateHolder, clock=monotonic),
        "RoomPart": type("RoomPart", (RoomPart,), {"clock": staticmethod(monotonic)}),
        "TCPStore": RoomClient,
    },
    part: {
        "RoomConnection": Opened,
        "selectors": SimpleNamespace(DefaultSelector=Selector, EVENT_READ=READ),
        "others_that_wait": lambda store, run_id: "",
    },
    bootstrap: {
        "listen_as": partial(Listener, port=0),
        "TCPStoreServer": Served,
        "TCPStore": Connected,
        "PrefixStore": Prefixed,
    },
    torch_rendezvous: {
        "dist": SimpleNamespace(PrefixStore=Prefixed, TCPStore=TorchServed),
        "construct_and_record_rdzv_event": lambda **event: None,
        "get_method_name": lambda depth=2: "",  # only for the event: walks the stack and its sources
    },
}


@contextlib.contextmanager
def virtual() -> Iterator[None]:
    """The rendezvous, ours and torch's, sees simulated processes while the block runs."""
    assert torch_backend  # both packages are loaded
    silent = logging.root.manager.disable
    replaced = {id(real): (real, virtual) for real, virtual in WORLD.items()}
    with contextlib.ExitStack() as stack:
        stack.callback(logging.disable, silent)
        logging.disable()  # a crowd's warnings are left out; its acts are in the log of the run
        for name, module in [*sys.modules.items()]:
            if name.startswith(PACKAGES):
                names = {key: replaced[id(value)][1] for key, value in vars(module).items() if id(value) in replaced}
                names |= SOCKETS.get(module, {})
                if names:
                    stack.enter_context(mock.patch.multiple(module, **names))
        yield
