"""Steps of the model `Exchanges`, performed on torch's own StoreExchange over torch's TCPStore.

Each call of `all_gather` runs in a thread, which stops before each request to the store, so exactly one request happens
at a time. In the edition SCOPED, each group of a process has another object: torch's later class has a count for each
store object, and is not in the header that is compiled here.

Rule: `observe` reads the keys of the store, the keys for which a call waits, and the values that it has returned.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial, partialmethod
from typing import Any

from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from trystate.model.groups.exchange import OVER, Exchanges
from trystate.model.groups.vocabulary import Counting, Share

from ...harness.subjects import Refused
from ..steps import Steps

PREFIX = "CUDASymmetricMemory"


class _Ended(Exception):
    """The caller has ended this call."""


class _Call(Store):
    """A call of all_gather, and the store that it gets: a thread that stops before each request."""

    def __init__(self, exchange: Any, store: Store, rank: int, size: int, value: int) -> None:
        super().__init__()
        self.keys = list[str]()
        self.values: list[int] = []
        self._store, self._ended = store, False
        self._goes, self._stops = threading.Semaphore(0), threading.Semaphore(0)

        def run() -> None:
            try:
                with suppress(_Ended):
                    self.values = exchange.all_gather(self, rank, size, value)
            finally:
                self._stops.release()

        self._thread = threading.Thread(target=run)
        self._thread.start()
        self._stops.acquire()

    def proceed(self) -> None:
        """Send the next request; returns before the one after it, or at the end."""
        self._goes.release()
        self._stops.acquire()

    def end(self) -> None:
        self._ended = True
        self._goes.release()
        self._thread.join()

    def _stop(self, keys: list[str]) -> None:
        self.keys = keys
        self._stops.release()
        self._goes.acquire()
        if self._ended:
            raise _Ended

    def set(self, key: str, value: Any) -> None:
        self._stop([key])
        self._store.set(key, value)

    def multi_get(self, keys: list[str]) -> list[bytes]:
        self._stop(keys)
        return self._store.multi_get(keys)


class TorchExchange(Steps):
    """The processes of a job. `make` makes a StoreExchange with a prefix."""

    TRIED = ("call", "read")

    def __init__(self, system: Exchanges, make: Callable[[str], Any]) -> None:
        self._sizes, self._make = system.sizes, make
        self._scoped = system.edition is Counting.SCOPED
        self._server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self._runs = 0
        ends = {"time_out": Share.FAILED, "raise_error": Share.IDLE}
        self._steps = {step: partial(self._over, at=at) for step, at in ends.items()}
        self._calls: dict[tuple[int, int], _Call] = {}

    def reset(self) -> None:
        """New processes, whose keys have another prefix."""
        self.close()
        self._runs += 1
        self._at = {(p, e): Share.IDLE for p in range(self._sizes["process"]) for e in range(self._sizes["exchange"])}
        self._lives = [1] * self._sizes["process"]
        self._stale = [False] * self._sizes["process"]
        self._objects: dict[tuple[int, int], Any] = {}

    def close(self) -> None:
        for call in self._calls.values():
            call.end()
        self._calls = {}

    def _store(self, group: int) -> Store:
        return PrefixStore(f"{self._runs}/{group}", self._server)

    def _group(self, exchange: int) -> int:
        return int(exchange > 0 or not self._sizes["outsiders"])

    def _call(self, process: int, exchange: int) -> None:
        earlier = [self._at[process, e] for e in range(exchange)]
        if self._at[process, exchange] is not Share.IDLE or any(at not in OVER for at in earlier):
            raise Refused("the program is at another call")
        size = self._sizes["process"] - (self._sizes["outsiders"] if exchange == 0 else 0)
        if process >= size:
            self._at[process, exchange] = Share.OUTSIDE
            return
        group = self._group(exchange)
        which = process, group if self._scoped else -1
        value = 100 * self._lives[process] + 10 * exchange + process
        made = self._objects[which] = self._objects.get(which) or self._make(PREFIX)
        call = self._calls[process, exchange] = _Call(made, self._store(group), process, size, value)
        call.proceed()
        self._at[process, exchange] = Share.SENT

    def _read(self, process: int, exchange: int) -> None:
        call = self._calls.get((process, exchange))
        if call is None or not all(
            self._server.check([f"{self._runs}/{self._group(exchange)}/{k}"]) for k in call.keys
        ):
            raise Refused("it waits for a key, or does not wait")
        call.proceed()
        right = [100 * self._lives[process] + 10 * exchange + q for q in range(len(call.values))]
        self._stale[process] |= call.values != right
        self._over(process, exchange, Share.RETURNED)

    def _over(self, process: int, exchange: int, at: Share) -> None:
        self._calls.pop((process, exchange)).end()
        self._at[process, exchange] = at

    def _begin_again(self, process: int, *, anew: bool = False) -> None:
        self._lives[process] = 2
        for exchange in range(self._sizes["exchange"]):
            if (process, exchange) in self._calls:
                self._over(process, exchange, Share.IDLE)
            self._at[process, exchange] = Share.IDLE
        if self._scoped or anew:
            self._objects = {which: made for which, made in self._objects.items() if which[0] != process}

    _restart = partialmethod(_begin_again, anew=True)

    def observe(self) -> Mapping[str, Any]:
        """The place of each call, its number, the keys, and whether a call has returned other values."""
        seen: dict[str, Any] = {f"at[{p}][{e}]": at for (p, e), at in self._at.items()}
        for (p, e), call in self._calls.items():
            seen[f"count[{p}][{self._group(e)}]"] = int(call.keys[p].split("/")[1]) + 1
        for p in range(self._sizes["process"]):
            seen |= {f"again[{p}]": self._lives[p] == 2, f"stale[{p}]": self._stale[p]}
            for group in range(2):
                for n in range(self._sizes["number"]):
                    key = f"{self._runs}/{group}/{PREFIX}/{n}/{p}"
                    there = self._server.check([key])
                    value = int.from_bytes(self._server.get(key), "little") if there else 0
                    cell = f"[{group}][{n}][{p}]"
                    seen |= {f"written{cell}": value // 10 % 10 if there else None, f"first{cell}": 100 <= value < 200}
        return seen
