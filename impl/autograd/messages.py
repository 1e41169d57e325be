"""The messages of backward passes and of contexts, and their bytes. Tensors are sent next to them.

Each is a request with one answer: BACKWARD and MARK are answered DONE or FAILED; CANCEL, CLEAN and KEPT are
acknowledged. A BACKWARD or a MARK may be piggybacked on DONE; then it gets no answer.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from trystate.model.autograd.vocabulary import Failure, Mode

from .dependencies import UNDEFINED
from .errors import BY_FAILURE, AutogradError, PassError

# Kinds of requests, from the agent's FREE_KINDS (impl/rpc/agent.py).
BACKWARD, MARK, CANCEL, CLEAN, KEPT = range(64, 69)

MAX_TEXT = 65_536  # characters of an error that is sent; a longer one is cut
MAX_MARKS = 1 << 20  # sends that one MARK may name
MAX_SECONDS = 1_000_000.0  # the longest pass
MAX_NAMES = 64  # calls without a gradient that one answer names

_BACKWARD = struct.Struct("!QQQd??")
_MARK = struct.Struct("!QQd?I")
_PASS = struct.Struct("!QQ?")
_CLEAN = struct.Struct("!QQ")
_KEPT = struct.Struct("!Q")
_DONE = struct.Struct("!?q")
_KIND = struct.Struct("!B")
_FORWARD = struct.Struct("!QQH")
NO_BUDGET = 0.0  # until the driver sends the message, and in a piggybacked message, whose pass has begun already
NO_MESSAGE = (1 << 64) - 1  # the last id of worker 65535, which no message ever reaches


def _check_budget(seconds: float) -> None:
    """Raises AutogradError for a budget that would never end."""
    if not 0 <= seconds <= MAX_SECONDS:
        raise AutogradError(f"a pass has {seconds} seconds: the limits are 0 and {MAX_SECONDS:g}")


class Backward(NamedTuple):
    """The gradients for the send of a message; `budget` is the rest of the pass's time, in seconds.

    `undefined` lists the gradients that came and are not defined; every other None did not come.
    """

    context: int
    number: int  # the id of the pass: its root worker, and the number of passes that had begun there before
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
            raise AutogradError(
                f"a BACKWARD has {len(body)} bytes, not {_BACKWARD.size} and 4 for each undefined gradient"
            )
        undefined = struct.unpack_from(f"!{count}I", body, _BACKWARD.size)
        return cls(context, number, message, budget, retain, smart, undefined)

    def marked(self, gradients: Sequence[Any]) -> list[Any]:
        """The gradients that came with it. Raises AutogradError if they do not fit to `undefined`."""
        found = list(gradients)
        for at in self.undefined:
            if at >= len(found) or found[at] is not None:
                raise AutogradError(f"a BACKWARD lists gradient {at} of {len(found)} as undefined, and it is not")
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
            raise AutogradError(f"a MARK has {len(body)} bytes and {count} messages, not 1 to {MAX_MARKS} of 8 bytes")
        return cls(context, number, budget, retain, struct.unpack_from(f"!{count}Q", body, _MARK.size))

    @property
    def sends(self) -> tuple[int, ...]:
        """The messages whose sends it is for."""
        return self.messages

    @property
    def mode(self) -> Mode:
        return Mode.SMART


class Cancel(NamedTuple):
    """The pass is over, for this reason. With `ask`, the answer names the calls without a gradient."""

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
    """A context is over, and so are all contexts of its creator that are older than `low`."""

    context: int
    low: int

    def pack(self) -> bytes:
        return _CLEAN.pack(*self)

    @classmethod
    def unpack(cls, body: bytes) -> Clean:
        return cls(*_parse(_CLEAN, body))


class Kept(NamedTuple):
    """To a creator: the sender remembers single contexts that are over; this is the last of them."""

    context: int

    def pack(self) -> bytes:
        return _KEPT.pack(*self)

    @classmethod
    def unpack(cls, body: bytes) -> Kept:
        return cls(*_parse(_KEPT, body))


class Unused(NamedTuple):
    """The sends of a local pass without a gradient, by message, with the called function; recvs that sent none."""

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
    needs: tuple[bool, ...]  # which tensors require one

    def pack(self) -> bytes:
        bits = sum(1 << at for at, need in enumerate(self.needs) if need)
        return _FORWARD.pack(self.context, self.message, len(self.needs)) + bits.to_bytes((len(self.needs) + 7) // 8)

    @classmethod
    def unpack(cls, body: bytes) -> Forward:
        context, message, count = _parse(_FORWARD, body, exact=False)
        if len(body) != _FORWARD.size + (count + 7) // 8:
            raise AutogradError(
                f"metadata has {len(body)} bytes for {count} tensors, not {_FORWARD.size} and a bit for each"
            )
        bits = int.from_bytes(body[_FORWARD.size :])
        return cls(context, message, tuple(bool(bits >> at & 1) for at in range(count)))


PIGGYBACKED: dict[int, type[Backward] | type[Mark]] = {BACKWARD: Backward, MARK: Mark}
KINDS: dict[int, Any] = {**PIGGYBACKED, CANCEL: Cancel, CLEAN: Clean, KEPT: Kept}


class Done(NamedTuple):
    """The answer to BACKWARD or MARK.

    `change` is added to the number of sends without a gradient in this subtree (deficit.py).
    """

    change: int = 0
    piggybacked: Backward | Mark | None = None  # a message to the worker that gets this answer

    def pack(self) -> bytes:
        head = _DONE.pack(True, self.change)
        if self.piggybacked is None:
            return head
        return head + _KIND.pack(MARK if isinstance(self.piggybacked, Mark) else BACKWARD) + self.piggybacked.pack()


def failed(error: PassError) -> bytes:
    """The bytes of an answer: the pass has failed, or was refused."""
    told = [error.failure.name, list(error.workers), error.text[:MAX_TEXT]]
    return b"\0" + json.dumps(told).encode()


def unpack_outcome(body: bytes) -> Done | PassError:
    """The outcome in an answer of `Done.pack` or `failed`; a PassError for any other bytes."""
    try:
        if body[:1] == b"\0":
            failure, workers, text = json.loads(body[1:])
            return BY_FAILURE[Failure[failure]](str(text), tuple(map(int, workers)))
        _, change = _parse(_DONE, body, exact=False)
        if len(body) == _DONE.size:
            return Done(change)
        kind, told = body[_DONE.size], body[_DONE.size + 1 :]
        if kind not in PIGGYBACKED:
            raise AutogradError(f"an answer carries a request of kind {kind}: only {BACKWARD} and {MARK} are possible")
        return Done(change, PIGGYBACKED[kind].unpack(told))
    except (AutogradError, ValueError, LookupError, TypeError, ArithmeticError, RecursionError) as error:
        return PassError(f"an answer of {len(body)} bytes cannot be read: {error}; does the peer run the same version?")


def _parse(form: struct.Struct, body: bytes, exact: bool = True) -> tuple[Any, ...]:
    if len(body) != form.size if exact else len(body) < form.size:
        raise AutogradError(f"a message has {len(body)} bytes, and {form.size} are due")
    return form.unpack_from(body)
