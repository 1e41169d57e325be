"""The URLs of a rendezvous: torch's grammar, the stores that each scheme yields, and the errors for a wrong URL."""

from __future__ import annotations

import contextlib
import importlib
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.rendezvous import rendezvous as torch_rendezvous

from trystate import rendezvous
from trystate.impl.store import urls
from trystate.impl.store.errors import InvalidArgument, NotSupported
from trystate.impl.store.tcp_server import TCPStoreServer
from trystate.impl.store.urls import HANDLERS, env_rendezvous
from trystate.model.errors import UsageError
from trystate.property_tests.adapters.torch_store.server import free_port
from trystate.store import FileStore, PrefixStore, TCPStore

torch_module: Any = importlib.import_module("torch.distributed.rendezvous")  # not its function of that name
VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "TORCHELASTIC_USE_AGENT_STORE")
SOON = timedelta(seconds=10)


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with TCPStoreServer() as server:
        yield server.port


def meet(url: str, *given: Any, **more: Any) -> tuple[Any, int, int]:
    """The store, rank and size that torch's rendezvous yields for a URL."""
    found: tuple[Any, int, int] = next(torch_rendezvous(url, *given, timeout=SOON, **more))
    return found


@contextlib.contextmanager
def met(*urls: str, given: Sequence[tuple[int, int]] = ()) -> Iterator[list[tuple[Any, int, int]]]:
    """The stores, ranks and sizes of a group, from one URL for each rank, or from one with `given` pairs."""
    calls: list[tuple[Any, ...]] = [(urls[0], *each) for each in given] or [(url,) for url in urls]
    with contextlib.ExitStack() as stores, ThreadPoolExecutor(len(calls)) as threads:
        triplets = [each.result() for each in [threads.submit(meet, *call) for call in calls]]
        for store, _, _ in triplets:
            stores.enter_context(store)
        yield triplets


def another(url: str, **_: Any) -> Iterator[Any]:
    """A handler that is not registered."""
    raise AssertionError(url)
    yield


@pytest.mark.parametrize("scheme", ["tcp", "trystate-tcp"])
def test_torch_refuses_a_scheme_that_is_registered_and_keeps_its_handler(scheme: str, port: int) -> None:
    with pytest.raises(RuntimeError, match=f"handler for {scheme}:// already registered"):
        torch_module.register_rendezvous_handler(scheme, another)
    place = f"127.0.0.1:{port if scheme == 'trystate-tcp' else free_port()}"  # until 2.6, torch refuses port 0
    store, rank, world_size = meet(f"{scheme}://{place}?rank=0&world_size=1" + "&hosted=0" * (scheme != "tcp"))
    with contextlib.closing(store) if scheme != "tcp" else contextlib.nullcontext():
        assert (rank, world_size, store.check(["k"])) == (0, 1, False)


def test_a_scheme_of_ours_that_somebody_else_has_registered_is_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call of `register` raises torch's error, and the scheme keeps its handler."""
    known: dict[str, Any] = {"trystate-file": another}
    monkeypatch.setattr(torch_module, "_rendezvous_handlers", known)
    monkeypatch.setattr(urls, "_registered", set())
    for _ in range(2):
        with pytest.raises(RuntimeError, match="handler for trystate-file:// already registered"):
            rendezvous.register()
    assert known == {"trystate-env": env_rendezvous, "trystate-file": another}


def test_the_schemes_are_registered_only_by_who_asks() -> None:
    program = (
        "from torch.distributed.rendezvous import _rendezvous_handlers as known\n"
        "from trystate import rendezvous\n"
        "print(sorted(known)); rendezvous.register(); print(sorted(known))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines() == [
        "['env', 'file', 'tcp']",
        "['env', 'file', 'tcp', 'trystate-env', 'trystate-file', 'trystate-tcp']",
    ]


def test_a_tcp_url_yields_our_store_with_the_rank_and_size_of_its_query(port: int) -> None:
    urls = [f"trystate-tcp://127.0.0.1:{port}?rank={rank}&world_size=2&hosted=0" for rank in (1, 0)]
    with met(*urls) as ((store, rank, world_size), _):
        assert isinstance(store, PrefixStore)
        assert (rank, world_size, store.timeout) == (1, 2, SOON)
        assert isinstance(store.underlying_store, TCPStore)
        assert (store.underlying_store.port, store.underlying_store.timeout) == (port, SOON)


def test_rank_and_world_size_may_be_given_beside_the_url(port: int) -> None:
    with met(f"trystate-tcp://127.0.0.1:{port}?hosted=0", given=[(rank, 3) for rank in range(3)]) as group:
        assert [(rank, world_size) for _, rank, world_size in group] == [(0, 3), (1, 3), (2, 3)]


