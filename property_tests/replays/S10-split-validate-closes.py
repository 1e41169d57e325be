"""TCPStore: a connection whose VALIDATE arrives in two packets is refused

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A client sends the first three bytes of VALIDATE, and 0.2 s later the other two.
2. The client sends PING.

Expected:
The server answers PING, because TCP does not keep the boundaries between packets.

Seen:
served after VALIDATE in 1 packet: True, in 2: False
reproduced: a connection whose VALIDATE arrived in two packets was not served

Cause:
`torch/csrc/distributed/c10d/TCPStoreLibUvBackend.cpp`, `UvClient::processBuf` calls `isMiscellaneousClient`, which
removes the connection from the list at its first byte, and `parse_validate_command` returns false because bytes are
missing. With the next read the same byte is treated as a request of a validated connection. That switch does not
contain VALIDATE, and the server closes the connection.

Fix:
Remove the connection from the list of unvalidated connections only when VALIDATE has been read. That also fixes the
bypass of VALIDATE.
"""

import socket
import time

from ending import CONTROL, end
from stores import PING, VALIDATE, Server

# With --control, each VALIDATE is sent in one packet.
server = Server()


def served(*packets: bytes) -> bool:
    """Whether the server answers a PING after these packets; it reads each separately."""
    with server.connection() as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer.settimeout(2)
        try:
            for packet in (*packets, PING):
                peer.sendall(packet)
                time.sleep(0.2)
            return peer.recv(4) == PING[1:]
        except (BrokenPipeError, ConnectionResetError, TimeoutError):
            return False


packets = (VALIDATE,) if CONTROL else (VALIDATE[:3], VALIDATE[3:])
whole, split = served(VALIDATE), served(*packets)

print(f"served after VALIDATE in 1 packet: {whole}, in {len(packets)}: {split}")
end(whole and not split, "a connection whose VALIDATE arrived in two packets was not served")
