"""Every store against the reference: each client on each server, in memory, in a file, under a prefix.

Rule: a class here says only how its store is made and how it is known to differ.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from trystate.property_tests.adapters.stores.servers import emptied, torch_client
from trystate.property_tests.harness.stores.handles import c10d
from trystate.property_tests.support.stores.defects import (
    OurServer,
    Server,
    Servers,
    TorchLegacyServer,
    TorchServer,
    servers,
)

from trystate import store as ours
from trystate import testing

__all__ = ["servers"]  # the fixture


@pytest.fixture
def fewer_runs() -> Iterator[None]:
    """A third of the usual runs: what is of torch alone changes with torch only."""
    profile = settings.get_current_profile_name()
    settings.load_profile("quick" if profile == "ci" else profile)
    yield
    settings.load_profile(profile)


of_torch = pytest.mark.usefixtures("fewer_runs")


class _OnServer(testing.StoreConformance):
    """A client on one of the servers; the connections of one test serve the next."""

    serve: type[Server] = TorchServer

    @pytest.fixture(autouse=True)
    def _use_servers(self, servers: Servers) -> None:
        self.port = servers(self.serve).port


@of_torch
class TestTorchsClientOnLibuv(_OnServer):
    deviations = testing.TORCH_LIBUV

    def make_store(self) -> Any:
        return emptied(torch_client(self.port, libuv=self.serve is not TorchLegacyServer))


class TestTorchsClientOnLegacy(TestTorchsClientOnLibuv):
    deviations = testing.TORCH_LEGACY
    serve = TorchLegacyServer


class TestTorchsClientOnOurServer(_OnServer):
    deviations = testing.TORCHS_ON_OURS
    serve = OurServer

    def make_store(self) -> Any:
        return emptied(torch_client(self.port))


class TestTorchsPrefixOverLibuv(TestTorchsClientOnLibuv):
    deviations = testing.torch_prefix(testing.TORCH_LIBUV)

    def make_store(self) -> Any:
        under = emptied(torch_client(self.port), "P/")
        return c10d.PrefixStore("P", with_neighbour(under))


def with_neighbour(under: Any) -> Any:
    """A store with a key that lies beside the prefix P, and begins like it."""
    under.set("Px/n", b"1")
    under.num_keys()
    return under


@of_torch
class TestTorchsHashStore(testing.StoreConformance):
    deviations = testing.TORCH_HASH

    def make_store(self) -> Any:
        return c10d.HashStore()


@of_torch
class TestTorchsPrefixOverHashStore(testing.StoreConformance):
    deviations = testing.torch_prefix(testing.TORCH_HASH)

    def make_store(self) -> Any:
        return c10d.PrefixStore("P", with_neighbour(c10d.HashStore()))


class _InFile(testing.StoreConformance):
    """A store in a new file each time."""

    @pytest.fixture(autouse=True)
    def _use_folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def new_path(self) -> str:
        return tempfile.mktemp(dir=self.folder)


@of_torch
class TestTorchsFileStore(_InFile):
    deviations = testing.TORCH_FILE

    def make_store(self) -> Any:
        return c10d.FileStore(self.new_path(), 1)


@of_torch
class TestTorchsPrefixOverFileStore(_InFile):
    deviations = testing.torch_prefix(testing.TORCH_FILE)

    def make_store(self) -> Any:
        return c10d.PrefixStore("P", with_neighbour(c10d.FileStore(self.new_path(), 1)))


class TestOurClientOnOurServer(_OnServer):
    serve: type[Server] = OurServer

    def make_store(self) -> Any:
        return emptied(ours.TCPStore("127.0.0.1", self.port))


class TestOurClientOnLibuv(TestOurClientOnOurServer):
    deviations = testing.OURS_ON_LIBUV
    serve = TorchServer


class TestOurClientOnLegacy(TestOurClientOnOurServer):
    deviations = testing.OURS_ON_LEGACY
    serve = TorchLegacyServer


class TestOurHashStore(testing.StoreConformance):
    def make_store(self) -> Any:
        return ours.HashStore()


class TestOurFileStore(_InFile):
    def make_store(self) -> Any:
        return ours.FileStore(self.new_path(), 1)


class TestOurPrefixOverOurServer(_OnServer):
    serve = OurServer

    def make_store(self) -> Any:
        under = emptied(ours.TCPStore("127.0.0.1", self.port), "P/")
        return ours.PrefixStore("P", with_neighbour(under))


class TestOurPrefixOverHashStore(testing.StoreConformance):
    def make_store(self) -> Any:
        return ours.PrefixStore("P", with_neighbour(ours.HashStore()))


class TestOurPrefixOverFileStore(_InFile):
    def make_store(self) -> Any:
        return ours.PrefixStore("P", with_neighbour(ours.FileStore(self.new_path(), 1)))
