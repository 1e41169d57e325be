"""init_process_group, rendezvous and handlers of torch, and our handlers, in every context of their tables.

Rule: the real functions decide. Records of the arguments replace only the constructors of stores and the creation of
the group, which follow the decision.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any
from unittest import mock
from urllib.parse import urlparse

import torch.distributed as dist
from torch._C._distributed_c10d import HashStore
from torch.distributed import distributed_c10d
from torch.testing._internal.distributed import fake_pg

from trystate.impl.store import urls
from trystate.model.groups.initialisation import INITIALISATION, Init, Meet, Merge
from trystate.model.groups.vocabulary import Edition

from ..torch_rendezvous.contexts import Observed, observed

rendezvous: Any = importlib.import_module("torch.distributed.rendezvous")  # the package has a function of that name
Words = Mapping[str, Any]
Answer = Init | Merge | Meet | str  # a text: an answer that no table has
AGENT = "TORCHELASTIC_USE_AGENT_STORE"
VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", AGENT)
ERRORS = (AssertionError, LookupError, RuntimeError, TypeError, ValueError)
SCHEME = "asked"  # registered while rendezvous is called
SIZE = 3


LACKING: Mapping[str, Answer] = {  # a part of the message of torch or ours -> what is lacking
    **dict.fromkeys(("hostname cannot be", "no host"), Meet.NO_HOST),
    **dict.fromkeys(("port number missing", "no port"), Meet.NO_PORT),
    **dict.fromkeys(("rank parameter", "'rank'", "rank is missing", "variable RANK"), Meet.NO_RANK),
    **dict.fromkeys(("world size", "'world_size'", "world_size is missing", "variable WORLD_SIZE"), Meet.NO_SIZE),
    "path missing": Meet.NO_PATH, "MASTER_ADDR": Meet.NO_ADDRESS, "MASTER_PORT": Meet.NO_MASTER_PORT,
}  # fmt: skip


class _GroupMade(Exception):
    """The arguments of _new_process_group_helper."""


def contexts(**values: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
    """Every combination of the values."""
    for each in product(*values.values()):
        yield dict(zip(values, each, strict=True))


# ---- init_process_group


def init() -> Observed:
    """torch's init_process_group."""
    rows = (
        (words, {
            "twice": words["twice"], "store": words["store"], "method": words["method"] is not None,
            "size": words["size"] > 0, "rank": words["rank"] >= 0, "mpi": words["backend"] == "mpi",
            "fake": words["backend"] == "fake",
        })
        for words in contexts(
            twice=(False, True), store=(False, True), method=(None, "env://", "tcp://host:1"), size=(-1, 0, 1, 2),
            rank=(-1, 0, 1), backend=("gloo", "mpi", "fake"),
        )
    )  # fmt: skip
    return observed(INITIALISATION[Edition.TORCH]["init_process_group"], rows, _ask_init)


def _ask_init(words: Words) -> Answer:
    given, met, fake, asked = HashStore(), HashStore(), HashStore(), list[str]()

    def meet(url: str, rank: int, size: int, **_: Any) -> Iterator[tuple[Any, int, int]]:
        asked.append(url)
        yield met, rank, size

    def make(size: int, rank: int, ranks: list[int], backend: str, store: Any, *_: Any, **__: Any) -> Any:
        raise _GroupMade(store)

    world = mock.PropertyMock(return_value=object() if words["twice"] else None)
    with (
        mock.patch.object(type(distributed_c10d.GroupMember), "WORLD", world),
        mock.patch.object(distributed_c10d, "rendezvous", meet),
        mock.patch.object(distributed_c10d, "_new_process_group_helper", make),
        mock.patch.object(distributed_c10d, "_world", distributed_c10d._World()),
        mock.patch("warnings.warn"),
        mock.patch.object(fake_pg, "FakeStore", lambda: fake),
        mock.patch.object(dist, "is_initialized", lambda: False),  # the log of exceptions would query the group
    ):
        try:
            dist.init_process_group(
                words["backend"], words["method"], world_size=words["size"], rank=words["rank"],
                store=given if words["store"] else None,
            )  # fmt: skip
        except _GroupMade as made:
            (store,) = made.args
        except ERRORS as error:
            return _named(error, {
                "twice": Init.TWICE, "both init_method and store": Init.BOTH, "world_size must be": Init.NO_SIZE,
                "rank must be": Init.NO_RANK,
            })  # fmt: skip
    return _store_of(store, given, met, fake, asked, words)


