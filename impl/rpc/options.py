"""The options of a worker at `init_rpc`."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from trystate.model.errors import UsageError

from ..host.addresses import host_of
from .allowed import DEFAULT, Modules, check_modules
from .limits import GIB, Limits

SECONDS_MAX = 1e7  # of a timeout: four months, and within what a lock can wait


class Pickles(enum.Enum):
    """The values that are allowed as arguments and results."""

    RESTRICTED = "plain data, tensors, RRefs, and the types of `Options.allowed`"
    ANY = "anything that pickle can do: a peer that may call this worker may run anything on it"


@dataclass(frozen=True, slots=True)
class Options:
    """How a worker takes part. Raises UsageError for a value that cannot be.

    Args:
        timeout: seconds, of every request that says nothing else; there is no "for ever".
        init_timeout: seconds for all workers to come and be connected.
        pickles: what is taken from other workers; `allowed` adds types to what is taken when restricted.
        modules: whose functions others may call or name here: names of modules, with all below them; names of functions
            as "module:function"; members of FunctionSet. By default the program's own functions and torch's operators.
        secret: bytes that all workers must know, beside what the store tells them.
        host: the address that workers on other machines reach this one at; by default the variable TRYSTATE_RPC_HOST,
            or else the address that this machine reaches the store by.
        arena_bytes: shared memory for the tensors to each worker of this machine, which is taken as it is used, and
            given back. A tensor that does not fit goes through the socket, at a tenth of the rate. 0: none.
        shared_tensor_bytes: from this size on a tensor goes through shared memory.
    """

    timeout: float = 60.0  # torch's (rpc/constants.py)
    init_timeout: float = 60.0
    pickles: Pickles = Pickles.RESTRICTED
    allowed: tuple[type, ...] = ()
    modules: Modules = DEFAULT
    secret: bytes | None = field(default=None, repr=False)
    host: str | None = None
    arena_bytes: int = 4 * GIB  # as much as may wait for a slow peer in its socket's queue
    shared_tensor_bytes: int = 1 << 15  # where the socket begins to be slower, measured with echoes of 1 to 64 KiB
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        for name in ("timeout", "init_timeout"):
            checked_seconds(getattr(self, name), name)
        check_modules(self.modules)
        if self.host is not None:
            object.__setattr__(self, "host", host_of(self.host))  # without brackets
        if self.secret is not None and (not isinstance(self.secret, bytes) or not self.secret):
            raise UsageError("the secret must be bytes, and not empty; pass None for no secret")
        if self.arena_bytes < 0 or self.shared_tensor_bytes < 1:
            raise UsageError(
                f"arena_bytes is {self.arena_bytes} and shared_tensor_bytes {self.shared_tensor_bytes}: "
                "give 0 or more, and 1 or more"
            )


UNSET = -1.0  # torch's UNSET_RPC_TIMEOUT: as if no timeout was given


def call_seconds(value: float, name: str) -> float:
    """The timeout of a call, where torch's 0, for no end, is the longest that can be waited for. Raises UsageError."""
    return SECONDS_MAX if value == 0 else checked_seconds(value, name)


def checked_seconds(value: float, name: str) -> float:
    """A timeout. Raises UsageError unless it is above 0 and not beyond what can be waited for."""
    if not 0 < value <= SECONDS_MAX:
        raise UsageError(f"{name} is {value!r}: give seconds above 0, at most {SECONDS_MAX:.0f}; no wait is for ever")
    return float(value)
