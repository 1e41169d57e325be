"""A pool of connections to one server, and the texts of their errors.

Theory of operation. Any thread of the process may call. A connection is being opened, idle (`idle`), or in use by one
operation. An operation gets an idle connection without a lock. If no connection is idle, the operation opens one. If
CONNECTIONS_MAX connections exist, it waits until another operation gives one back. The client first greets the server
on a new connection. The answer shows the implementation of the server (`Kind`). Our server also sends its limits, and
whether it requires the proof of a secret.

Rule: only one operation uses a connection, from its request to the end of its reply. A connection that is not in step
afterwards is closed and never used again. The operation during which the server is lost raises an error. The next
operation connects again, and raises too if no server answers. A server may keep its store across restarts
(`ServerTerms.kept`). If such a server is lost, the client tries to connect again until the operation's timeout. Then it
repeats the operation if the operation changes nothing (`calls`). An operation that changes something and got no answer
is never sent again.

Failures:

- The server refuses (`Refusal`). The connection stays open.
- The server is late, has ended, or sends bytes that are not of the protocol. The connection is closed, and the
  exception shows whether the operation may have happened (`failed`).
- The process forks. The child closes its copies of the connections and opens its own.
"""

from __future__ import annotations

import contextlib
import enum
import random
import secrets
import ssl
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from hmac import compare_digest
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from trystate.model.store.vocabulary import Query

from ...host.deadlines import rounded
from ...host.forking import let_go_after_fork
from ...host.resolver import Address, resolve
from ...host.sealing import Altered, bound
from ...host.secret import NONCE_BYTES, server_proof
from ...host.tls import Tls, calling, reason
from ...host.visible import some
from ..errors import (
    REFUSALS,
    ConnectionLost,
    NotSupported,
    OutcomeUnknown,
    SecretRefused,
    StoreClosed,
    StoreError,
    StoreTimeout,
    TlsRefused,
)
from ..limits import Limits
from ..operations import Get, Operation
from ..wire import PROBE_KEY, shown
from . import codec
from .barrier_tokens import BarrierTokens
from .codec import Garbled, Refusal, Reply, ServerTerms
from .connection import Connection, HungUp

T = TypeVar("T")

CONNECTIONS_MAX = 1024  # one for each thread that is in an operation; the usual limit of open files
IDLE_CONNECTIONS_MAX = 8  # kept for later when a burst of threads is over
# How long an operation with a timeout of 0, which looks once, waits for its answer, and before that for a connection if
# no connection is idle. More than a round trip around the earth.
LOOK_SECONDS = 0.25
# A constructor with a timeout of 0 does not wait for a server, but it resolves a name, and a master starts a process.
START_SECONDS_MIN = 1.0
MASTER_START_SECONDS_MIN = 10.0  # an interpreter takes seconds to start on a busy machine
# If a name has several addresses, an address that drops every packet must leave time for the others. TCP itself repeats
# a lost first packet after 1, 3 and 7 s (RFC 6298).
ADDRESS_SECONDS_MAX = 10.0
RETRY_SECONDS, RETRY_SECONDS_MAX, RETRY_GROWTH = 0.02, 0.5, 1.5  # torch waits 0.5 s at first (TCPStore.cpp)
AGAIN_SECONDS_MAX = 0.1  # the longest pause between two attempts to reach a restarted server whose store is kept
SHOWN_NAMES_MAX = 8


class Kind(enum.Enum):
    """The implementation that answered: ours, or one of torch's two."""

    EXTENDED = "ours"
    LIBUV = "torch's libuv server"
    LEGACY = "torch's legacy server"


class CallText(NamedTuple):
    """A caller's request for the texts of errors.

    Args:
        about: the operation, or the keys.
        seconds: how long the caller waits; 0 looks once.
        writes: the operation changes the store, so it may have happened even if it failed.
    """

    name: str
    about: Operation[Any] | Sequence[bytes]
    seconds: float
    writes: bool = False

    @classmethod
    def of(cls, operation: Operation[Any], seconds: float) -> CallText:
        spec = operation.SPEC
        name = "multi_get" if isinstance(operation, Get) and len(operation.names) != 1 else spec.name
        return cls(name, operation, seconds, spec.writes)

    @property
    def names(self) -> Sequence[bytes]:
        return self.about.keys if isinstance(self.about, Operation) else self.about

    def __str__(self) -> str:
        """The call as the user wrote it, such as `get('a', 'b')`."""
        return f"{self.name}({some([*map(_key, self.names)], SHOWN_NAMES_MAX)})"


class _Place:
    """One of the connections that a client may have, before the connection is open."""

    __slots__ = ("__weakref__",)


class Client:
    """The connections to one server for all threads of a process."""

    def __init__(self, host: str, port: int, secret: bytes | None, tls: Tls | None = None) -> None:
        self.host, self.port, self.secret, self.tls = host, port, secret, tls
        self.kind: Kind | None = None
        limits = Limits()  # the limits of torch's libuv server, which does not send them
        self.terms = ServerTerms(False, b"", limits.key_bytes, limits.value_bytes, limits.keys_in_request, b"")
        self._addresses: list[Address] = []  # the address that answered last
        self.closed = False
        self.replaced = False  # another store answers there now
        self.idle: deque[Connection] = deque()  # never replaced, because `fast_path` keeps a reference to it
        self._reset()
        let_go_after_fork(self)

    def _reset(self) -> None:
        # Weak: a connection that was lost by an exception between two steps (Ctrl-C) closes itself and frees its place.
        self._connections: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._opening: weakref.WeakSet[_Place] = weakref.WeakSet()  # the places of connections that are being opened
        self._changed = threading.Condition()
        self.wanting = 0  # threads that wait for a connection
        self.barrier_tokens = BarrierTokens()  # new in a child: the parent's tokens would move the parent's arrivals

    # The life of a pool.

    def start(self, seconds: float, deadline: float) -> None:
        """Connect for the first time. Try until the server answers or the deadline; error texts name `seconds`."""
        pause = RETRY_SECONDS
        cause: OSError | HungUp | None = None
        while True:
            left = deadline - monotonic()
            try:
                connection = self.open(left)
                break
            except Garbled as error:
                raise ConnectionLost(f"{self.where}: this is not a TCPStore: {error}; check host and port") from None
            except (OSError, HungUp) as error:
                # The last attempt has little time left. It may end before a name server or a host could refuse it.
                # Then the attempt before it had the cause.
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
        """Close all connections. A caller that waits on one gets StoreClosed."""
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

    def perform(self, call: CallText, action: Callable[[Connection], T]) -> T:
        """Perform an action with a connection to itself. Raises the exceptions that the module `errors` lists."""
        connection = self._take(call)
        try:
            result = action(connection)
        except BaseException as error:
            raise self.after(connection, call, error) from None
        self.give(connection)
        return result

    def ask(
        self,
        call: CallText,
        request: bytes,
        reply: Callable[[], Reply[T]],
        within: float,
        decode: Callable[[bytes], T | None] = codec.undecoded,
    ) -> T:
        """`perform` for one request, whose reply is due within `within` seconds."""
        return self.perform(call, lambda connection: connection.ask(request, reply, within, decode))

    def ready(self, call: CallText) -> float:
        """Open a connection unless an idle one may be used; the seconds that it took, which an operation has less."""
        if self.idle and not self.terms.kept:  # none can be of a server before a restart
            return 0.0
        begin = monotonic()
        self.give(self._take(call))
        return monotonic() - begin

    def after(self, connection: Connection, call: CallText, error: BaseException) -> BaseException:
        """Keep or drop a connection on which something failed, and return the exception to raise."""
        if isinstance(error, Refusal):
            self.give(connection)
            return self._refused(call, error)
        self._drop(connection)
        if isinstance(error, OSError | HungUp | Garbled):
            return self.failed(call, error)
        return error

    def _take(self, call: CallText) -> Connection:
        """A connection to the server of today, which is not idle any more."""
        try:
            connection = self.idle.pop()
        except IndexError:
            connection = self._another(call)
        if self.terms.kept and connection.stale:
            connection = self._renewed(connection, call)
        return connection

    def _another(self, call: CallText) -> Connection:
        """An idle connection, or a new one if fewer than CONNECTIONS_MAX are open or being opened."""
        deadline = monotonic() + (call.seconds or LOOK_SECONDS)
        with self._changed:
            self.wanting += 1
            try:
                while True:
                    if self.closed:
                        raise self._was_closed(call)
                    with contextlib.suppress(IndexError):  # `_take` takes idle ones without the lock
                        return self.idle.pop()
                    if len(self._connections) + len(self._opening) < CONNECTIONS_MAX:
                        break
                    if monotonic() >= deadline:
                        raise StoreTimeout(f"{call}: {CONNECTIONS_MAX} operations are under way on this store, which "
                                           f"is the limit, and none ended within {rounded(call.seconds)} s "
                                           f"({self.where}); use fewer threads, or clone()")  # fmt: skip
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

    def _renewed(self, connection: Connection, call: CallText) -> Connection:
        """A connection to the restarted server, instead of a connection to the server before it."""
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
        """Clean up after a connection became idle: the store is closed, a thread waits, or too many are idle."""
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

    def dedicated(self, call: CallText, seconds: float) -> Connection:
        """A new connection for the caller alone, which closes it. Raises the same exceptions as `perform`."""
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
        """Whether to wait for a lost server: its store is kept, and time is left."""
        return self.terms.kept and not self.closed and not self.replaced and monotonic() < deadline

    def open(self, seconds: float) -> Connection:
        """A new connection, greeted and proved. Raises OSError, HungUp, Garbled, or StoreError if it is refused."""
        deadline = monotonic() + seconds
        addresses = self._addresses or resolve(self.host, self.port, seconds)
        failure: OSError | HungUp | None = None
        # Each address gets a share of the time. If the last one timed out and time is left, all are tried again.
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
        self._addresses = []  # the name may resolve to another address at the next attempt
        raise failure

    def need_rooms(self, call: CallText) -> None:
        """Raise NotSupported if the server has no rooms."""
        if self.kind is not Kind.EXTENDED or not self.terms.rooms:
            raise NotSupported(f"{call}: this server has no rooms ({self.where}); use `trystate store serve` of this "
                               "release")  # fmt: skip

    def _greeted(self, address: Address, deadline: float) -> Connection:
        connection = Connection(address, deadline - monotonic())
        try:
            if self.tls is not None:
                connection.shake(calling(self.tls, self.host), deadline - monotonic())
            extended = connection.ask(codec.GREETING, codec.greeted, deadline - monotonic())
            if extended:
                self._agree(connection, deadline)
            elif self.secret is not None:
                raise SecretRefused(f"{self.where}: this is torch's server, which has no secrets; start `trystate "
                                    "store serve --secret-file` there, or leave out the secret")  # fmt: skip
            elif self.kind is None and self._hangs_up_on_missing_keys(connection, deadline):
                self.kind = Kind.LEGACY
                connection.close()
                return self._greeted(address, deadline)
            if self.kind is not None and extended != (self.kind is Kind.EXTENDED):
                raise Garbled(f"another kind of server answers there now; before, it was {self.kind.value}")
            self.kind = self.kind or (Kind.EXTENDED if extended else Kind.LIBUV)
            return connection
        except (ssl.SSLError, Altered, codec.NeedsTls) as error:
            connection.close()
            raise TlsRefused(f"{self.where}: {self._without_tls(error)}") from error
        except BaseException:
            connection.close()
            raise

    def _without_tls(self, error: Exception) -> str:
        if isinstance(error, codec.NeedsTls):
            return "this server requires TLS; give tls=FOLDER in --rdzv-conf or in the URL, or tls= in Python"
        if isinstance(error, ssl.SSLCertVerificationError):
            return (f"the server's certificate is refused: {reason(error)}; give the server a certificate for this "
                    "host name or address, of the same authority, or replace the expired one")  # fmt: skip
        return f"no connection with TLS: {reason(error)}; see the server's log, and give both sides valid files"

    def _hangs_up_on_missing_keys(self, connection: Connection, deadline: float) -> bool:
        """Whether a GET of a missing key makes the server hang up, as torch's legacy server does and libuv does not.

        The key is always missing, because clients put "/" before each key and this key has none.
        """
        try:
            connection.ask(codec.keyed(Query.GET, PROBE_KEY), codec.a_blob, deadline - monotonic())
        except (HungUp, ConnectionError):
            return True
        return False

    def _agree(self, connection: Connection, deadline: float) -> None:
        """Send HELLO, and exchange the proofs of a secret."""
        try:
            terms = connection.ask(codec.HELLO, codec.terms, deadline - monotonic())
        except Refusal as refusal:
            raise NotSupported(f"{self.where}: {refusal.text}") from None
        try:
            if terms.secret_required and self.secret is None:
                raise SecretRefused(f"{self.where}: this server requires a secret, but none was given; give "
                                    "secret_file in --rdzv-conf or in the URL, or secret= in Python")  # fmt: skip
            if self.secret is not None:
                if not terms.secret_required:
                    raise SecretRefused(f"{self.where}: this server has no secret and proves nothing; start it with "
                                        "the secret, or leave out the secret here")  # fmt: skip
                agreed = terms.agreed if self.tls is None else b""  # TLS protects all of it
                self._prove(connection, self.secret, terms.nonce, agreed, deadline)
        except Refusal as refusal:
            raise SecretRefused(f"{self.where}: {refusal.text}") from None
        if self.terms.identity not in (b"", terms.identity):
            self.replaced = True
            raise ConnectionLost(f"{self.where}: the server was restarted and is empty; make a new store")
        self.terms = terms

    def _prove(self, connection: Connection, secret: bytes, theirs: bytes, agreed: bytes, deadline: float) -> None:
        mine = secrets.token_bytes(NONCE_BYTES)
        request = codec.prove(secret, theirs, mine, agreed)
        proof = connection.ask(request, codec.granted(codec.a_proof), deadline - monotonic())
        if not compare_digest(proof, server_proof(secret, theirs, mine, agreed)):
            raise SecretRefused(f"{self.where}: the server does not know the secret; check that it is your server")
        if agreed:
            if not connection.in_step:
                raise SecretRefused(f"{self.where}: a relay has added bytes to the server's proof; connect without it")
            connection.layer = bound(secret, theirs, mine, agreed, server=False)

    @property
    def direct(self) -> bool:
        """Whether its connections may be read and written by their descriptors."""
        return self.secret is None and self.tls is None

    # The texts of errors.

    @property
    def where(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"server {host}:{self.port}"

    def _unreachable(self, seconds: float, error: Exception) -> Exception:
        if isinstance(error, TimeoutError):
            return StoreTimeout(f"{self.where}: no answer within {rounded(seconds)} s; see whether it runs and whether "
                                "the port is the store's, or raise the timeout")  # fmt: skip
        return ConnectionLost(f"{self.where}: not reached within {rounded(seconds)} s ({_reason(error)}); start it, "
                              "check host and port, or raise the timeout")  # fmt: skip

    def _was_closed(self, call: CallText) -> StoreClosed:
        return StoreClosed(f"{call}: this store was closed ({self.where}); make another one")

    def _refused(self, call: CallText, refusal: Refusal) -> Exception:
        text = refusal.text
        for name in call.names:  # the server's text has wire names
            text = text.replace(shown(name), _key(name))
        return REFUSALS.get(refusal.status, StoreError)(f"{call}: {text} ({self.where})")

    def failed(self, call: CallText, error: Exception) -> Exception:
        """The exception for a failed connection. Closes the other idle connections unless the server was only late."""
        if self.closed:
            if not call.writes:
                return self._was_closed(call)
            return OutcomeUnknown(f"{call}: this store was closed meanwhile ({self.where}); the operation may have "
                                  "happened: look before you repeat it")  # fmt: skip
        late = isinstance(error, TimeoutError)
        if not late:
            self._close_idle()
        what = f"no answer within {rounded(call.seconds)} s" if late else _reason(error)
        if call.writes:
            unknown = OutcomeUnknown(f"{call}: {what} ({self.where}); the operation may have happened: look before you "
                                     "repeat it, and see whether the server still runs")  # fmt: skip
            unknown.timed_out = late
            return unknown
        if late:
            return StoreTimeout(f"{call}: {what} ({self.where}); see whether the server hangs, or raise the timeout")
        return ConnectionLost(f"{call}: {what} ({self.where}); see whether the server still runs, and read its log")


def _reason(error: Exception) -> str:
    if isinstance(error, HungUp):
        return "the server hung up"
    return str(error) if isinstance(error, Garbled) else f"{type(error).__name__}: {error}"


def _key(name: bytes) -> str:
    return repr(name.removeprefix(b"/").decode("utf-8", "replace"))
