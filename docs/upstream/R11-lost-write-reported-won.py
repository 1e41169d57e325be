"""C10dRendezvousBackend.set_state: of two writers of the same bytes, the one that lost is told that it won."""

import sys

from torch.distributed import HashStore
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend

store = HashStore()
a, b = C10dRendezvousBackend(store, "job"), C10dRendezvousBackend(store, "job")
a.set_state(b"open")
_, token = b.get_state()  # A and B have both read this state

_, new_token, a_won = a.set_state(b"closed", token)
print(f"A writes with the token that both have read: won = {a_won}, the token changes: {new_token != token}")
_, _, b_won = b.set_state(b"closed", token)
print(f"B writes the same bytes with the old token:  won = {b_won}")
shown = a_won and b_won
print(
    "reproduced: a write with a stale token is reported as won" if shown else "not reproduced: it is reported as lost"
)
sys.exit(int(shown))
