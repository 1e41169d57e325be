"""C10dRendezvousBackend.set_state reports a lost write as won when the winner wrote the same bytes

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU. Line numbers refer to 2.13.0.

Steps:
1. A and B read the same state and token.
2. A writes new bytes with that token, and wins: the token changes.
3. B writes the same bytes with the old token.

Expected:
B's write is reported as lost, because its token is stale.

Seen:
A writes with the token that both have read: won = True, the token changes: True
B writes the same bytes with the old token:  won = True
reproduced: a write with a stale token is reported as won

Cause:
`C10dRendezvousBackend.set_state` (`torch/distributed/elastic/rendezvous/c10d_rendezvous_backend.py:110`) infers
success if the store holds the wanted bytes afterwards. This is also true when another node has written the same bytes.

Fix:
Put a version and the writer into the state. Then no two writes have the same bytes, and the comparison is exact.
"""

from ending import CONTROL, end
from torch.distributed import HashStore
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend

# With --control, B writes other bytes than A.
store = HashStore()
a, b = C10dRendezvousBackend(store, "job"), C10dRendezvousBackend(store, "job")
a.set_state(b"open")
_, token = b.get_state()  # A and B have both read this state

_, new_token, a_won = a.set_state(b"closed", token)
print(f"A writes with the token that both have read: won = {a_won}, the token changes: {new_token != token}")
_, _, b_won = b.set_state(b"closed by B" if CONTROL else b"closed", token)
print(f"B writes {'other' if CONTROL else 'the same'} bytes with the old token:  won = {b_won}")
end(a_won and b_won, "a write with a stale token is reported as won")
