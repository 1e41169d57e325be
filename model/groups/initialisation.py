"""The decisions of init_process_group and of rendezvous(url) as tables: the store that a group gets.

`init_process_group` takes a store or finds one at a URL; `rendezvous_url` adds the caller's rank and world_size to the
URL and calls the handler of its scheme; `env_url`, `tcp_url` and `file_url` are the handlers. The rows are in the order
of the code's conditions. torch's tables are compared with torch's functions, ours with ours, in every context.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from ..language import Atom, DecisionTable, row
from .vocabulary import Edition


class Init(enum.Enum):
    """The store of the default group."""

    TWICE = "raises: there is a default group"
    BOTH = "raises: a store and an init_method"
    NO_SIZE = "raises: a store needs a positive world_size"
    NO_RANK = "raises: a store needs a rank"
    MPI = "none: MPI has the ranks and the size"
    STORE = "the given store, as it is"
    FAKE = "a store that does nothing, below default_pg"
    ENV = "the store of rendezvous(env://), below default_pg"
    URL = "the store of rendezvous(init_method), below default_pg"


class Merge(enum.Enum):
    """The URL that the handler of the scheme gets."""

    CLASH = "raises: rank or world_size are given twice"
    UNKNOWN = "raises: no handler has the scheme"
    ADD_BOTH = "the URL with rank and world_size in its query"
    ADD_RANK = "the URL with rank in its query"
    ADD_SIZE = "the URL with world_size in its query"
    PASS = "the URL as it is"


class Meet(enum.Enum):
    """The store that a handler returns."""

    NO_HOST = "raises: no host"
    NO_PORT = "raises: no port"
    NO_PATH = "raises: no path"
    NO_RANK = "raises: no rank"
    NO_SIZE = "raises: no world_size"
    NO_ADDRESS = "raises: no MASTER_ADDR"
    NO_MASTER_PORT = "raises: no MASTER_PORT"
    SERVE = "a TCPStore, whose server is in this process"
    CLIENT = "a client of a server of another process, or of a server that runs already"
    AGENT = "a client of the agent's server"
    AGENT_PREFIXED = "a client of the agent's server, below /worker"
    FILE = "a FileStore"


TWICE = Atom("twice", "default group exists", "the process has made a default group")
STORE = Atom("store", "store given", "the caller gives a store")
METHOD = Atom("method", "init_method given", "the caller gives a URL")
SIZE = Atom("size", "world_size > 0", "the caller gives a positive world_size")
RANK = Atom("rank", "rank ≥ 0", "the caller gives a rank")
MPI = Atom("mpi", "backend = mpi", "the backend is MPI")
FAKE = Atom("fake", "backend = fake", "the backend is torch's fake backend for tests, which does nothing")

RANK_GIVEN = Atom("rank_given", "rank ≠ -1", "the caller of rendezvous gives a rank")
SIZE_GIVEN = Atom("size_given", "world_size ≠ -1", "the caller of rendezvous gives a world_size")
IN_URL = Atom("in_url", "URL has rank or world_size", "the query of the URL has one of them")
KNOWN = Atom("known", "scheme registered", "a handler is registered for the scheme")

HOST = Atom("host", "URL has a host")
PORT = Atom("port", "URL has a port")
PATH = Atom("path", "URL has a path")
RANK_IN = Atom("rank_in", "rank in URL", "the query of the URL has a rank")
SIZE_IN = Atom("size_in", "world_size in URL", "the query of the URL has a world_size")
RANK_VAR = Atom("rank_var", "RANK set", "the environment variable RANK is set and not empty")
SIZE_VAR = Atom("size_var", "WORLD_SIZE set", "the environment variable WORLD_SIZE is set and not empty")
ADDRESS = Atom("address", "MASTER_ADDR set", "the environment variable MASTER_ADDR is set and not empty")
MASTER_PORT = Atom("master_port", "MASTER_PORT set", "the environment variable MASTER_PORT is set and not empty")
URL_ZERO = Atom("url_zero", "rank in URL = 0", "the rank in the query is 0")
VAR_ZERO = Atom("var_zero", "RANK = 0", "the environment variable RANK is 0")
AGENT = Atom("agent", "agent's store", "TORCHELASTIC_USE_AGENT_STORE is True; ours: and the port is the agent's")
HOSTED = Atom("hosted", "hosted=1", "the query does not have hosted=0")

_ZERO_IN_URL = {"rank_in": False, "url_zero": True}
_ZERO_IN_VAR = {"rank_var": False, "var_zero": True}

# fmt: off
INIT = DecisionTable(
    "init_process_group",
    doc="Find the store of the default group.",
    cite="ddp-initialisation 2.2; distributed_c10d.py:init_process_group",
    atoms=(TWICE, STORE, METHOD, SIZE, RANK, MPI, FAKE),
    impossible=({"mpi": True, "fake": True},),
    rows=(
        row(Init.TWICE,           twice=True),
        row(Init.BOTH,            store=True, method=True),
        row(Init.NO_SIZE,         store=True, size=False),
        row(Init.NO_RANK,         store=True, rank=False),
        row(Init.MPI,             mpi=True),
        row(Init.STORE,           store=True),
        row(Init.FAKE,            fake=True),
        row(Init.URL,             method=True),
        row(Init.ENV),
    ),
)

_MERGES = (
        row(Merge.UNKNOWN,        known=False),
        row(Merge.ADD_BOTH,       rank_given=True, size_given=True),
        row(Merge.ADD_RANK,       rank_given=True),
        row(Merge.ADD_SIZE,       size_given=True),
        row(Merge.PASS),
)

MERGE_SEED = DecisionTable(
    "rendezvous_url",
    doc="Put the caller's rank and world_size into the URL, over those that it has, and call the scheme's handler.",
    cite="ddp-initialisation 2.3",
    atoms=(RANK_GIVEN, SIZE_GIVEN, KNOWN),
    rows=_MERGES,
)

MERGE = DecisionTable(
    "rendezvous_url",
    doc="Put the caller's rank and world_size into the URL, and call the scheme's handler.",
    cite="ddp-initialisation 2.3; rendezvous.py:_rendezvous_helper",
    atoms=(RANK_GIVEN, SIZE_GIVEN, IN_URL, KNOWN),
    rows=(
        row(Merge.CLASH,          rank_given=True, in_url=True),
        row(Merge.CLASH,          size_given=True, in_url=True),
        *_MERGES,
    ),
)

_ENV = (RANK_IN, RANK_VAR, SIZE_IN, SIZE_VAR, ADDRESS, MASTER_PORT, AGENT, URL_ZERO, VAR_ZERO)
_ENV_NEEDS = (
        row(Meet.NO_RANK,         rank_in=False, rank_var=False),
        row(Meet.NO_SIZE,         size_in=False, size_var=False),
        row(Meet.NO_ADDRESS,      address=False),
        row(Meet.NO_MASTER_PORT,  master_port=False),
)
_ENV_SERVES = (
        row(Meet.SERVE,           url_zero=True),
        row(Meet.CLIENT,          rank_in=True),
        row(Meet.SERVE,           var_zero=True),
        row(Meet.CLIENT),
)


def _env(agent: Meet, cite: str) -> DecisionTable:
    """The table of torch's env_url, with the store that it takes from an agent."""
    return DecisionTable(
        "env_url",
        doc="env://: a TCPStore at MASTER_ADDR and MASTER_PORT; the query of the URL comes before the variables.",
        cite=cite,
        atoms=_ENV, impossible=(_ZERO_IN_URL, _ZERO_IN_VAR),
        rows=(*_ENV_NEEDS, row(agent, agent=True), *_ENV_SERVES),
    )


