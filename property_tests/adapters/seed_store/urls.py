"""The URLs of torch 1.9: how `rendezvous` finds a handler, and how the tcp:// and env:// handlers read a URL.

Written from the description in ddp-initialisation 2.3, 3.2.2 and 3.2.3; no line is copied. A handler returns the
arguments of the store that it would make (`store.Store`).
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
    """The result of the scheme's handler for the URL, whose query gets the given rank and world size."""
    parts = urlsplit(url)
    said = {name: str(n) for name, n in (("rank", rank), ("world_size", world_size)) if n != NOT_GIVEN}
    query = _query(url) | said
    return handlers[parts.scheme](urlunsplit(parts._replace(query=urlencode(query))) if said else url)


def tcp(url: str) -> Met:
    """tcp://HOST:PORT: the query has rank and world size; rank 0 serves.

    Raises:
        LookupError: the query lacks the rank or the world size.
        AssertionError: the URL has no host.
        TypeError: the URL has no port, which the store needs.
    """
    query, parts = _query(url), urlsplit(url)
    rank, world_size = int(query["rank"]), int(query["world_size"])
    assert parts.hostname is not None, "no host"
    if parts.port is None:
        raise TypeError("no port")
    return Client(parts.hostname, parts.port, world_size, serves=rank == 0), rank, world_size


def env(url: str) -> Met:
    """env://: variables have the values that the query lacks; with the agent's store no rank serves.

    Raises:
        ValueError: a required variable is not set, or is empty.
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
