"""c10d rendezvous: a shared state that pickle reads with another error than PickleError ends the heartbeats for ever

Versions: torch 2.13.0; Python 3.11, Linux, CPU. Lines are those of 2.13.0.

Steps:
1. A node beats.
2. The value is one that `pickle.loads` reads with `EOFError`. A heartbeat reads it.
3. The value of before is put back.

Expected:
Each call that reads the value raises `RendezvousStateError`, as `RendezvousBackend.get_state` documents. The thread
logs it, and tries again after the next interval; with the state back, the node beats.

Seen:
bytes that are no pickle: num_nodes_waiting() raised RendezvousStateError
bytes that are no pickle: with the state back, the node beats again
no bytes: num_nodes_waiting() raised EOFError
no bytes: with the state back, the node does not beat any more
threads that ended with an error: EOFError
reproduced: an error of reading the state is no RendezvousError, and ends the heartbeats

Cause:
`_BackendRendezvousStateHolder.sync` (`torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:445`) turns
`pickle.PickleError` into `RendezvousStateError`. `pickle.loads` raises others too: its documentation names
`AttributeError`, `EOFError`, `ImportError` and `IndexError`. `_keep_alive` and `shutdown` catch `RendezvousError`
alone, and `_PeriodicTimer._run` nothing.

Fix:
Turn every `Exception` of `pickle.loads` into `RendezvousStateError`, and one of a result that is no `_RendezvousState`.
"""

import sys
import threading
import time
from datetime import timedelta

from torch.distributed import HashStore
from torch.distributed.elastic.rendezvous import RendezvousError
from torch.distributed.elastic.rendezvous import dynamic_rendezvous as dr
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend

CONTROL = "--control" in sys.argv  # no value without bytes
KEY = "torch.rendezvous.job"
ended = []
threading.excepthook = lambda end: ended.append(end.exc_type.__name__)
store = HashStore()
backend = C10dRendezvousBackend(store, "job")
settings = dr.RendezvousSettings(
    "job", 1, 1, dr.RendezvousTimeout(last_call=timedelta(seconds=1)), timedelta(seconds=1), 3
)
holder = dr._BackendRendezvousStateHolder(backend, settings, cache_duration=0)
node = dr.DynamicRendezvousHandler(dr._NodeDesc("node", 1, 0), settings, backend.name, store, holder)
node._op_executor.run(dr._RendezvousJoinOp(), time.monotonic() + 60)
node._start_heartbeats()
state = store.get(KEY)


def beats(seconds: float) -> bool:
    """Whether the node writes a heartbeat within this time."""
    before = store.get(KEY)
    time.sleep(seconds)
    return store.get(KEY) != before


assert beats(2.5), "the node beats"
raised = {}
VALUES = {"bytes that are no pickle": "bm8gcGlja2xl", **({} if CONTROL else {"no bytes": ""})}
for name, value in VALUES.items():
    state = store.get(KEY)
    store.set(KEY, value)
    time.sleep(1.5)  # a heartbeat reads it
    try:
        node.num_nodes_waiting()
    except Exception as error:
        raised[name] = error
        print(f"{name}: num_nodes_waiting() raised {type(error).__name__}")
    store.set(KEY, state)
    going_on = beats(2.5)
    print(f"{name}: with the state back, the node {'beats again' if going_on else 'does not beat any more'}")
print(f"threads that ended with an error: {', '.join(ended) or 'none'}")
node._stop_heartbeats()
defect = not isinstance(raised[name], RendezvousError) and not going_on
print(
    "reproduced: an error of reading the state is no RendezvousError, and ends the heartbeats"
    if defect
    else "not reproduced: each corrupt state was a RendezvousStateError, and the heartbeats went on"
)
sys.exit(int(defect))