ENV_SEED = _env(Meet.AGENT_PREFIXED, cite="ddp-initialisation 3.2.3")
ENV = _env(Meet.AGENT, cite="ddp-initialisation 3.2.3; rendezvous.py:_env_rendezvous_handler, _create_c10d_store")

ENV_OURS = DecisionTable(
    "env_url",
    doc="trystate-env://: like env://, and keys below the prefix of one meeting of all ranks; hosted=0: a server runs.",
    atoms=(*_ENV, HOSTED), impossible=(_ZERO_IN_URL, _ZERO_IN_VAR),
    rows=(
        row(Meet.NO_SIZE,         size_in=False, size_var=False),
        row(Meet.NO_RANK,         rank_in=False, rank_var=False),
        row(Meet.NO_ADDRESS,      address=False),
        row(Meet.NO_MASTER_PORT,  master_port=False),
        row(Meet.CLIENT,          hosted=False),
        row(Meet.CLIENT,          agent=True),
        *_ENV_SERVES,
    ),
)

TCP = DecisionTable(
    "tcp_url",
    doc="tcp://HOST:PORT: a TCPStore, whose server is at rank 0, or at the agent.",
    cite="ddp-initialisation 3.2.2; rendezvous.py:_tcp_rendezvous_handler, _create_c10d_store",
    atoms=(PORT, RANK_IN, SIZE_IN, HOST, AGENT, URL_ZERO), impossible=(_ZERO_IN_URL,),
    rows=(
        row(Meet.NO_PORT,         port=False),
        row(Meet.NO_RANK,         rank_in=False),
        row(Meet.NO_SIZE,         size_in=False),
        row(Meet.NO_HOST,         host=False),
        row(Meet.AGENT,           agent=True),
        row(Meet.SERVE,           url_zero=True),
        row(Meet.CLIENT),
    ),
)

