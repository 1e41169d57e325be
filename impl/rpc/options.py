"""The options of a worker at `init_rpc`."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from trystate.model.errors import UsageError

from ..host.addresses import host_of
from ..host.tls import Tls
from .allowed import DEFAULT, Modules, check_modules
from .limits import GIB, Limits

SECONDS_MAX = 1e7  # the longest timeout: four months, which a lock can wait


class Pickles(enum.Enum):
    """The values that are allowed as arguments and results."""

    RESTRICTED = "plain data, tensors, RRefs, and the types of `Options.allowed`"
    ANY = "anything that pickle can do: other workers can then run anything on this worker"


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one worker. Raises UsageError for an impossible value.

    Args:
        timeout: seconds, of every request without its own timeout; it cannot be infinite.
        init_timeout: seconds for all workers to come and be connected.
        pickles: the values that this worker takes from others; `allowed` adds types to the restricted ones.
        modules: the functions that others may call or name here: names of modules, which include all modules below
            them; names of functions as "module:function"; members of FunctionSet. By default the program's own
            functions and torch's operators.
        secret: bytes that all workers must have, in addition to the token in the store. A relay between two machines
            cannot alter what follows.
        tls: TLS for the sockets between machines; all workers must have it, with certificates of one authority.
        host: the address at which workers on other machines reach this one; by default the variable
            TRYSTATE_RPC_HOST, or else the address of this machine's route to the store.
        arena_bytes: shared memory for the tensors to each worker of this machine, which is taken when it is used and
            given back later. A tensor that does not fit goes through the socket, at a tenth of the rate. 0 turns
            shared memory off.
        shared_tensor_bytes: tensors of this size and larger ones go through shared memory.
    """

    timeout: float = 60.0  # torch's (rpc/constants.py)
    init_timeout: float = 60.0
    pickles: Pickles = Pickles.RESTRICTED
    allowed: tuple[type, ...] = ()
    modules: Modules = DEFAULT
    secret: bytes | None = field(default=None, repr=False)
    tls: Tls | None = None
    host: str | None = None
    arena_bytes: int = 4 * GIB  # like `Limits.unsent_bytes`, the bytes that may wait for a slow peer
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
                "give 0 or more for the first, and 1 or more for the second"
            )


UNSET = -1.0  # torch's UNSET_RPC_TIMEOUT, which means that no timeout was given


def call_seconds(value: float, name: str) -> float:
    """The timeout of a call; torch's 0 (no timeout) becomes the longest possible one. Raises UsageError."""
    return SECONDS_MAX if value == 0 else checked_seconds(value, name)


def checked_seconds(value: float, name: str) -> float:
    """A timeout. Raises UsageError unless it is above 0 and at most SECONDS_MAX."""
    if not 0 < value <= SECONDS_MAX:
        raise UsageError(f"{name} is {value!r}: give seconds above 0, at most {SECONDS_MAX:.0f}")
    return float(value)