def test_the_environment_says_what_the_query_does_not(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in zip(VARIABLES, ("127.0.0.1", str(port), "0", "2", "True"), strict=True):
        monkeypatch.setenv(name, value)
    with met("trystate-env://", "trystate-env://?rank=1") as group:
        assert [(rank, world_size, store.underlying_store.port) for store, rank, world_size in group] == [
            (0, 2, port), (1, 2, port),
        ]  # fmt: skip


def test_with_an_agents_store_rank_0_is_a_client_too(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    with met(f"trystate-tcp://127.0.0.1:{port}?rank=0&world_size=1") as ((store, _, _),):
        assert store.underlying_store.port == port  # a second server could not listen on this port


def test_a_file_url_yields_a_file_store(tmp_path: Path) -> None:
    with met(f"trystate-file://{tmp_path}/store?rank=0&world_size=1") as ((store, rank, world_size),):
        assert isinstance(store.underlying_store, FileStore)
        assert (rank, world_size, store.timeout) == (0, 1, SOON)
        assert (tmp_path / "store").exists()


@pytest.mark.parametrize("scheme", ["tcp", "env", "file"])
@pytest.mark.parametrize(
    ("ours", "error", "text"),
    [("trystate-", NotSupported, "good for one rendezvous"), ("", RuntimeError, "Unable to perform re-?rendezvous")],
    ids=["ours", "torch"],
)
def test_a_url_is_good_for_one_rendezvous(
    ours: str, error: type[Exception], text: str, scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "0")
    place = {"tcp": "127.0.0.1:0", "env": "", "file": f"{tmp_path}/keys"}[scheme]
    handler = torch_rendezvous(f"{ours}{scheme}://{place}?rank=0&world_size=1", timeout=SOON)
    assert next(handler)[1:] == (0, 1)
    with pytest.raises(error, match=text):
        next(handler)
    assert issubclass(error, RuntimeError)


@pytest.mark.parametrize(
    ("url", "texts"),
    [
        ("trystate-tcp://127.0.0.1?rank=0&world_size=1", ("has no port", "HOST:PORT")),
        ("trystate-tcp://127.0.0.1:99999?rank=0&world_size=1", ("no port from 0 to 65535",)),
        ("trystate-tcp://127.0.0.1:x?rank=0&world_size=1", ("'127.0.0.1:x'", "65535")),
        ("trystate-tcp://:29500?rank=0&world_size=1", ("has no host",)),
        ("trystate-tcp://::1:29416?rank=0&world_size=1", ("needs brackets", "write [::1]:29416")),
        ("trystate-tcp://[::1:29500?rank=0&world_size=1", ("not a URL",)),
        ("trystate-tcp://h:1?world_size=1", ("rank is missing; give rank=... with the URL, or ?rank=... in it",)),
        ("trystate-tcp://h:1?rank=0", ("world_size is missing",)),
        ("trystate-tcp://h:1?rank=2&world_size=2", ("rank=2", "0 to 1")),
        ("trystate-tcp://h:1?rank=-1&world_size=2", ("rank=-1", "0 to 1")),
        ("trystate-tcp://h:1?rank=one&world_size=2", ("rank='one'", "whole number")),
        ("trystate-tcp://h:1?rank=0&world_size=0", ("world_size=0",)),
        ("trystate-tcp://h:1?rank=0&rank=1&world_size=2", ("twice",)),
        ("trystate-tcp://h:1?rank=0&world_size=2&worldsize=3", ("worldsize", "it may have", "hosted")),
        ("trystate-tcp://h:1?rank=0&world_size=2&hosted=maybe", ("hosted='maybe'", "runs already")),
        ("trystate-tcp://h:1?rank=0&world_size=2&secret_file=/no/such", ("secret_file='/no/such'", "No such file")),
        ("trystate-tcp://h:1?rank=0&world_size=2&secret_file=/dev/null", ("secret_file=", "is empty")),
        ("trystate-file://shared/job?rank=0&world_size=1", ("no absolute path", "three slashes")),
        ("trystate-tcp://h:1/job?rank=0&world_size=1", ("'job' in it has no meaning", "trystate-tcp://HOST:PORT")),
        ("trystate-env://h:1?rank=0&world_size=1", ("'h:1' in it has no meaning", "everything else in the query")),
        ("trystate-file:///tmp/job#2?rank=0&world_size=1", ("'2?rank=0&world_size=1' in it has no meaning",)),
        ("trystate-file:///tmp/job?rank=0", ("world_size is missing",)),
        ("trystate-file:///tmp/job?rank=0&world_size=1&hosted=0", ("hosted", "it may have prefix, rank, world_size")),
    ],
)
def test_a_wrong_url_is_refused_with_what_is_wrong_and_the_remedy(url: str, texts: tuple[str, ...]) -> None:
    with pytest.raises(InvalidArgument) as raised:
        next(HANDLERS[url.partition(":")[0]](url))
    assert isinstance(raised.value, UsageError | ValueError)
    assert [text for text in (url, *texts) if text not in str(raised.value)] == []
    assert "init_process_group" not in str(raised.value)  # init_rpc meets at URLs too


def test_each_missing_variable_is_named_with_its_meaning(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("WORLD_SIZE", "1"), ("RANK", "0"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "port")):
        with pytest.raises(InvalidArgument, match=f"variable {name} is not set; set it to .*torchrun"):
            next(env_rendezvous("trystate-env://"))
        monkeypatch.setenv(name, value)
    with pytest.raises(InvalidArgument, match=r"MASTER_PORT='port' is not a whole number; give 0 to 65535"):
        next(env_rendezvous("trystate-env://"))


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_master_addr_is_an_ipv6_address_with_or_without_brackets(monkeypatch: pytest.MonkeyPatch) -> None:
    with TCPStoreServer("::1") as server:
        for name, value in zip(VARIABLES, ("::1", str(server.port), "0", "1", "True"), strict=True):
            monkeypatch.setenv(name, value)
        for host in ("::1", "[::1]"):
            monkeypatch.setenv("MASTER_ADDR", host)
            with met("trystate-env://") as ((store, _, _),):
                assert store.underlying_store.host == "::1"
        monkeypatch.setenv("MASTER_ADDR", "[::1]:29500")
        with pytest.raises(InvalidArgument, match=r"MASTER_ADDR: .* is not a host"):
            next(env_rendezvous("trystate-env://"))
