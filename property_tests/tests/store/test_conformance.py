"""Every store against the reference: each client on each server, and stores in memory, in torch's file, under a prefix.

Rule: a class only makes its store and lists its known deviations.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from trystate import store as ours
from trystate import testing
from trystate.impl.torch_release import lacks
from trystate.property_tests.adapters.stores.servers import cloned, emptied, missing, torch_client
from trystate.property_tests.adapters.torch_store.server import OurServer, Server, TorchLegacyServer, TorchServer
from trystate.property_tests.harness.stores import handles, sequences
from trystate.property_tests.harness.stores.handles import c10d
from trystate.property_tests.harness.subjects import Disagreement

Servers = dict[type[Server], Server]


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    """The servers that tests have started; the first test that needs a server starts it."""
    found: Servers = {}
    yield found
    for server in found.values():
        server.close()


@pytest.fixture
def fewer_runs() -> Iterator[None]:
    """A third of the usual runs, because torch's own stores change only with torch."""
    profile = settings.get_current_profile_name()
    settings.load_profile("quick" if profile == "ci" else profile)
    yield
    settings.load_profile(profile)


of_torch = pytest.mark.usefixtures("fewer_runs")


class _Suite(testing.StoreConformance):
    """The suite; its clones work on every release of torch."""

    def clone(self, store: Any) -> Any:
        return cloned(store)


class _OnServer(_Suite):
    """A client on one of the servers, which many tests share; each test empties it first.

    torch's stores can list their keys since 2.10. Before 2.10, each store has its own server.
    """

    serve: type[Server] = TorchServer

    @pytest.fixture(autouse=True)
    def _use_servers(self, servers: Servers) -> None:
        self._servers = servers

    def new(self, connect: Callable[[int], Any], prefix: str = "") -> Any:
        """An empty store. The argument of `connect` is the port of the server."""
        cannot_list = lacks(c10d.TCPStore, "list_keys")
        if cannot_list and self.serve in self._servers:
            self._servers.pop(self.serve).close()
        if self.serve not in self._servers:
            self._servers[self.serve] = self.serve()
        store = connect(self._servers[self.serve].port)
        return store if cannot_list else emptied(store, prefix)


@of_torch
class TestTorchsClientOnLibuv(_OnServer):
    deviations = testing.TORCH_LIBUV | missing()

    def make_store(self) -> Any:
        return self.new(partial(torch_client, libuv=self.serve is not TorchLegacyServer))


class TestTorchsClientOnLegacy(TestTorchsClientOnLibuv):
    deviations = testing.TORCH_LEGACY | missing()
    serve = TorchLegacyServer


class TestTorchsClientOnOurServer(_OnServer):
    deviations = testing.TORCHS_ON_OURS | missing()
    serve = OurServer

    def make_store(self) -> Any:
        return self.new(torch_client)


class TestTorchsPrefixOverLibuv(TestTorchsClientOnLibuv):
    deviations = testing.torch_prefix(testing.TORCH_LIBUV) | missing()

    def make_store(self) -> Any:
        under = self.new(torch_client, "P/")
        return c10d.PrefixStore("P", with_neighbour(under))


def with_neighbour(under: Any) -> Any:
    """The store, with a key that begins with P and does not have the prefix P."""
    under.set("Px/n", b"1")
    under.num_keys()
    return under


@of_torch
class TestTorchsHashStore(_Suite):
    deviations = testing.TORCH_HASH | missing()

    def make_store(self) -> Any:
        return c10d.HashStore()


@of_torch
class TestTorchsFileStore(_Suite):
    deviations = testing.TORCH_FILE | missing()

    @pytest.fixture(autouse=True)
    def _use_folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def make_store(self) -> Any:
        return c10d.FileStore(tempfile.mktemp(dir=self.folder), 1)


class TestOurClientOnOurServer(_OnServer):
    serve: type[Server] = OurServer

    def make_store(self) -> Any:
        return self.new(partial(ours.TCPStore, "127.0.0.1"))


class TestOurClientOnLibuv(TestOurClientOnOurServer):
    deviations = testing.OURS_ON_LIBUV | missing()
    serve = TorchServer


class TestOurHashStore(testing.StoreConformance):
    def make_store(self) -> Any:
        return ours.HashStore()


class TestOurPrefixOverOurServer(_OnServer):
    serve = OurServer

    def make_store(self) -> Any:
        under = self.new(partial(ours.TCPStore, "127.0.0.1"), "P/")
        return ours.PrefixStore("P", with_neighbour(under))


class Hasty(ours.HashStore):
    """A wrong store: two threads may read one number before either writes, and nothing is ever torn apart from that."""

    def add(self, key: str, amount: int) -> int:
        total = (int(super().get(key)) if self.check([key]) else 0) + amount
        super().set(key, str(total))
        return total

    def compare_set(self, key: str, expected: Any, desired: Any) -> bytes:
        if super().get(key) == expected:
            super().set(key, desired)
            return bytes(desired)
        return super().get(key)

    def get(self, key: str) -> bytes:
        return b"garbage" if key == "k" else super().get(key)

    def multi_get(self, keys: Any) -> list[bytes]:
        return [super(Hasty, self).get(key) for key in keys]

    def wait(self, keys: Any, timeout: Any = None) -> None:
        super().wait(keys, *([timeout] if timeout is not None and timeout.total_seconds() <= 0 else []))

    def num_keys(self) -> Any:
        return float(super().num_keys())

    def deleteKey(self, key: str) -> bool:
        return not self.delete_key(key)

    def clone(self) -> Hasty:
        return self


class Slow(ours.HashStore):
    def wait(self, keys: Any, *timeout: Any) -> None:
        time.sleep(0.03)
        super().wait(keys, *timeout)


def test_timeouts_of_a_slow_store_for_two_threads_pass() -> None:
    class Suite(testing.StoreConformance):
        concurrency, make_store = 2, staticmethod(Slow)

        def opened(self, count: int = 0) -> Any:
            assert count <= self.concurrency
            return super().opened(count)

    Suite().test_a_timeout_ends_in_time_and_with_torchs_exception()
    Suite().test_a_timeout_of_zero_looks_once()


IN_SEQUENCE = "test_operations_one_after_the_other_do_what_the_reference_does"


@pytest.mark.parametrize(("claim", "wrong"), [
    ("test_no_add_is_lost_and_each_sum_is_returned_once", "add"),
    ("test_no_two_compare_sets_succeed_on_the_same_value", "compare_set"),
    ("test_get_never_returns_what_nobody_set", "get"), ("test_a_multi_set_is_seen_as_one", "multi_get"),
    (IN_SEQUENCE, "wait"), (IN_SEQUENCE, "num_keys"), ("test_torch_can_call_the_store_under_a_prefix", "deleteKey"),
])  # fmt: skip
def test_a_wrong_store_in_python_fails_the_suite(claim: str, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = {name: getattr(ours.HashStore, name) for name in vars(Hasty) if name not in (wrong, "clone")}
    kind: Any = type("Wrong", (Hasty,), {name: right[name] for name in right if not name.startswith("_")})

    class Suite(testing.StoreConformance):
        def make_store(self) -> Any:
            time.sleep(0.2 * (claim != IN_SEQUENCE))  # longer than a race of the suite
            return kind()

        def close_store(self, store: Any) -> None:
            pass

    for module in (sequences, handles):
        monkeypatch.setattr(module, "PROMPT_SECONDS", 1.0)
        monkeypatch.setattr(module, "AMPLE", timedelta(seconds=3))
    suite = Suite()
    with pytest.raises(Disagreement):
        for _ in range(10):  # a race need not show at once
            getattr(suite, claim)()