TCP_SEED = DecisionTable(
    "tcp_url",
    doc="tcp://HOST:PORT: a TCPStore, whose server is at rank 0.",
    cite="ddp-initialisation 3.2.2: the query is read first, and the constructor of the store refuses no port",
    atoms=(HOST, PORT, RANK_IN, SIZE_IN, URL_ZERO), impossible=(_ZERO_IN_URL,),
    rows=(
        row(Meet.NO_RANK,         rank_in=False),
        row(Meet.NO_SIZE,         size_in=False),
        row(Meet.NO_HOST,         host=False),
        row(Meet.NO_PORT,         port=False),
        row(Meet.SERVE,           url_zero=True),
        row(Meet.CLIENT),
    ),
)

TCP_OURS = DecisionTable(
    "tcp_url",
    doc="trystate-tcp://HOST:PORT: like tcp://, and keys below the prefix of one meeting; hosted=0: a server runs.",
    atoms=(HOST, PORT, SIZE_IN, RANK_IN, HOSTED, AGENT, URL_ZERO), impossible=(_ZERO_IN_URL,),
    rows=(
        row(Meet.NO_HOST,         host=False),
        row(Meet.NO_PORT,         port=False),
        row(Meet.NO_SIZE,         size_in=False),
        row(Meet.NO_RANK,         rank_in=False),
        row(Meet.CLIENT,          hosted=False),
        row(Meet.CLIENT,          agent=True),
        row(Meet.SERVE,           url_zero=True),
        row(Meet.CLIENT),
    ),
)

FILE = DecisionTable(
    "file_url",
    doc="file:///PATH: a FileStore; rank and world_size have no default.",
    cite="ddp-initialisation 3.2.1; rendezvous.py:_file_rendezvous_handler",
    atoms=(PATH, RANK_IN, SIZE_IN),
    rows=(
        row(Meet.NO_PATH,         path=False),
        row(Meet.NO_RANK,         rank_in=False),
        row(Meet.NO_SIZE,         size_in=False),
        row(Meet.FILE),
    ),
)
# fmt: on

INITIALISATION: Mapping[Edition, Mapping[str, DecisionTable]] = {
    edition: {table.name: table for table in tables}
    for edition, tables in {
        Edition.SEED: (MERGE_SEED, ENV_SEED, TCP_SEED),
        Edition.TORCH: (INIT, MERGE, ENV, TCP, FILE),
        Edition.TRYSTATE: (INIT, MERGE, ENV_OURS, TCP_OURS),
    }.items()
}
