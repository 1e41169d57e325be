"""The containers of torch and of ours, in every context of their decision tables, each in its own process.

Rule: a process has one container, so each question begins with a child that has no container.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

from trystate.model.autograd.initialisation import CONTAINERS, Initialised, Used
from trystate.model.autograd.vocabulary import Edition

from ..torch_groups.initialisation import contexts
from ..torch_rendezvous.contexts import Observed
from ..torch_rendezvous.contexts import observed as observe
from ..torch_store.isolated import Child, silence

ANSWER_S = 60.0
BITS = 48
WORKERS = 1 << 16
ERRORS: dict[str, Initialised | Used] = {
    "worker_id needs to be in the range": Initialised.RANGE,
    "Container is already initialized with worker_id": Initialised.OTHER,
    "RPC is already initialized": Initialised.TWICE, "Need to initialize distributed autograd": Used.EARLY,
    "RPC has not been initialized": Used.EARLY,
}  # fmt: skip
Answer = Initialised | Used | str
Question = tuple[Sequence[int | None], int | None]  # earlier initialisations; a worker to initialise, or None for a use


def _refusal(error: BaseException) -> Answer:
    return next((answer for text, answer in ERRORS.items() if text in str(error)), f"{type(error).__name__}: {error}")


class Torchs:
    """torch's container in this process."""

    def __init__(self) -> None:
        import torch.distributed.autograd

        self._module: Any = torch.distributed.autograd

    def init(self, worker: int) -> None:
        self._module._init(worker)

    def ends(self) -> None:
        """Start RPC for worker 0, and shut it down."""
        from torch.distributed import rpc

        with tempfile.TemporaryDirectory() as folder:
            options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{folder}/store")
            rpc.init_rpc("worker", rank=0, world_size=1, rpc_backend_options=options)  # type: ignore[no-untyped-call]
            rpc.shutdown()

    def id(self) -> int:
        """The id of a context, which has ended."""
        number = int(self._module._new_context()._context_id())
        self._module._release_context(number)
        return number % (1 << 64)


class Ours:
    """Ours in this process: the container of an RPC agent that is alone."""

    def __init__(self) -> None:
        from trystate.impl.autograd import api
        from trystate.impl.rpc import calls

        self._api, self._calls = api, calls

    def init(self, worker: int) -> None:
        from trystate.impl.store.hash import HashStore

        self._calls.init_rpc("worker", rank=0, world_size=1, store=HashStore())

    def ends(self) -> None:
        self._calls.shutdown()

    def id(self) -> int:
        number = self._api.new_context()
        self._api.release_context(number)
        return number


SIDES: dict[Edition, Callable[[], Torchs | Ours]] = {Edition.TORCH: Torchs, Edition.TRYSTATE: Ours}


def _answer(side: Torchs | Ours, before: Sequence[int | None], worker: int | None) -> Answer:
    """Make the initialisations that come before, None for a shutdown, each with a context; then put the question.

    The first id shows whether the container is new: one that has given out an id continues with the next.
    """
    for each in before:
        if each is None:
            side.ends()
        else:
            side.init(each)
            side.id()
    try:
        if worker is not None:
            side.init(worker)
        number = side.id()
    except Exception as error:
        return _refusal(error)
    if worker is None:
        return Used.CONTAINER
    return Initialised.NEW if number == worker << BITS else Initialised.KEPT


def answer(line: Connection, edition: Edition, questions: Sequence[Question]) -> None:
    """In a child: the answer to each question, in a process that is forked for it."""
    silence()
    os.environ["TP_SOCKET_IFNAME"] = "lo"
    side = SIDES[edition]()
    for question in questions:
        ours, theirs = multiprocessing.Pipe(duplex=False)
        if os.fork() == 0:
            theirs.send(_answer(side, *question))
            os._exit(0)
        theirs.close()
        line.send(ours.recv())
        os.wait()


def observed(edition: Edition) -> dict[str, Observed]:
    """The answers of the containers of an edition, by table."""
    ours = edition is Edition.TRYSTATE
    befores: tuple[tuple[int | None, ...], ...] = ((), (0,), (0, None), (0, None, 0))
    if not ours:
        befores += ((1,), (WORKERS - 1,))
    asking: dict[str, Sequence[int | None]] = {
        "init_container": (0,) if ours else (-1, 0, 1, WORKERS - 1, WORKERS), "use_container": (None,),
    }  # fmt: skip

    def held(before: Sequence[int | None], worker: int | None) -> dict[str, bool]:
        begun = bool(before) and (before[-1] is not None or not ours)
        known = {"in_range": worker in range(WORKERS), "begun": begun, "same": begun and worker in before}
        return {**known, "positive": worker is not None and worker < WORKERS // 2}

    with Child(answer, edition, [(b, w) for workers in asking.values() for b in befores for w in workers]) as child:
        return {
            name: observe(
                CONTAINERS[edition][name],
                ((words, held(**words)) for words in contexts(before=befores, worker=(*workers,))),
                lambda _: child.hear(ANSWER_S),
            )
            for name, workers in asking.items()
        }
