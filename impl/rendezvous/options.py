"""The options of a node: torchrun's options and --rdzv-conf, all of them checked.

Rule: no option is ignored. An option without a meaning here is refused, and the error lists the known options.
"""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

from torch.distributed.elastic.rendezvous import RendezvousParameters

from trystate.model.errors import UsageError

from ..host.addresses import known_host
from ..host.secret import read_secret
from ..host.tls import Tls
from .command import PARTS, UNKNOWN, Command
from .errors import RendezvousSettingsError
from .state import RANK_KEY_LENGTH_MAX, Settings

T = TypeVar("T")
NO_ID = "none"  # torchrun's name for a job without an id
STORE_TYPES = ("tcp", "file", "memory")
SECONDS_MAX = 365 * 86400.0
ATTEMPTS_MAX = 1_000_000
VARIABLE = "env:"  # before the name of a variable

KNOWN = {
    "join_timeout":           "seconds within which a node must be in a complete round; a spare waits for ever",
    "timeout":                "the same, if join_timeout is not given; torchrun's own default is 900",
    "last_call_timeout":      "seconds that the first round waits for more nodes once it has min_nodes",
    "rescale_timeout":        "the same for every later round",
    "scale_up_interval":      "seconds that a complete round lasts before newcomers alone may replace it",
    "close_timeout":          "seconds that closing and leaving may take",
    "keep_alive_interval":    "seconds between two heartbeats",
    "keep_alive_max_attempt": "heartbeats that may be missed, at least 3",
    "other_jobs_timeout":     "seconds that a node serves other jobs at its endpoint after its job has ended",
    "read_timeout":           "seconds until the endpoint must answer, and that the agent waits for a key",
    "store_type":             "tcp: a server at the endpoint; file: the endpoint is a path; memory: one process",
    "is_host":                "1: this node serves the endpoint; 0: another one does; else by the endpoint's address",
    "secret_file":            "a file with the secret that each client of the endpoint must have",
    "tls":                    "a folder with tls.crt, tls.key and ca.crt: the endpoint and its clients use TLS",
    "local_id":               "distinguishes the agents of one process",
    "agree_on":               "what all nodes run alike: program+arguments+nproc, fewer of these, or nothing",
    "rank_key":               "ranks follow it, and then the nodes' addresses: a text, or env:NAME for a variable",
    "record":                 "the node that serves the endpoint records it in this file, for trystate explain",
    "max_restarts":           "restarts of the job, counted for all nodes; else each agent counts its own",
}  # fmt: skip
_ETCD = "it belongs to torch's etcd backends: leave it out, because the endpoint here is a store"
NOT_HERE = {
    "heartbeat_timeout": "leave it out: a heartbeat is tried until the node's lease is over, "
                         "after keep_alive_interval times keep_alive_max_attempt seconds",
    "rank": "it belongs to torch's static rendezvous: give rank_key, which ranks follow",
    **dict.fromkeys(("protocol", "cert", "key", "cacert", "ssl_cert", "ssl_cert_key", "ca_cert", "etcd_prefix"), _ETCD),
}  # fmt: skip
"""The options of torch without a meaning here, each with a remedy."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one node; times in seconds."""

    run_id: str
    settings: Settings
    endpoint: str = ""
    local_addr: str | None = None
    join_timeout: float = 600.0
    close_timeout: float = 30.0
    other_jobs_timeout: float = 86400.0
    read_timeout: float = 60.0
    store_type: str = "tcp"
    is_host: bool | None = None
    secret: bytes | None = field(default=None, repr=False)
    tls: Tls | None = None
    local_id: int | None = None
    rank_key: str = ""
    record: str = ""

    @classmethod
    def of(cls, params: RendezvousParameters, command: Command = UNKNOWN) -> Options:
        """The options from torch's parameters and the node's command, if the command is known.

        Raises:
            RendezvousSettingsError: an option is unknown or has an invalid value; the text lists the valid ones.
        """
        said = _Config(params.config)
        if not params.run_id:
            said.refuse("--rdzv-id", params.run_id, "give all nodes of one job the same name")
        settings = Settings(
            params.min_nodes,
            params.max_nodes,
            last_call_timeout=said.seconds("last_call_timeout", 30.0),
            rescale_timeout=said.seconds("rescale_timeout", 0.0),
            keep_alive_interval=said.seconds("keep_alive_interval", 5.0, least=0.001),
            keep_alive_max_attempt=said.whole("keep_alive_max_attempt", 3, 3, ATTEMPTS_MAX),
            max_restarts=said.whole("max_restarts", -1, 0, ATTEMPTS_MAX) if "max_restarts" in params.config else -1,
            scale_up_interval=said.seconds("scale_up_interval", 0.0),
            command=command.only(said.parts("agree_on", PARTS)),
        )
        return cls(
            params.run_id,
            settings,
            endpoint=(params.endpoint or "").strip(),
            local_addr=_local_addr(params.local_addr),
            join_timeout=said.seconds("join_timeout", said.seconds("timeout", 600.0, least=0.001), least=0.001),
            close_timeout=said.seconds("close_timeout", 30.0, least=0.001),
            other_jobs_timeout=said.seconds("other_jobs_timeout", 86400.0),
            read_timeout=said.seconds("read_timeout", 60.0, least=0.001),
            store_type=said.one_of("store_type", STORE_TYPES),
            is_host=said.flag("is_host"),
            secret=said.read("secret_file", read_secret),
            tls=said.read("tls", Tls),
            local_id=said.whole("local_id", 0, 0, 1 << 31) if "local_id" in params.config else None,
            rank_key=said.text("rank_key", RANK_KEY_LENGTH_MAX),
            record=said.file_of_a_server("record"),
        )


