"""A job that finds the port of its endpoint taken uses another job's store, and ends when that job does."""

import multiprocessing
import socket
import sys
from typing import Any

from torch.distributed.elastic.rendezvous import RendezvousConnectionError, RendezvousParameters
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import create_backend


def node(job: str, endpoint: str, line: Any) -> None:
    """As torchrun makes the store of its rendezvous."""
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

lines["first"].send("end")
processes["first"].join()
print(f"the job 'first' has ended with exit code {processes['first'].exitcode}")
lines["second"].send("look")
answer = lines["second"].recv()
processes["second"].kill()
print(f"the job 'second': {answer}")
if answer != "the store answers":
    print("reproduced: the end of the first job took the store from the second")
    sys.exit(1)
print("not reproduced: the second job has its store")
