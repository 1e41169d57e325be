"""TCPStore: the server executes requests of a connection that never sent VALIDATE

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A stranger connects, and sends a SET without a VALIDATE before it. Nothing happens.
2. The stranger sends any second packet. The server executes the SET and answers.

Expected:
The server closes a connection whose first request is not VALIDATE.

Seen:
the SET was executed after one packet: False, after two: True
the PING was answered: True
reproduced: a peer that never sent VALIDATE has set a key

Cause:
`torch/csrc/distributed/c10d/TCPStoreLibUvBackend.cpp`, `UvClient::processBuf` calls `isMiscellaneousClient`, which
removes the connection from the list of unvalidated connections before it checks the request. If the request is not
VALIDATE, `processBuf` returns without closing the connection. The bytes stay in the stream, and with the next read the
connection counts as validated.

Fix:
Remove the connection from the list when VALIDATE has been read, and close it at any other first request. The legacy
server already closes it.

Related:
VALIDATE was added by https://github.com/pytorch/pytorch/pull/107607.
"""

import time

from ending import CONTROL, end
from stores import PING, Server, blob

# With --control, the peer sends nothing after its SET.
server = Server()

SET = b"\x01" + blob(b"/k") + blob(b"from a stranger")

b = server.client()
stranger = server.connection()
stranger.sendall(SET)  # no VALIDATE before it
time.sleep(0.5)
before = b.check(["k"])
if not CONTROL:
    stranger.sendall(PING)  # any second packet
stranger.settimeout(2)
try:
    answer = stranger.recv(4)
except (ConnectionResetError, TimeoutError):
    answer = b""
landed = b.check(["k"])

print(f"the SET was executed after one packet: {before}, {'later' if CONTROL else 'after two'}: {landed}")
print(f"the PING was answered: {bool(answer)}")
end(landed, "a peer that never sent VALIDATE has set a key")