def _store_of(store: Any, given: Any, met: Any, fake: Any, asked: list[str], words: Words) -> Answer:
    if store is given:
        return Init.STORE
    if type(store) is distributed_c10d.Store:
        return Init.MPI
    store.set("key", "value")  # the key shows which store is below it, and under which prefix
    if fake.check(["default_pg/key"]):
        return Init.FAKE
    if not met.check(["default_pg/key"]):
        return f"a {type(store).__name__}"
    wanted = words["method"] or "env://"
    return f"rendezvous of {asked}" if asked != [wanted] else Init.URL if words["method"] else Init.ENV


def _named(error: BaseException, known: Mapping[str, Answer]) -> Answer:
    found = [*dict.fromkeys(answer for text, answer in known.items() if text in str(error))]
    return found[0] if len(found) == 1 else f"raises {type(error).__name__}: {error}"


# ---- rendezvous


def merge() -> Observed:
    """torch's rendezvous."""
    rows = (
        (words, {
            "rank_given": words["rank"] != -1, "size_given": words["size"] != -1,
            "in_url": "rank" in words["query"] or "world_size" in words["query"], "known": words["scheme"] == SCHEME,
        })
        for words in contexts(
            rank=(-1, 0, 2), size=(-1, SIZE), scheme=(SCHEME, "unheard"),
            query=("", "?use_libuv=1", "?rank=1", "?world_size=5", "?rank=1&world_size=5"),
        )
    )  # fmt: skip
    return observed(INITIALISATION[Edition.TORCH]["rendezvous_url"], rows, _ask_merge)


def _ask_merge(words: Words) -> Answer:
    got: list[str] = []
    url = f"{words['scheme']}://host/{words['query']}"
    try:
        with mock.patch.dict(rendezvous._rendezvous_handlers, {SCHEME: lambda url, **_: got.append(url)}):
            rendezvous.rendezvous(url, words["rank"], words["size"])
    except ERRORS as error:
        return _named(error, {
            "node-specific": Merge.CLASH, "No rendezvous handler": Merge.UNKNOWN, "'unheard'": Merge.UNKNOWN,
        })  # fmt: skip
    before, after = (urlparse(each).query.split("&") for each in (url, got[0]))
    added = set(after) - set(before)
    rank, size = f"rank={words['rank']}", f"world_size={words['size']}"
    answers: dict[frozenset[str], Answer] = {
        frozenset(): Merge.PASS, frozenset({rank}): Merge.ADD_RANK, frozenset({size}): Merge.ADD_SIZE,
        frozenset({rank, size}): Merge.ADD_BOTH,
    }  # fmt: skip
    given = [name for name, held in (("rank", words["rank"]), ("world_size", words["size"])) if held != -1]
    kept = {part for part in before if part and part.partition("=")[0] not in given} <= set(after)
    return answers.get(frozenset(added), got[0]) if kept else got[0]


# ---- the handlers


def handlers(edition: Edition) -> dict[str, Observed]:
    """Each handler of torch's, or of ours."""
    ours, tables = edition is Edition.TRYSTATE, INITIALISATION[edition]
    hosted = (True, False) if ours else (True,)
    agents = (None, "True", "1")
    env = contexts(
        scheme=("env",), place=("",), rank_in=(None, 0, 1), size_in=(None, SIZE), RANK=(None, "", "0", "2"),
        WORLD_SIZE=(None, "", "5"), MASTER_ADDR=(None, "host"), MASTER_PORT=(None, "7"), AGENT=agents, hosted=hosted,
    )  # fmt: skip
    tcp = contexts(
        scheme=("tcp",), place=("host:7", "host", ":7", ""), rank_in=(None, 0, 1), size_in=(None, SIZE), AGENT=agents,
        MASTER_PORT=(None, "7", "8") if ours else (None,), hosted=hosted,
    )  # fmt: skip
    file = contexts(scheme=("file",), place=("", "/path"), rank_in=(None, 0, 1), size_in=(None, SIZE))
    return {
        table: observed(tables[table], ((words, _held(words, ours)) for words in rows), lambda words: _ask(words, ours))
        for table, rows in (("env_url", env), ("tcp_url", tcp), ("file_url", file))
        if table in tables
    }


