"""A pool of connections to one server, and their errors in words.

Theory of operation. Any thread of the process may call. A connection is being opened, idle (`idle`), or in use by one
operation. An operation takes an idle one without a lock; if there is none it opens one, or, at CONNECTIONS_MAX, waits
until another operation gives one back. A new connection is greeted first: the answer tells which server it is (`Kind`)
and, of ours, its limits, and whether it asks for the proof of a secret.

Rule: an operation has one connection for itself, from the first byte of its request to the last of its reply;
a connection that is not in step afterwards is closed and never used again. A lost server is reported once, by the
operation that meets it; the next operation connects anew, and raises in its turn if nobody is there. A server whose
store is kept (`Terms.kept`) is waited for instead, as long as the operation may take: to connect, and to ask again what
changes nothing (`calls`). An operation that changes something and whose answer did not come is never asked again.

Three things can go wrong. The server refuses (`Refusal`): the connection stays. The server is late, gone, or sends
bytes of no protocol: the connection is closed, and the exception says whether the operation may have happened
(`failed`). The process forks: the child closes its copies of the connections, and opens its own.
"""

from __future__ import annotations

import contextlib
import enum
import random
import secrets
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from hmac import compare_digest
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from trystate.model.store.vocabulary import Query, Status

from ...host.deadlines import rounded
from ...host.forking import let_go_after_fork
from ...host.resolver import Address, resolve
from ...host.secret import NONCE_BYTES, server_proof
from ..errors import (
    ConnectionLost,
    CounterOverflow,
    LimitExceeded,
    NotANumber,
    NotSupported,
    OutcomeUnknown,
    QueueEmpty,
    SecretRefused,
    StoreClosed,
    StoreError,
    StoreTimeout,
    WrongWorld,
)
from ..limits import Limits
from ..operations import Get, Operation
from ..wire import PROBE_KEY, shown
from . import codec
from .barrier_tokens import BarrierTokens
from .codec import Garbled, Refusal, Reply, Terms
from .connection import Connection, HungUp

T = TypeVar("T")

CONNECTIONS_MAX = 1024  # one for each thread that is in an operation; the usual limit of open files
IDLE_CONNECTIONS_MAX = 8  # kept for later when a burst of threads is over
# The wait of an operation with a timeout of 0, which looks once: for its answer, and before that for a connection where
# none is idle. More than a round trip around the earth.
LOOK_SECONDS = 0.25
# A constructor with a timeout of 0 waits for nobody, but it looks up a name, and a master starts the server's process.
START_SECONDS_MIN = 1.0
MASTER_START_SECONDS_MIN = 10.0  # an interpreter takes seconds to start on a busy machine
# Of a name that means several addresses, one that swallows everything must leave time for the others; TCP itself
# repeats a lost first packet after 1, 3 and 7 s (RFC 6298).
ADDRESS_SECONDS_MAX = 10.0
RETRY_SECONDS, RETRY_SECONDS_MAX, RETRY_GROWTH = 0.02, 0.5, 1.5  # torch waits 0.5 s at first (TCPStore.cpp)
AGAIN_SECONDS_MAX = 0.1  # between two attempts to reach a server whose store is kept, and that is started again
SHOWN_NAMES_MAX = 8

REFUSALS: dict[Status, type[StoreError]] = {
    Status.NOT_A_NUMBER: NotANumber,
    Status.OVERFLOW:     CounterOverflow,
    Status.TOO_LARGE:    LimitExceeded,
    Status.WRONG_WORLD:  WrongWorld,
    Status.EMPTY:        QueueEmpty,
    Status.REFUSED:      StoreError,
}  # fmt: skip


class Kind(enum.Enum):
    """The implementation that answered: ours, or one of torch's two."""

    EXTENDED = "ours"
    LIBUV = "torch's libuv server"
    LEGACY = "torch's legacy server"


class Call(NamedTuple):
    """A caller's request, as the texts of errors say it.

    Args:
        about: the operation, or the keys.
        seconds: how long the caller waits; 0 looks once.
        writes: it may have happened though it failed.
    """

    name: str
    about: Operation[Any] | Sequence[bytes]
    seconds: float
    writes: bool = False

    @classmethod
    def of(cls, operation: Operation[Any], seconds: float) -> Call:
        spec = operation.SPEC
        name = "multi_get" if isinstance(operation, Get) and len(operation.names) != 1 else spec.name
        return cls(name, operation, seconds, spec.writes)

    @property
    def names(self) -> Sequence[bytes]:
        return self.about.keys if isinstance(self.about, Operation) else self.about

    def __str__(self) -> str:
        """`get('a', 'b')`: as the user wrote it."""
        keys = ", ".join(map(_key, self.names[:SHOWN_NAMES_MAX]))
        more = f" and {len(self.names) - SHOWN_NAMES_MAX} more" if len(self.names) > SHOWN_NAMES_MAX else ""
        return f"{self.name}({keys}{more})"


