"""The URLs of torch 1.9: how `rendezvous` finds a handler, and what those of tcp:// and env:// make of a URL.

Written from the description in ddp-initialisation 2.3, 3.2.2 and 3.2.3, of which no line is copied. A handler returns
the arguments of the store that it would make: the store itself is `store.Store`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

NOT_GIVEN = -1
OF_WORKERS = "/worker"
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Client:
    """The arguments of a TCPStore, and the prefix of its keys."""

    host: str
    port: int
    world_size: int
    serves: bool
    prefix: str = ""


Met = tuple[Client, int, int]  # with the rank and the world size


def rendezvous(url: str, rank: int, world_size: int, handlers: Mapping[str, Callable[[str], Made]]) -> Made:
    """The answer of the scheme's handler, which gets the URL with what the caller gives in its query."""
    parts = urlsplit(url)
    said = {name: str(n) for name, n in (("rank", rank), ("world_size", world_size)) if n != NOT_GIVEN}
    query = _query(url) | said
    return handlers[parts.scheme](urlunsplit(parts._replace(query=urlencode(query))) if said else url)


def tcp(url: str) -> Met:
    """tcp://HOST:PORT: the query has rank and world size; rank 0 serves.

    Raises:
        LookupError: the query lacks one.
        AssertionError: there is no host.
        TypeError: there is no port, which the store needs.
    """
    query, parts = _query(url), urlsplit(url)
    rank, world_size = int(query["rank"]), int(query["world_size"])
    assert parts.hostname is not None, "no host"
    if parts.port is None:
        raise TypeError("no port")
    return Client(parts.hostname, parts.port, world_size, serves=rank == 0), rank, world_size


def env(url: str) -> Met:
    """env://: what the query lacks is in variables; with the agent's store no rank serves.

    Raises:
        ValueError: a variable that is needed is not set, or empty.
    """
    query = _query(url)
    rank, world_size = (int(query.get(name) or _variable(name.upper())) for name in ("rank", "world_size"))
    host, port = _variable("MASTER_ADDR"), int(_variable("MASTER_PORT"))
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return Client(host, port, world_size, False, OF_WORKERS), rank, world_size
    return Client(host, port, world_size, serves=rank == 0), rank, world_size


def _query(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query))


def _variable(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise ValueError(f"variable {name}")
    return value


HANDLERS: Mapping[str, Callable[[str], Met]] = {"tcp": tcp, "env": env}