def _local_addr(given: str | None) -> str | None:
    """The address that a node writes for the others; a name is checked now, because they use it after the join."""
    try:
        return known_host(given) if given else None
    except UsageError as error:
        raise RendezvousSettingsError(f"--local-addr: {error}") from error


class _Config:
    """The values of --rdzv-conf, which are texts, or a program's values, which can be any objects."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config
        for name in config:
            if name not in KNOWN:
                near = difflib.get_close_matches(name, KNOWN, 1)
                meant = f"did you mean {near[0]}? " if near else ""
                if name in NOT_HERE:
                    meant = f"{NOT_HERE[name]}. "
                raise RendezvousSettingsError(f"--rdzv-conf has {name}, which is not an option here: {meant}"
                                              f"The options are {', '.join(sorted(KNOWN))}")  # fmt: skip

    def refuse(self, name: str, value: object, remedy: str) -> NoReturn:
        meaning = f" ({KNOWN[name]})" if name in KNOWN else ""
        raise RendezvousSettingsError(f"{name}={value!r}{meaning}: {remedy}")

    def _number(self, name: str, default: float, kind: Callable[[Any], float], remedy: str) -> float:
        value = self._config.get(name, default)
        try:
            number = kind(value)
        except (TypeError, ValueError, OverflowError):
            self.refuse(name, value, remedy)
        if isinstance(value, bool) or (not isinstance(value, str) and number != value):
            self.refuse(name, value, remedy)
        return number

    def seconds(self, name: str, default: float, *, least: float = 0.0) -> float:
        remedy = f"give seconds from {least:g} to {SECONDS_MAX:g}"
        number = self._number(name, default, float, remedy)
        if not least <= number <= SECONDS_MAX or math.isnan(number):
            self.refuse(name, self._config.get(name), remedy)
        return number

    def whole(self, name: str, default: int, least: int, most: int) -> int:
        remedy = f"give a whole number from {least} to {most}"
        number = int(self._number(name, default, int, remedy))
        if not least <= number <= most:
            self.refuse(name, number, remedy)
        return number

    def one_of(self, name: str, values: tuple[str, ...]) -> str:
        value = str(self._config.get(name, values[0])).strip().lower()
        if value not in values:
            self.refuse(name, value, f"give {', '.join(values[:-1])} or {values[-1]}")
        return value

    def parts(self, name: str, all_: tuple[str, ...]) -> tuple[str, ...]:
        """The chosen parts, given as words joined by +; the word `nothing` chooses no part."""
        value = str(self._config.get(name, "+".join(all_))).strip().lower()
        words = [word.strip() for word in value.split("+")]
        if words == ["nothing"]:
            return ()
        if not set(words) <= set(all_):
            self.refuse(name, value, f"give {'+'.join(all_)}, fewer of these, or nothing")
        return tuple(words)

    def text(self, name: str, length_max: int) -> str:
        """A text, or the value of the variable that it names; empty without the option."""
        value = said = str(self._config.get(name, "")).strip()
        if said.startswith(VARIABLE):
            variable = said.removeprefix(VARIABLE)
            value = os.environ.get(variable, "").strip()
            if not value:
                self.refuse(name, said, f"the variable {variable} is not set on this node; set it, or give a text")
        if name in self._config and not (0 < len(value) <= length_max and value.isprintable()):
            self.refuse(name, value[:length_max], f"give 1 to {length_max} characters that can be printed")
        return value

    def file_of_a_server(self, name: str) -> str:
        """The path of a file that a server writes; empty without the option."""
        path = str(self._config.get(name, "")).strip()
        if name in self._config and not path:
            self.refuse(name, path, "name a file")
        if path and self.one_of("store_type", STORE_TYPES) != "tcp":
            self.refuse(name, path, "only a server is recorded: leave out store_type, or this option")
        return path

    def flag(self, name: str) -> bool | None:
        value = self._config.get(name)
        text = str(int(value) if isinstance(value, bool) else value).strip().lower()
        if value is None or text in ("1", "true", "t", "yes", "y"):
            return None if value is None else True
        if text in ("0", "false", "f", "no", "n"):
            return False
        self.refuse(name, value, "give 1 or 0")

    def read(self, name: str, read: Callable[[str], T]) -> T | None:
        """What `read` returns for a path; None without the option."""
        path = self._config.get(name)
        if path is None:
            return None
        try:
            return read(str(path))
        except UsageError as error:
            self.refuse(name, path, str(error))
