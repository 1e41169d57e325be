"""The differences between releases of torch that matter to the adapters, in addition to `impl/torch_release.py`.

Rule: a scenario that the installed torch cannot play is reported as `NotInRelease`, with the release that can.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from trystate.impl.torch_release import METHODS, lacks
from trystate.model.errors import UnavailableError

from .replays import ScheduleError

if TYPE_CHECKING:
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler


class NotInRelease(ScheduleError, UnavailableError):
    """The installed torch lacks the subject of the scenario; the text names the release that introduced it."""


def missing_method(error: AttributeError) -> str:
    """The sentence for a method of torch's stores that a test called, and this release lacks; "" for other errors.

    The runtime has to look before it calls: an error that the runtime raises does not count.
    """
    if error.name not in METHODS:
        return ""
    import torch.distributed as dist

    is_torchs = isinstance(error.obj, dist.Store)  # type: ignore[attr-defined]
    is_a_tests = "/property_tests/" in traceback.extract_tb(error.__traceback__)[-1].filename
    return lacks(error.obj, error.name) if is_torchs and is_a_tests else ""


def require(method: str) -> None:
    """Raises NotInRelease if torch's stores lack this method."""
    import torch.distributed as dist

    if lacking := lacks(dist.TCPStore, method):  # type: ignore[attr-defined]
        raise NotInRelease(lacking)


def with_heartbeats(interval_s: float, missed_max: int) -> Callable[..., DynamicRendezvousHandler]:
    """torch's `DynamicRendezvousHandler.from_backend`, with these heartbeats.

    Without options for them, which torch 2.7 introduced, a second handler is made of the parts of the first, with
    other settings.
    """
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import (
        DynamicRendezvousHandler,
        _BackendRendezvousStateHolder,
    )

    make: Any = DynamicRendezvousHandler.from_backend
    if "keep_alive_interval" in inspect.signature(make).parameters:
        return partial(make, keep_alive_interval=interval_s, keep_alive_max_attempt=missed_max)

    def made(run_id: str, store: Any, backend: Any, *more: Any, **options: Any) -> DynamicRendezvousHandler:
        first = make(run_id, store, backend, *more, **options)
        interval = timedelta(seconds=interval_s)
        settings = replace(first._settings, keep_alive_interval=interval, keep_alive_max_attempt=missed_max)
        holder = _BackendRendezvousStateHolder(backend, settings)
        return DynamicRendezvousHandler(first._this_node, settings, first._backend_name, store, holder)

    return made
