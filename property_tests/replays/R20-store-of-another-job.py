"""c10d rendezvous: a job uses the store that another job serves at its endpoint, and fails when that job ends

Versions: torch 2.13.0; Python 3.11, Linux, CPU. Line numbers refer to 2.13.0.

Steps:
1. A node of the first job begins, and hosts the TCPStore of the endpoint.
2. A node of the second job begins. The port is in use, so the node becomes a client of that store.
   Nothing is logged.
3. The first job succeeds.

Expected:
The second job continues, or is refused at its start with the reason.

Seen:
the job 'first': connected
the job 'second': connected
the job 'first' has ended with exit code 0
the job 'second': RendezvousConnectionError: The connection to the C10d store has failed. See inner exception for details.
reproduced: the second job lost its store when the first job ended

Cause:
`c10d_rendezvous_backend.py`, `_create_tcp_store`: if the port cannot be bound, the node becomes a client of the
store that answers there. The server is an object of the process that created it, and ends with that process.

Fix:
Write the run id of the job that hosts the store into the store, and warn in a node of another job. Let the process that
hosts the store wait until no other job uses it.
"""  # noqa: E501 (its output)

import multiprocessing
import socket
from typing import Any

from ending import CONTROL, end
from torch.distributed.elastic.rendezvous import RendezvousConnectionError, RendezvousParameters
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import create_backend

# With --control, the second job, which does not serve the store, ends.


def node(job: str, endpoint: str, line: Any) -> None:
    """Creates the store of a rendezvous in the same way as torchrun."""
    backend, _ = create_backend(RendezvousParameters("c10d", endpoint, job, 1, 1, read_timeout=10))
    line.send("connected")
    while line.recv() == "look":
        try:
            backend.get_state()
            line.send("the store answers")
        except RendezvousConnectionError as error:
            line.send(f"{type(error).__name__}: {error}")


with socket.create_server(("127.0.0.1", 0)) as found:
    endpoint = f"127.0.0.1:{found.getsockname()[1]}"
context = multiprocessing.get_context("fork")
lines, processes = {}, {}
for job in ("first", "second"):
    lines[job], theirs = context.Pipe()
    processes[job] = context.Process(target=node, args=(job, endpoint, theirs), daemon=True)
    processes[job].start()
    print(f"the job {job!r}: {lines[job].recv()}", flush=True)

ends, remains = ("second", "first") if CONTROL else ("first", "second")
lines[ends].send("end")
processes[ends].join()
print(f"the job {ends!r} has ended with exit code {processes[ends].exitcode}")
lines[remains].send("look")
answer = lines[remains].recv()
processes[remains].kill()
print(f"the job {remains!r}: {answer}")
end(answer != "the store answers", "the second job lost its store when the first job ended")
