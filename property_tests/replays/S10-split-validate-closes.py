"""TCPStore: a connection whose VALIDATE arrives in two packets is refused

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A client sends the first three bytes of VALIDATE, and after 0.2 s the other two.
2. It sends PING.

Expected:
PING is answered: TCP keeps no boundaries between packets.

Seen:
served after VALIDATE in 1 packet: True, in 2: False
reproduced: a connection whose VALIDATE arrived in two packets was not served

Cause:
`torch/csrc/distributed/c10d/TCPStoreLibUvBackend.cpp`, `UvClient::processBuf` calls `isMiscellaneousClient`, which
takes the connection off the list at its first byte, and `parse_validate_command` returns false for want of more.
With the next read the same byte is taken for a request of a validated connection, VALIDATE is not in that switch,
and the connection is closed.

Fix:
Take the connection off the list of those that have not validated only when VALIDATE has been read. That mends the
bypass of VALIDATE as well.
"""

import socket
import struct
import sys
import time

import torch.distributed as dist

CONTROL = "--control" in sys.argv  # each VALIDATE is sent in one packet
server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
VALIDATE = b"\x00" + struct.pack("<I", 0x3C85F7CE)
PING = b"\x0d" + struct.pack("<I", 7)


def served(*packets: bytes) -> bool:
    """Whether a PING is answered after these packets, each a read of its own for the server."""
    with socket.create_connection(("127.0.0.1", server.port)) as peer:
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
if whole and not split:
    print("reproduced: a connection whose VALIDATE arrived in two packets was not served")
    sys.exit(1)
print("not reproduced: each connection was served after its VALIDATE")
