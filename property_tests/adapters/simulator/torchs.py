"""torch's own `DynamicRendezvousHandler` and `C10dRendezvousBackend` in the simulator, as they are.

Nothing of torch is rewritten: `surroundings` replaces the parts of the real world that it uses. Faults that are not of
the rendezvous are left out: a connection that was reset works again, all wall clocks agree, and the endpoint is never
lost.
"""

from __future__ import annotations

import base64
import pickle
from datetime import timedelta
from typing import Any

import torch.distributed.elastic.rendezvous.dynamic_rendezvous as dr
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend

from ..torch_release import with_heartbeats
from .agents import CLOSE_SECONDS, RUN_ID, Agent, Side

LAST_CALL_SECONDS_MIN = 0.001  # torch refuses less


def _made(agent: Agent) -> dr.DynamicRendezvousHandler:
    settings = agent.settings
    store: Any = agent.connect()
    timeout = dr.RendezvousTimeout(
        timedelta(seconds=agent.node.host.join_seconds),
        timedelta(seconds=max(settings.last_call_timeout, LAST_CALL_SECONDS_MIN)),
        timedelta(seconds=CLOSE_SECONDS),
        timedelta(seconds=CLOSE_SECONDS),
    )
    make = with_heartbeats(settings.keep_alive_interval, settings.keep_alive_max_attempt)
    backend = C10dRendezvousBackend(store, RUN_ID)
    return make(RUN_ID, store, backend, settings.min_nodes, settings.max_nodes, agent.address, timeout)


def _round(handler: dr.DynamicRendezvousHandler) -> object:
    return handler._state_holder.state.round


def _leased(handler: dr.DynamicRendezvousHandler, now: float) -> bool:
    return True  # torch's handler never learns otherwise


def _closed(data: dict[str, bytes]) -> bool:
    state = data.get(f"torch.rendezvous.{RUN_ID}", b"")
    if state in (b"", C10dRendezvousBackend._NULL_SENTINEL.encode()):
        return False
    closed: bool = pickle.loads(base64.b64decode(state)).closed
    return closed


TORCHS_SIDE = Side("torch", _made, _round, _leased, _closed, looks=1.0)
