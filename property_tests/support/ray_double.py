"""A double of the few names of Ray that `search/cluster` uses: tasks end in any order; a test chooses the losses."""

from __future__ import annotations

import pickle
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from trystate.search import cluster


class RayError(Exception):
    """The root of Ray's exceptions."""


EXCEPTIONS = {
    name: type(name, (RayError,), {})
    for name in (
        "WorkerCrashedError", "NodeDiedError", "LocalRayletDiedError", "OutOfMemoryError", "ObjectLostError",
        "ObjectFetchTimedOutError", "GetTimeoutError",
    )
}  # fmt: skip


class Double(ModuleType):
    """A cluster of one node, in this process.

    Args:
        seed: the seed of the order in which tasks end.
        losses: number of a task -> the exceptions that Ray raises instead of its first results.
        cpus: the number of the node's processors.
        hangs: seconds that `init` takes.
        fails: the exception that `init` raises.
    """

    RayError = RayError

    def __init__(
        self, *, seed: int = 0, losses: dict[int, Sequence[Exception]] | None = None, cpus: int = 2,
        hangs: float = 0.0, fails: Exception | None = None,
    ) -> None:  # fmt: skip
        super().__init__("ray")
        self.chance, self.cpus, self.hangs, self.fails = Random(seed), cpus, hangs, fails
        self.losses = {number: list(errors) for number, errors in (losses or {}).items()}
        self.runs = Counter[int]()
        self.up, self.how, self.options = False, dict[str, Any](), dict[str, Any]()
        self.exceptions = ModuleType("ray.exceptions")
        for name, error in EXCEPTIONS.items():
            setattr(self.exceptions, name, error)
        self.before_wait: Callable[[], None] = lambda: None
        cluster._made.cache_clear()

    def init(self, **how: Any) -> None:
        time.sleep(self.hangs)
        if self.fails is not None:
            raise self.fails
        self.how, self.up = how, True

    def is_initialized(self) -> bool:
        return self.up

    def shutdown(self) -> None:
        self.up = False

    def remote(self, **options: Any) -> Callable[[Callable[..., Any]], Any]:
        self.options = options
        return lambda function: SimpleNamespace(remote=lambda *args: Ref(function, pickle.dumps(args)))

    def wait(self, refs: list[Any], *, num_returns: int, timeout: float) -> tuple[list[Any], list[Any]]:
        self.before_wait()
        if not self.cpus:
            time.sleep(timeout)
            return [], refs
        one = self.chance.choice(refs)
        return [one], [ref for ref in refs if ref is not one]

    def get(self, ref: Ref, *, timeout: float) -> Any:
        assert self.up
        args = pickle.loads(ref.args)
        number = args[1]
        self.runs[number] += 1
        if self.losses.get(number):
            raise self.losses[number].pop()
        return pickle.loads(pickle.dumps(ref.function(*args)))

    def nodes(self) -> list[dict[str, Any]]:
        return [{"NodeID": "one", "Alive": True, "Resources": {"CPU": float(self.cpus)} if self.cpus else {}}]

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(get_node_id=lambda: "one")


class Ref:
    """A task that was given."""

    def __init__(self, function: Callable[..., Any], args: bytes) -> None:
        self.function, self.args = function, args


@contextmanager
def doubled(**how: Any) -> Iterator[Double]:
    """While the block runs, an import of Ray gets the double."""
    double = Double(**how)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "ray", double)
        patch.setitem(sys.modules, "ray.exceptions", double.exceptions)
        patch.setattr(cluster, "LOOK_SECONDS", 0.01)
        for name in ("RAY_USAGE_STATS_ENABLED", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"):
            patch.setenv(name, "")  # restored afterwards
        yield double
