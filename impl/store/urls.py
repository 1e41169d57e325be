"""`trystate-env://` and `trystate-tcp://`: torch's rendezvous URLs, on the stores of this package.

    trystate-tcp://10.0.0.1:29500?rank=0&world_size=4
    trystate-env://                                     MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE

torch adds `rank` and `world_size` to the query when they are given to `init_process_group`. Rank 0 starts the server,
with two exceptions: the query has `hosted=0`, or TORCHELASTIC_USE_AGENT_STORE is "True" and the port is the agent's,
MASTER_PORT (or MASTER_PORT is not set). Then all ranks are clients of a running server (`trystate store serve`).
Importing this module registers the schemes. Rule: an error names each missing or wrong part and where it may be given.

A rendezvous returns when all ranks have come, with a store that only their group uses (see `generations`). The store
ends when torch drops the group: `destroy_process_group` closes it, and on rank 0 also the server, as with torch's.

The query may also have these names, which torch does not have: `prefix` (keys go below it, so groups of different jobs
may share a server), `bind` (the address on which rank 0's server listens, by default its host's; "0.0.0.0" for all),
`secret_file` (a file with the server's secret), `tls` (a folder with the files of TLS). `use_libuv` is accepted and
ignored.
"""

from __future__ import annotations

import inspect
import os
import weakref
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, NoReturn, TypeVar
from urllib.parse import ParseResult, parse_qsl, urlparse

import torch.distributed as dist
from torch.distributed import Store, distributed_c10d  # type: ignore[attr-defined]
from torch.distributed.constants import default_pg_timeout
from torch.distributed.rendezvous import register_rendezvous_handler

from trystate.model.errors import UsageError

from ..host.addresses import PORT_MAX, host_and_port, host_of
from ..host.secret import read_secret
from ..host.tls import Tls
from . import base
from .client.startup import agent_serves
from .errors import InvalidArgument, NotSupported
from .generations import Make, meet
from .lives import call_of
from .prefix import PrefixStore
from .tcp import TCPStore

Triplet = tuple[Store, int, int]
DYNAMIC = -1  # the world size of a group that any process may join (torch.distributed.rpc without a world size)

INITIALISE = inspect.unwrap(distributed_c10d.init_process_group).__code__
T = TypeVar("T")
KNOWN = ("bind", "hosted", "prefix", "rank", "secret_file", "tls", "use_libuv", "world_size")


def tcp_rendezvous(url: str, timeout: timedelta = default_pg_timeout, **_: Any) -> Iterator[Triplet]:
    """The group that meets at the URL's host and port.

    Raises:
        UsageError: something is missing or wrong; see also `TCPStore`.
    """
    given = _Given("trystate-tcp://HOST:PORT", url, "netloc")
    host, port = given.place()
    rank, world_size = given.rank_and_world_size({})
    make = _client_or_server(given, host, port, rank)
    yield from _met(given, make, rank, world_size, timeout)


def env_rendezvous(url: str, timeout: timedelta = default_pg_timeout, **_: Any) -> Iterator[Triplet]:
    """The group of the environment variables MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE, which torchrun sets.

    Raises:
        UsageError: something is missing or wrong; see also `TCPStore`.
    """
    given = _Given("trystate-env://", url)
    rank, world_size = given.rank_and_world_size({"rank": "RANK", "world_size": "WORLD_SIZE"})
    host = given.host(given.variable("MASTER_ADDR", "the host of the server, rank 0's unless one runs already"))
    port = given.number(given.variable("MASTER_PORT", "the server's port"), "MASTER_PORT", 0, PORT_MAX)
    make = _client_or_server(given, host, port, rank)
    yield from _met(given, make, rank, world_size, timeout)


def _client_or_server(given: _Given, host: str, port: int, rank: int) -> Make:
    """A function that makes a client of the group's server, and on rank 0 the server."""
    hosted = given.query.get("hosted", "1")
    if hosted not in ("0", "1"):
        given.refuse(f"hosted={hosted!r}", "give 1 if rank 0 starts the server, or 0 if it runs already")
    secret, tls = given.read("secret_file", read_secret), given.read("tls", Tls)

    def make(within: timedelta) -> base.Store:
        return TCPStore(
            host,
            port,
            is_master=rank == 0 and hosted == "1" and not agent_serves(port),
            timeout=within,
            multi_tenant=True,
            secret=secret,
            tls=tls,
            bind_host=given.query.get("bind"),
        )

    return make


def _met(given: _Given, make: Make, rank: int, world_size: int, timeout: timedelta) -> Iterator[Triplet]:
    """Yield the store of a group whose ranks have all come. It ends with the group that torch makes with it.

    A group of DYNAMIC size uses the server's keys directly.

    torch counts the groups of a process, also a group that could not be made. A rank that tries again would therefore
    name each group differently from the others. All ranks continue from the highest count.

    `init_process_group` wraps the store in C++, which does not report when it drops it. torch's Python keeps that
    wrapper as long as the group. The generator ends when `init_process_group` ends, with a group or without one. Any
    other caller closes the store itself.
    """

    def begun(within: timedelta) -> base.Store:
        return given.below_prefix(make(within))

    frame = call_of(INITIALISE)
    groups, name = frame is not None, "" if frame is None else str(frame.f_locals.get("group_name", ""))
    del frame  # it refers to this generator
    if world_size == DYNAMIC:
        store: base.Store = begun(timeout)
    else:
        number = int(name) if name.isdecimal() else None
        store = group = meet(begun, rank, world_size, timeout, number, _job())
        if (highest := group.agree(number)) is not None:
            distributed_c10d._world.group_count = highest + 1
    try:
        yield store, rank, world_size
        raise NotSupported(f"{given.url!r} was used: a URL is good for one rendezvous; start another")
    finally:
        wrapper = distributed_c10d._get_default_store() if dist.is_initialized() else None
        if groups and getattr(wrapper, "_underlying_non_prefix_store", None) is store:
            weakref.finalize(wrapper, store.close).atexit = False  # `base` closes all stores at exit
        elif groups:
            store.close()


def _job() -> str:
    """This worker's job by its agent's variables. Jobs without their own id differ in the port."""
    run_id = os.environ.get("TORCHELASTIC_RUN_ID", "")
    return run_id and f"{run_id} at port {os.environ.get('MASTER_PORT', '')}"


class _Given:
    """The parts of a URL, and the errors about them."""

    def __init__(self, form: str, url: str, *read: str) -> None:
        """`read`: the parts of the URL, other than the query, that are used."""
        self.form, self.url, self.parts = form, url, _parse(url)
        for part in ("netloc", "path", "fragment"):
            if part not in read and (said := getattr(self.parts, part).strip("/")):
                self.refuse(f"{said!r} in it has no meaning", f"write {form}, and everything else in the query")
        pairs = parse_qsl(self.parts.query, keep_blank_values=True)
        self.query = dict(pairs)
        unknown = sorted(self.query.keys() - set(KNOWN))
        if unknown:
            self.refuse(f"the query has {', '.join(unknown)}", f"it may have {', '.join(KNOWN)}")
        if len(pairs) > len(self.query):
            self.refuse("the query has a name twice", "give it once")

    def refuse(self, what: str, remedy: str) -> NoReturn:
        raise InvalidArgument(f"cannot meet at {self.url!r} ({self.form}): {what}; {remedy}")

    def place(self) -> tuple[str, int]:
        """The host and the port of the URL."""
        place = self.parts.netloc
        if place[:1] in ("", ":") and place.count(":") < 2:
            self.refuse("the URL has no host", "write trystate-tcp://HOST:PORT")
        try:
            return host_and_port(place)
        except UsageError as error:
            self.refuse(str(error), "write trystate-tcp://HOST:PORT")

    def host(self, text: str) -> str:
        """The host that the variable MASTER_ADDR names."""
        try:
            return host_of(text)
        except UsageError as error:
            self.refuse(f"MASTER_ADDR: {error}", "set it to the host of the server")

    def variable(self, name: str, meaning: str) -> str:
        value = os.environ.get(name)
        if not value:
            self.refuse(f"the environment variable {name} is not set", f"set it to {meaning} (torchrun does)")
        return value

    def number(self, text: str, name: str, low: int, high: int) -> int:
        try:
            value = int(text)
        except ValueError:
            self.refuse(f"{name}={text!r} is not a whole number", f"give {low} to {high}")
        if not low <= value <= high:
            self.refuse(f"{name}={value} is outside {low} to {high}", "give another number")
        return value

    def rank_and_world_size(self, variables: Mapping[str, str]) -> tuple[int, int]:
        """Rank and world size from the query, else from these variables. A group of DYNAMIC size allows any rank."""
        dynamic = self.query.get("world_size") == str(DYNAMIC)
        size_variable = os.environ.get(variables.get("world_size", ""))
        if dynamic and not size_variable:
            world_size = DYNAMIC
        else:
            text = size_variable if dynamic and size_variable else self._text("world_size", variables)
            world_size = self.number(text, "world_size", 1, 2**31 - 1)
        high = world_size - 1 if world_size > 0 else 2**31 - 1
        return self.number(self._text("rank", variables), "rank", 0, high), world_size

    def _text(self, name: str, variables: Mapping[str, str]) -> str:
        if name in self.query:
            return self.query[name]
        if name in variables:
            return self.variable(variables[name], f"this process's {name.replace('_', ' ')}")
        self.refuse(f"{name} is missing", f"give {name}=... with the URL, or ?{name}=... in it")

    def read(self, name: str, read: Callable[[str], T]) -> T | None:
        """What `read` returns for a path; None without the part."""
        path = self.query.get(name)
        if path is None:
            return None
        try:
            return read(path)
        except UsageError as error:
            self.refuse(f"{name}={path!r}", str(error))

    def below_prefix(self, store: base.Store) -> base.Store:
        prefix = self.query.get("prefix")
        return store if prefix is None else PrefixStore.owning(prefix, store)


def _parse(url: str) -> ParseResult:
    try:
        return urlparse(url)
    except ValueError as error:
        raise InvalidArgument(f"{url!r} is not a URL: {error}; write it like trystate-tcp://HOST:PORT") from None


HANDLERS: Mapping[str, Callable[..., Iterator[Triplet]]] = {
    "trystate-env": env_rendezvous,
    "trystate-tcp": tcp_rendezvous,
}
_registered: set[str] = set()


def register() -> None:
    """Register the schemes with `torch.distributed`. A second call does nothing."""
    for scheme, handler in HANDLERS.items():
        if scheme not in _registered:
            register_rendezvous_handler(scheme, handler)  # type: ignore[no-untyped-call]
            _registered.add(scheme)


register()
