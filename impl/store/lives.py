"""A process that destroys its group and makes another one: each life has its own keys at the agent's store.

torch's `env://` and `tcp://` give each life the same keys, so gloo may read the addresses of the previous life. Our
agent names the store of its round in the environment of its workers. In such a worker this module counts the groups
that the worker makes there, as torch's RPC counts its own. All groups except the first get a prefix with their number.
The numbers agree, because all workers of a round start together and make their groups in one order.

Rule: only the standard library is imported until a worker of our agent makes a group. Each `import torch` loads this
module (entry point `torch.backends`), and it must not fail.
"""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable, Iterator
from itertools import count
from types import CodeType, FrameType
from typing import Any

VARIABLE = "TRYSTATE_ROUND_STORE"  # set in a worker: HOST:PORT of its round's store
SCHEMES = ("env", "tcp")

_groups = count()  # counts the groups that this process has made at its round's store


def autoload() -> None:
    """Install the counting in a worker of our agent. Called at the end of `import torch`."""
    if VARIABLE in os.environ:
        install()


def install() -> None:
    """Make torch's URLs give each life its own keys at the round's store. A second call does nothing."""
    try:
        # `torch.distributed` replaces the name `rendezvous` by a function, so the module is imported by its name.
        handlers = importlib.import_module("torch.distributed.rendezvous")._rendezvous_handlers
        for scheme in SCHEMES:
            if not hasattr(handlers[scheme], "counts_lives"):
                handlers[scheme] = _counting(handlers[scheme])
    except (ImportError, AttributeError, KeyError):  # a torch without `distributed`, or an unknown release of torch
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


def call_of(code: CodeType | None) -> FrameType | None:
    """The frame of the function with this code if the caller runs in a call of it, None otherwise or without code."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame
