"""The messages of backward passes and of contexts, and their bytes. Tensors travel beside them.

Each is a request with one answer: BACKWARD and MARK are answered DONE or FAILED; CANCEL, CLEAN and KEPT are
acknowledged. A BACKWARD or a MARK may be piggybacked on DONE: it has no answer of its own.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from trystate.model.autograd.vocabulary import Failure, Mode

from .dependencies import UNDEFINED
from .errors import BY_FAILURE, AutogradError, PassError

# Kinds of requests of the agent, of those that are free: see `impl/rpc/agent.py`.
BACKWARD, MARK, CANCEL, CLEAN, KEPT = range(64, 69)

MAX_TEXT = 65_536  # characters of an error that travels; a longer one is cut
MAX_MARKS = 1 << 20  # sends that one MARK may name
MAX_SECONDS = 1_000_000.0  # of a pass
MAX_NAMES = 64  # calls without a gradient that one answer names

_BACKWARD = struct.Struct("!QQQd??")
_MARK = struct.Struct("!QQd?I")
_PASS = struct.Struct("!QQ?")
_CLEAN = struct.Struct("!QQ")
_KEPT = struct.Struct("!Q")
_DONE = struct.Struct("!?q")
_KIND = struct.Struct("!B")
_FORWARD = struct.Struct("!QQH")
NO_BUDGET = 0.0  # until the driver sends the message, or in one that is piggybacked: its pass is here already
NO_MESSAGE = (1 << 64) - 1  # the last id of worker 65535: given to no message, since no such worker makes so many


def _check_budget(seconds: float) -> None:
    """Raises AutogradError: a pass with this budget would never end by itself."""
    if not 0 <= seconds <= MAX_SECONDS:
        raise AutogradError(f"a pass has {seconds} seconds: 0 to {MAX_SECONDS:g} are possible")


class Backward(NamedTuple):
    """The gradients for the send of a message; `budget` is what is left of the pass's time, in seconds.

    `undefined` says which of those that are None came and are not defined; no other has come.
    """

    context: int
    number: int  # of the pass: its root worker, and how many passes that had begun before
    message: int
    budget: float
    retain: bool
    smart: bool
    undefined: tuple[int, ...] = ()

    def pack(self) -> bytes:
        *head, undefined = self
        return _BACKWARD.pack(*head) + struct.pack(f"!{len(undefined)}I", *undefined)

    @classmethod
    def unpack(cls, body: bytes) -> Backward:
        context, number, message, budget, retain, smart = _parse(_BACKWARD, body, exact=False)
        _check_budget(budget)
        count, rest = divmod(len(body) - _BACKWARD.size, 4)
        if rest:
            raise AutogradError(f"a BACKWARD of {len(body)} bytes: {_BACKWARD.size}, and 4 for each undefined gradient")
        undefined = struct.unpack_from(f"!{count}I", body, _BACKWARD.size)
        return cls(context, number, message, budget, retain, smart, undefined)

    def marked(self, gradients: Sequence[Any]) -> list[Any]:
        """The gradients that came with it. Raises AutogradError if they are not those that it speaks of."""
        found = list(gradients)
        for at in self.undefined:
            if at >= len(found) or found[at] is not None:
                raise AutogradError(f"gradient {at} of {len(found)} is said to be undefined, and is not")
            found[at] = UNDEFINED
        return found

    @property
    def sends(self) -> tuple[int, ...]:
        """The messages whose sends it is for."""
        return (self.message,)

    @property
    def mode(self) -> Mode:
        return Mode.SMART if self.smart else Mode.FAST


class Mark(NamedTuple):
    """These sends take part in a SMART pass."""

    context: int
    number: int
    budget: float
    retain: bool
    messages: tuple[int, ...]

    def pack(self) -> bytes:
        head = _MARK.pack(self.context, self.number, self.budget, self.retain, len(self.messages))
        return head + struct.pack(f"!{len(self.messages)}Q", *self.messages)

    @classmethod
    def unpack(cls, body: bytes) -> Mark:
        context, number, budget, retain, count = _parse(_MARK, body, exact=False)
        _check_budget(budget)
        if not 0 < count <= MAX_MARKS or len(body) != _MARK.size + 8 * count:
            raise AutogradError(f"a MARK of {len(body)} bytes with {count} messages: 1 to {MAX_MARKS}, of 8 bytes each")
        return cls(context, number, budget, retain, struct.unpack_from(f"!{count}Q", body, _MARK.size))

    @property
    def sends(self) -> tuple[int, ...]:
        """The messages whose sends it is for."""
        return self.messages


class Cancel(NamedTuple):
    """The pass is over, and why; `ask`: name the calls that got no gradient."""

    context: int
    number: int
    ask: bool
    reason: str

    def pack(self) -> bytes:
        return _PASS.pack(self.context, self.number, self.ask) + self.reason[:MAX_TEXT].encode(
            errors="backslashreplace"
        )

    @classmethod
    def unpack(cls, body: bytes) -> Cancel:
        context, number, ask = _parse(_PASS, body, exact=False)
        return cls(context, number, ask, body[_PASS.size :].decode(errors="replace"))


class Clean(NamedTuple):
    """A context is over, and so are all of its creator's that are older than `low`."""

    context: int
    low: int

    def pack(self) -> bytes:
        return _CLEAN.pack(*self)

    @classmethod
    def unpack(cls, body: bytes) -> Clean:
        context, low = _parse(_CLEAN, body)
        return cls(context, low)


class Kept(NamedTuple):
    """To the creator of contexts: the sender remembers one by one that some are over, of which this is the last."""

    context: int

    def pack(self) -> bytes:
        return _KEPT.pack(*self)

    @classmethod
    def unpack(cls, body: bytes) -> Kept:
        (context,) = _parse(_KEPT, body)
        return cls(context)


class Unused(NamedTuple):
    """The sends of a part that got no gradient: its message, and what was called; and the recvs that shipped none."""

    missing: dict[int, str]
    blocked: frozenset[int]

    def pack(self) -> bytes:
        missing = dict(list(self.missing.items())[:MAX_NAMES])
        return json.dumps([missing, sorted(self.blocked)[: MAX_NAMES * 16]]).encode()

    @classmethod
    def unpack(cls, body: bytes) -> Unused:
        if not body:
            return cls({}, frozenset())
        missing, blocked = json.loads(body)
        return cls({int(k): str(v) for k, v in missing.items()}, frozenset(int(k) for k in blocked))


class Forward(NamedTuple):
    """The metadata of a call, or of its answer, inside a context: see seed "distributed autograd contexts", 4.4."""

    context: int
    message: int  # NO_MESSAGE: no tensor requires a gradient
    needs: tuple[bool, ...]  # which tensors do

    def pack(self) -> bytes:
        bits = sum(1 << at for at, need in enumerate(self.needs) if need)
        return _FORWARD.pack(self.context, self.message, len(self.needs)) + bits.to_bytes((len(self.needs) + 7) // 8)

    @classmethod
    def unpack(cls, body: bytes) -> Forward:
        context, message, count = _parse(_FORWARD, body, exact=False)
        if len(body) != _FORWARD.size + (count + 7) // 8:
            raise AutogradError(
                f"metadata of {len(body)} bytes for {count} tensors: {_FORWARD.size} and a bit for each"
            )
        bits = int.from_bytes(body[_FORWARD.size :])
        return cls(context, message, tuple(bool(bits >> at & 1) for at in range(count)))


PIGGYBACKED: dict[int, type[Backward] | type[Mark]] = {BACKWARD: Backward, MARK: Mark}


class Done(NamedTuple):
    """The answer to BACKWARD or MARK: the change of sends without a gradient in this subtree (deficit.py)."""

    change: int = 0
    piggybacked: Backward | Mark | None = None  # a message to the worker that gets this answer

    def pack(self) -> bytes:
        head = _DONE.pack(True, self.change)
        if self.piggybacked is None:
            return head
        return head + _KIND.pack(MARK if isinstance(self.piggybacked, Mark) else BACKWARD) + self.piggybacked.pack()


def failed(error: PassError) -> bytes:
    """An answer: the pass has failed, or was refused."""
    told = [error.failure.name, list(error.workers), error.text[:MAX_TEXT]]
    return b"\0" + json.dumps(told).encode()


def unpack_outcome(body: bytes) -> Done | PassError:
    """The outcome in an answer of `Done.pack` or `failed`; a PassError for any other bytes."""
    try:
        return _outcome(body)
    except (AutogradError, ValueError, LookupError, TypeError, ArithmeticError, RecursionError) as error:
        return PassError(f"an answer of {len(body)} bytes cannot be read: {error}; is the peer of this version?")


def _outcome(body: bytes) -> Done | PassError:
    if body[:1] == b"\0":
        failure, workers, text = json.loads(body[1:])
        return BY_FAILURE[Failure[failure]](str(text), tuple(map(int, workers)))
    _, change = _parse(_DONE, body, exact=False)
    if len(body) == _DONE.size:
        return Done(change)
    kind, told = body[_DONE.size], body[_DONE.size + 1 :]
    if kind not in PIGGYBACKED:
        raise AutogradError(f"an answer carries a request of kind {kind}: only {BACKWARD} and {MARK} are carried")
    return Done(change, PIGGYBACKED[kind].unpack(told))


def _parse(form: struct.Struct, body: bytes, exact: bool = True) -> tuple[Any, ...]:
    if len(body) != form.size if exact else len(body) < form.size:
        raise AutogradError(f"a message of {len(body)} bytes where {form.size} are due")
    return form.unpack_from(body)
