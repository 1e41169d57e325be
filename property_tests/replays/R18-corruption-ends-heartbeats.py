"""c10d rendezvous: a shared state for which pickle raises an error other than PickleError ends the heartbeats forever

Versions: torch 2.13.0; Python 3.11, Linux, CPU. Line numbers refer to 2.13.0.

Steps:
1. A node sends heartbeats.
2. The script writes a value for which `pickle.loads` raises `EOFError`. A heartbeat reads it.
3. The script restores the old value.

Expected:
Each call that reads the value raises `RendezvousStateError`, as `RendezvousBackend.get_state` documents. The thread
logs the error and tries again after the next interval. After the state is restored, the node sends heartbeats again.

Seen:
bytes that are not a pickle: num_nodes_waiting() raised RendezvousStateError
bytes that are not a pickle: after the restore the heartbeats continue
no bytes: num_nodes_waiting() raised EOFError
no bytes: after the restore the heartbeats have ended
threads that ended with an error: EOFError
reproduced: an error in the read of the state is not a RendezvousError, and ends the heartbeats

Cause:
`_BackendRendezvousStateHolder.sync` (`torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:445`) turns
`pickle.PickleError` into `RendezvousStateError`. `pickle.loads` raises other errors too: its documentation lists
`AttributeError`, `EOFError`, `ImportError` and `IndexError`. `_keep_alive` and `shutdown` catch only
`RendezvousError`, and `_PeriodicTimer._run` catches nothing.

Fix:
Turn every `Exception` of `pickle.loads` into `RendezvousStateError`. Raise that error also for a result that is not a
`_RendezvousState`.
"""

import threading
import time

from ending import CONTROL, end
from nodes import NODES_STORE, node
from torch.distributed.elastic.rendezvous import RendezvousError
from torch.distributed.elastic.rendezvous import dynamic_rendezvous as dr

# With --control, the script writes no empty value.
KEY = "torch.rendezvous.job"
ended = []
threading.excepthook = lambda end: ended.append(end.exc_type.__name__)
one = node("node", (1, 1), beat=1, last_call=1)
one._op_executor.run(dr._RendezvousJoinOp(), time.monotonic() + 60)
one._start_heartbeats()
state = NODES_STORE.get(KEY)


def beats(seconds: float) -> bool:
    """Whether the node writes a heartbeat within this time."""
    before = NODES_STORE.get(KEY)
    time.sleep(seconds)
    return NODES_STORE.get(KEY) != before


assert beats(2.5), "the node sends heartbeats"
raised = {}
VALUES = {"bytes that are not a pickle": "bm8gcGlja2xl", **({} if CONTROL else {"no bytes": ""})}
for name, value in VALUES.items():
    state = NODES_STORE.get(KEY)
    NODES_STORE.set(KEY, value)
    time.sleep(1.5)  # a heartbeat reads it
    try:
        one.num_nodes_waiting()
    except Exception as error:
        raised[name] = error
        print(f"{name}: num_nodes_waiting() raised {type(error).__name__}")
    NODES_STORE.set(KEY, state)
    going_on = beats(2.5)
    print(f"{name}: after the restore the heartbeats {'continue' if going_on else 'have ended'}")
print(f"threads that ended with an error: {', '.join(ended) or 'none'}")
one._stop_heartbeats()
defect = not isinstance(raised[name], RendezvousError) and not going_on
end(defect, "an error in the read of the state is not a RendezvousError, and ends the heartbeats")
