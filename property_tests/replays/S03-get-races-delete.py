"""TCPStore: get() returns b"" for a key that is deleted between its WAIT and its GET

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A calls `get("k")` and waits.
2. B sets k to `v` and deletes it at once.
3. The set ends A's WAIT. When A's GET arrives, k no longer exists.

Expected:
get returns `b"v"`, the value that ended the wait, or continues to wait. It never returns a value that no client
has set.

Seen:
13 of 20 gets returned b''; the keys only ever held b'v'
reproduced: get() returned b'' for a key that only ever held b'v'

Cause:
`torch/csrc/distributed/c10d/TCPStore.cpp`, `TCPStore::doGet` sends WAIT, reads its answer, and then sends GET.
`torch/csrc/distributed/c10d/TCPStoreLibUvBackend.cpp`, `LibUVStoreDaemon::get` answers the GET of a missing key
with an empty vector.

Fix:
Let the server answer a GET that follows a WAIT with the value that satisfied the WAIT, or add one request that waits
and reads. In any case the answer to GET should distinguish a missing key from an empty value.
"""

from ending import CONTROL, end
from stores import Call, clients

# With --control, the key is not deleted while A reads it.
TRIES = 20
a, b = clients(5, 5)
empty = 0

for number in range(TRIES):
    key = f"k{number}"
    reader = Call(a.get, key, begins=0.05)  # A waits for the key
    b.set(key, "v")  # wakes A, which now requests the value
    if not CONTROL:
        b.delete_key(key)
    reader.join(0.5)
    if not reader.got:  # A did not see the key at all: end its wait
        b.set(key, "v")
        reader.join()
    empty += reader.got == [b""]

print(f"{empty} of {TRIES} gets returned b''; the keys only ever held b'v'")
end(empty, "get() returned b'' for a key that only ever held b'v'")