def _held(words: Words, ours: bool) -> dict[str, bool]:
    host, colon, _ = words["place"].partition(":")
    port = words.get("MASTER_PORT")
    agents = not ours or words["scheme"] == "env" or port in (None, "7")
    return {
        "host": bool(host), "port": bool(colon), "path": bool(words["place"]), "rank_in": words["rank_in"] is not None,
        "size_in": words["size_in"] is not None, "url_zero": words["rank_in"] == 0,
        "rank_var": bool(words.get("RANK")), "size_var": bool(words.get("WORLD_SIZE")),
        "address": bool(words.get("MASTER_ADDR")), "master_port": bool(port), "var_zero": words.get("RANK") == "0",
        "agent": words.get("AGENT") == "True" and agents, "hosted": words.get("hosted", True),
    }  # fmt: skip


def _variables(words: Words) -> dict[str, str]:
    given = {**{name: words.get(name) for name in VARIABLES[:4]}, AGENT: words.get("AGENT")}
    kept = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    return {**kept, **{name: value for name, value in given.items() if value is not None}}


def _url(words: Words, ours: bool) -> str:
    query = {
        "rank": words["rank_in"],
        "world_size": words["size_in"],
        "hosted": None if words.get("hosted", True) else 0,
    }
    said = "&".join(f"{name}={value}" for name, value in query.items() if value is not None)
    return f"{'trystate-' if ours else ''}{words['scheme']}://{words['place']}{'?' if said else ''}{said}"


def _precedence(words: Words, rank: int, size: int) -> bool:
    """The query comes before the variables."""
    wanted_rank = words["rank_in"] if words["rank_in"] is not None else words.get("RANK")
    wanted_size = words["size_in"] if words["size_in"] is not None else words.get("WORLD_SIZE")
    return (str(rank), str(size)) == (str(wanted_rank), str(wanted_size))


class _Met(str):
    """The store of a group, by a name."""

    def agree(self, number: int | None) -> None:
        """torch counts no groups here."""


def _ask(words: Words, ours: bool) -> Answer:
    made: list[Answer] = []

    def tcp(host_name: str, port: int, *, is_master: bool, multi_tenant: bool | None = None, **_: Any) -> Any:
        assert (host_name, port) == ("host", 7)
        made.append(Meet.SERVE if is_master else Meet.CLIENT if ours or multi_tenant is not None else Meet.AGENT)

    def file(path: str, world_size: int) -> Any:
        assert (path, world_size) == ("/path", SIZE)
        made.append(Meet.FILE)

    def meet(make: Callable[..., object], rank: int, world_size: int, timeout: Any, *_: Any) -> Any:
        make(timeout)
        return _Met(f"the prefix of a meeting, as {rank} of {world_size}")

    replaced: dict[str, Any] = {"TCPStore": tcp, **({"meet": meet} if ours else {"FileStore": file})}
    with (
        mock.patch.dict(os.environ, _variables(words), clear=True),
        mock.patch.multiple(urls if ours else rendezvous, **replaced),
    ):
        try:
            store, rank, size = next(rendezvous.rendezvous(_url(words, ours)))
        except ERRORS as error:
            return _named(error, LACKING)
    met = not ours or f"{store}" == f"the prefix of a meeting, as {rank} of {size}"
    is_one = met and _precedence(words, rank, size) and len(made) == 1
    return made[0] if is_one else f"{made}, {store}, {rank} of {size}"