class _Place:
    """One of the connections that a client may have, from before it is opened."""

    __slots__ = ("__weakref__",)


class Client:
    """One server, as all threads of a process use it."""

    def __init__(self, host: str, port: int, secret: bytes | None) -> None:
        self.host, self.port, self.secret = host, port, secret
        self.kind: Kind | None = None
        limits = Limits()  # of torch's libuv server, which does not tell them
        self.terms = Terms(False, b"", limits.key_bytes, limits.value_bytes, limits.keys_in_request, b"")
        self._addresses: list[Address] = []  # the one that answered last
        self.closed = False
        self.replaced = False  # another store answers there now
        self.idle: deque[Connection] = deque()  # one and the same for life, so that others may keep it at hand
        self._reset()
        let_go_after_fork(self)

    def _reset(self) -> None:
        # Weak: a connection that an exception between two steps lost (Ctrl-C) closes itself, and takes nobody's place.
        self._connections: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._opening: weakref.WeakSet[_Place] = weakref.WeakSet()  # those of connections that are being opened
        self._changed = threading.Condition()
        self.wanting = 0  # threads that wait for a connection
        self.barrier_tokens = BarrierTokens()  # a child's own: with its parent's it would take the parent's places

    # The life of a pool.

    def start(self, seconds: float, deadline: float) -> None:
        """Connect for the first time: try until the server is there, or the deadline; texts say `seconds`."""
        pause = RETRY_SECONDS
        cause: OSError | HungUp | None = None
        while True:
            left = deadline - monotonic()
            try:
                connection = self.open(left)
                break
            except Garbled as error:
                raise ConnectionLost(f"{self.where}: this is no TCPStore: {error}; check host and port") from None
            except (OSError, HungUp) as error:
                # The last attempt has little time left, and may end before a name server or a host could refuse it:
                # then the attempt before it knows the cause.
                if cause is None or left >= RETRY_SECONDS_MAX or not isinstance(error, TimeoutError):
                    cause = error
                left = deadline - monotonic()
                if left <= 0:
                    raise self._unreachable(seconds, cause) from None
            time.sleep(min(pause * random.uniform(0.75, 1.25), left))
            pause = min(pause * RETRY_GROWTH, RETRY_SECONDS_MAX)
        with self._changed:
            self._connections.add(connection)
        self.give(connection)

    def close(self) -> None:
        """Close all connections; a caller that waits on one gets StoreClosed."""
        with self._changed:
            self.closed = True
            for connection in self._connections:
                connection.hang_up()
            self._changed.notify_all()
        self._close_idle()

    def forked(self) -> None:
        connections = list(self._connections)
        self.idle.clear()
        self._reset()
        for connection in connections:
            connection.close()  # the parent's connection stays open

    # Operations.

    def perform(self, call: Call, action: Callable[[Connection], T]) -> T:
        """Do something on a connection of its own. Raises what the module `errors` lists."""
        try:
            connection = self.idle.pop()
        except IndexError:
            connection = self._another(call)
        if self.terms.kept and connection.stale:
            connection = self._renewed(connection, call)
        try:
            result = action(connection)
        except BaseException as error:
            raise self.after(connection, call, error) from None
        self.give(connection)
        return result

    def ask(
        self,
        call: Call,
        request: bytes,
        reply: Callable[[], Reply[T]],
        within: float,
        decode: Callable[[bytes], T | None] = codec.undecoded,
    ) -> T:
        """`perform` one request, whose reply comes within so many seconds; written out, for speed."""
        try:
            connection = self.idle.pop()
        except IndexError:
            connection = self._another(call)
        if self.terms.kept and connection.stale:
            connection = self._renewed(connection, call)
        try:
            result = connection.ask(request, reply, within, decode)
        except BaseException as error:
            raise self.after(connection, call, error) from None
        self.give(connection)
        return result

    def after(self, connection: Connection, call: Call, error: BaseException) -> BaseException:
        """Keep or drop a connection on which something failed; returns the exception to raise."""
        if isinstance(error, Refusal):
            self.give(connection)
            return self._refused(call, error)
        self._drop(connection)
        if isinstance(error, OSError | HungUp | Garbled):
            return self.failed(call, error)
        return error

    def _another(self, call: Call) -> Connection:
        """An idle connection, or a new one where fewer than CONNECTIONS_MAX are open or being opened."""
        deadline = monotonic() + (call.seconds or LOOK_SECONDS)
        with self._changed:
            self.wanting += 1
            try:
                while True:
                    if self.closed:
                        raise self._was_closed(call)
                    with contextlib.suppress(IndexError):  # `perform` and `ask` take idle ones without the lock
                        return self.idle.pop()
                    if len(self._connections) + len(self._opening) < CONNECTIONS_MAX:
                        break
                    if monotonic() >= deadline:
                        raise self._crowded(call)
                    self._changed.wait(deadline - monotonic())
            finally:
                self.wanting -= 1
            place = _Place()
            self._opening.add(place)
        try:
            connection = self.dedicated(call, deadline - monotonic())
            with self._changed:
                self._connections.add(connection)
        finally:
            with self._changed:
                self._opening.discard(place)
                self._changed.notify()
        if self.closed:
            connection.hang_up()
        return connection

    def _renewed(self, connection: Connection, call: Call) -> Connection:
        """A connection to a server that was started again, in the place of one to the server before."""
        self._drop(connection)
        self._close_idle()
        return self._another(call)

    def give(self, connection: Connection) -> None:
        """Keep a connection for the next operation."""
        if not connection.in_step:
            self._drop(connection)
            return
        self.idle.append(connection)
        if self.closed or self.wanting or len(self.idle) > IDLE_CONNECTIONS_MAX:
            self.tidy()

    def tidy(self) -> None:
        """After a connection became idle while the store is closed, a thread wants one, or there are too many."""
        if self.closed:
            self._close_idle()
        elif self.wanting:
            with self._changed:
                self._changed.notify()
        else:
            with contextlib.suppress(IndexError):
                self._drop(self.idle.popleft())

    def _drop(self, connection: Connection) -> None:
        with self._changed:
            self._connections.discard(connection)
            self._changed.notify()
        connection.close()

    def _close_idle(self) -> None:
        while True:
            try:
                connection = self.idle.pop()
            except IndexError:
                return
            self._drop(connection)

    # Connecting.

    def dedicated(self, call: Call, seconds: float) -> Connection:
        """A new connection for the caller alone, who closes it. Raises what `perform` raises."""
        deadline, pause = monotonic() + seconds, RETRY_SECONDS
        while True:
            try:
                return self.open(deadline - monotonic())
            except (OSError, HungUp, Garbled) as error:
                if isinstance(error, Garbled) or not self.comes_back(deadline):
                    raise self.failed(call._replace(writes=False), error) from None
            time.sleep(min(pause * random.uniform(0.75, 1.25), max(deadline - monotonic(), 0.0)))
            pause = min(pause * RETRY_GROWTH, AGAIN_SECONDS_MAX)

    def comes_back(self, deadline: float) -> bool:
        """Whether a server that is lost is worth waiting for: its store is kept, and there is time."""
        return self.terms.kept and not self.closed and not self.replaced and monotonic() < deadline

    def open(self, seconds: float) -> Connection:
        """A new connection, greeted and proved. Raises OSError, HungUp, Garbled, and StoreError if we are refused."""
        deadline = monotonic() + seconds
        addresses = self._addresses or resolve(self.host, self.port, seconds)
        failure: OSError | HungUp | None = None
        while failure is None or (isinstance(failure, TimeoutError) and monotonic() < deadline):
            failure = OSError("the host has no address")
            for tried, address in enumerate(addresses):
                left = deadline - monotonic()
                share = left if len(addresses) == 1 else min(left / (len(addresses) - tried), ADDRESS_SECONDS_MAX)
                try:
                    connection = self._greeted(address, monotonic() + share)
                except (OSError, HungUp) as error:
                    failure = error
                    continue
                self._addresses = [address]
                return connection
        self._addresses = []  # a name may mean another address by the next attempt
        raise failure

    def _greeted(self, address: Address, deadline: float) -> Connection:
        connection = Connection(address, deadline - monotonic())
        try:
            extended = connection.ask(codec.GREETING, codec.greeted, deadline - monotonic())
            if extended:
                self._agree(connection, deadline)
            elif self.secret is not None:
                raise SecretRefused(f"{self.where}: this server knows no secrets, it is torch's; start "
                                    "`trystate store serve --secret-file` there, or leave the secret out")  # fmt: skip
            elif self.kind is None and self._hangs_up_on_missing_keys(connection, deadline):
                self.kind = Kind.LEGACY
                connection.close()
                return self._greeted(address, deadline)
            if self.kind is not None and extended != (self.kind is Kind.EXTENDED):
                raise Garbled(f"another kind of server answers there now; it was {self.kind.value}")
            self.kind = self.kind or (Kind.EXTENDED if extended else Kind.LIBUV)
            return connection
        except BaseException:
            connection.close()
            raise

    def _hangs_up_on_missing_keys(self, connection: Connection, deadline: float) -> bool:
        """A GET of a missing key tells torch's two servers apart; nobody has this one, since it lacks the "/"."""
        try:
            connection.ask(codec.keyed(Query.GET, PROBE_KEY), codec.a_blob, deadline - monotonic())
        except (HungUp, ConnectionError):
            return True
        return False

    def _agree(self, connection: Connection, deadline: float) -> None:
        """HELLO, and the proofs of a secret."""
        try:
            terms = connection.ask(codec.HELLO, codec.terms, deadline - monotonic())
        except Refusal as refusal:
            raise NotSupported(f"{self.where}: {refusal.text}") from None
        try:
            if terms.secret_required and self.secret is None:
                raise SecretRefused(f"{self.where}: this server wants a secret, and none was given: give "
                                    "secret_file in --rdzv-conf or in the URL, or secret= in Python")  # fmt: skip
            if self.secret is not None:
                if not terms.secret_required:
                    raise SecretRefused(f"{self.where}: this server has no secret and proves nothing; start it with "
                                        "the secret, or leave the secret out")  # fmt: skip
                self._prove(connection, self.secret, terms.nonce, deadline)
        except Refusal as refusal:
            raise SecretRefused(f"{self.where}: {refusal.text}") from None
        if self.terms.identity not in (b"", terms.identity):
            self.replaced = True
            raise ConnectionLost(f"{self.where}: the server was restarted and is empty: make a new store")
        self.terms = terms

    def _prove(self, connection: Connection, secret: bytes, theirs: bytes, deadline: float) -> None:
        mine = secrets.token_bytes(NONCE_BYTES)
        proof = connection.ask(codec.prove(secret, theirs, mine), codec.granted(codec.a_proof), deadline - monotonic())
        if not compare_digest(proof, server_proof(secret, theirs, mine)):
            raise SecretRefused(f"{self.where}: the server does not know the secret; make sure that it is yours")

    # Errors in words.

    @property
    def where(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"server {host}:{self.port}"

    def _unreachable(self, seconds: float, error: Exception) -> Exception:
        if isinstance(error, TimeoutError):
            return StoreTimeout(f"{self.where}: no answer within {rounded(seconds)} s; see whether it runs and is no "
                                "other program's port, or raise the timeout")  # fmt: skip
        return ConnectionLost(f"{self.where}: not reached within {rounded(seconds)} s ({_reason(error)}); start it, "
                              "check host and port, or raise the timeout")  # fmt: skip

    def _crowded(self, call: Call) -> StoreTimeout:
        return StoreTimeout(f"{call}: {CONNECTIONS_MAX} operations are under way on this store, "
                            f"and none ended within {rounded(call.seconds)} s ({self.where}); use fewer threads, or "
                            "clone()")  # fmt: skip

    def _was_closed(self, call: Call) -> StoreClosed:
        return StoreClosed(f"{call}: this store was closed ({self.where}); make another one")

    def _refused(self, call: Call, refusal: Refusal) -> Exception:
        text = refusal.text
        for name in call.names:  # the server knows only wire names
            text = text.replace(shown(name), _key(name))
        return REFUSALS.get(refusal.status, StoreError)(f"{call}: {text} ({self.where})")

    def failed(self, call: Call, error: Exception) -> Exception:
        """The exception for a connection that failed; drops the other idle ones if the server is gone."""
        if self.closed:
            if not call.writes:
                return self._was_closed(call)
            return OutcomeUnknown(f"{call}: this store was closed meanwhile ({self.where}); it may have happened: look "
                                  "before you repeat it")  # fmt: skip
        late = isinstance(error, TimeoutError)
        if not late:
            self._close_idle()
        what = f"no answer within {rounded(call.seconds)} s" if late else _reason(error)
        if call.writes:
            unknown = OutcomeUnknown(f"{call}: {what} ({self.where}); it may have happened: look before you repeat it, "
                                     "and see whether the server still runs")  # fmt: skip
            unknown.timed_out = late
            return unknown
        if late:
            return StoreTimeout(f"{call}: {what} ({self.where}); see whether the server hangs, or raise the timeout")
        return ConnectionLost(f"{call}: {what} ({self.where}); see whether the server still runs, and its log")


def _reason(error: Exception) -> str:
    if isinstance(error, HungUp):
        return "the server hung up"
    return str(error) if isinstance(error, Garbled) else f"{type(error).__name__}: {error}"


def _key(name: bytes) -> str:
    return repr(name.removeprefix(b"/").decode("utf-8", "replace"))
