"""A process that destroys its group and makes another one: each life has keys of its own at the agent's store.

torch's `env://` and `tcp://` give each life the same keys, so that gloo may read the addresses of the life before. Our
agent names the store of its round in the environment of its workers. In such a worker, the groups that it makes there
are counted, as torch's RPC counts its own, and all but the first have a prefix with their number: all workers of a
round have begun together, and make their groups in one order.

Rule: standard library only until a worker of our agent makes a group: each `import torch` loads this (entry point
`torch.backends`), and it must not fail.
"""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable, Iterator
from itertools import count
from types import CodeType, FrameType
from typing import Any

VARIABLE = "TRYSTATE_ROUND_STORE"  # of a worker: HOST:PORT of its round's store
SCHEMES = ("env", "tcp")

_groups = count()  # that this process has made at its round's store


def autoload() -> None:
    """Called at the end of `import torch`: in a worker of our agent, torch's URLs give each life its own keys."""
    if VARIABLE in os.environ:
        install()


def install() -> None:
    """Have torch's URLs give each life its own keys at the round's store; a second time does nothing."""
    try:
        # `torch.distributed.rendezvous` is its function; the module is below the same name.
        handlers = importlib.import_module("torch.distributed.rendezvous")._rendezvous_handlers
        for scheme in SCHEMES:
            if not hasattr(handlers[scheme], "counts_lives"):
                handlers[scheme] = _counting(handlers[scheme])
    except (ImportError, AttributeError, KeyError):  # a torch without `distributed`, or one that we do not know
        return


def _counting(handler: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    def counted(url: str, *args: Any, **more: Any) -> Iterator[Any]:
        from torch.distributed import PrefixStore  # type: ignore[attr-defined]
        from torch.distributed.distributed_c10d import init_process_group

        for store, rank, world_size in handler(url, *args, **more):
            place = f"{getattr(store, 'host', '')}:{getattr(store, 'port', '')}"
            mine = place == os.environ.get(VARIABLE) and call_of(inspect.unwrap(init_process_group).__code__)
            life = next(_groups) if mine else 0
            yield PrefixStore(f"life-{life}", store) if life else store, rank, world_size

    counted.counts_lives = True  # type: ignore[attr-defined]
    return counted


def call_of(code: CodeType) -> FrameType | None:
    """The call of a function that the caller is part of; None: it is not."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame
