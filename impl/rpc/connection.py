"""One connection to one peer: frames leave in order, and one thread at a time reads.

Theory of operation. The connection is open until `lost` is set to the reason of its end. It is never opened again.

- *Out.* Any thread may call `send`, which holds `_writing`. The frame is written to the socket without blocking. Bytes
  that the socket does not accept are copied into `_outbox`. A thread of the pool sends them when epoll reports room
  (`_flush`). So no sender waits for a peer that does not read, and the caller may change its tensors as soon as `send`
  returns. With a layer (`host/sealing`) the whole frame is sealed first.
- *In.* The thread that reads holds `_reading`. It is a thread of the pool (`_readable`), or a thread that waits for an
  answer and reads the connection itself (`lead`). `lead` hands the connection over as in `pool.py` (Leader/Followers):

      caller        acquires `_reading`, mutes the descriptor in epoll, polls the socket and its own event
      caller        reads its answer: no other thread was woken between the arrival and the return of `rpc_sync`
      caller        releases `_reading`, arms the descriptor again: the pool continues to read

  Meanwhile other frames may arrive. Answers for other threads are delivered on the caller's thread. Functions of
  requests run on a thread of the pool.

Failures:

- *The peer closes, or sends bytes that are not a frame.* `close` sets `lost` and calls `over` once. Frames that came
  before are still delivered.
- *The peer does not read.* `_outbox` grows up to `Limits.unsent_bytes`. Then `send` raises LimitExceeded, and sends
  no byte of the frame.
- *A signal interrupts `send` in the middle of a frame.* The position in the stream is unknown, so the connection ends.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Any

from ..host.sealing import Layer
from .arena import Arena, Window
from .errors import FrameRefused, LimitExceeded, PeerLost, RpcError
from .events import OneShotEvent, thread_event_fd
from .frames import Encoded, Frame, Parser
from .limits import Limits
from .modes import outside
from .pool import Pool

NOW = socket.MSG_DONTWAIT
READ_BYTES = 1 << 20  # the size of a read from a connection with a layer
READS_IN_A_ROW = 64  # reads from a connection that always has more; then other connections get their turn
ANSWER_BYTES, ANSWERS_MAX = 1 << 16, 1 << 16  # a small answer, and how many pieces may wait before it
POLL_SECONDS_MAX = 1000.0  # the longest poll, which takes an int of milliseconds; `lead` polls again


class Connection:
    """A connected, authenticated socket to worker `peer`.

    `take(connection, frame)` is called for each frame, in order, and `over(connection, why)` once after the last one;
    both on the thread that reads.
    """

    def __init__(
        self, peer: int, sock: socket.socket, arena: Arena | None, window: Window | None, limits: Limits,
        layer: Layer | None = None,
    ) -> None:  # fmt: skip
        self.peer, self.arena, self.limits, self._layer = peer, arena, limits, layer
        self.lost: str | None = None  # why the connection is over; None while it is open
        self.goodbye = False  # the peer has sent GOODBYE: it left, and was not lost
        self._socket = sock
        self._fd = sock.fileno()
        self._parser = Parser(limits, window)
        self._reading = threading.Lock()
        self._writing = threading.RLock()  # reentrant: a signal may come while `_writer` is not set
        # The threads that hold the two locks, and whether the reader polls: signal handlers interrupt them anywhere.
        self._reader = self._writer = 0
        self._is_polling = False
        self._outbox: deque[memoryview] = deque()
        self.unsent = 0
        self.frames_sent = self.frames_received = 0
        self._room: int | None = None  # a duplicate of the descriptor, watched for EPOLLOUT

    def belong(
        self, pool: Pool, take: Callable[[Connection, Frame], None], over: Callable[[Connection, str], None]
    ) -> None:
        """Set the pool that reads this connection, and the two functions to call. Must be called before `begin`."""
        self._pool, self._take, self._over = pool, take, over
        self._socket.setblocking(True)

    def begin(self) -> None:
        """Let the pool read from now on."""
        self._pool.watch(self._fd, self._readable, select.EPOLLIN)

    # Out.

    def send(self, frame: Encoded, is_answer: bool = False) -> None:
        """Send a frame after all earlier ones; never waits for the peer.

        A small answer is sent over the limit too: the thread that reads makes it, and its request would end at its
        timeout otherwise.

        Raises:
            PeerLost: the connection is over.
            LimitExceeded: the peer does not read, and `Limits.unsent_bytes` bytes wait for it; nothing was sent.
        """
        if self._writer == threading.get_ident():
            self._take_back(frame)
            raise LimitExceeded(f"a signal handler calls worker {self.peer} while this thread sends to that worker: "
                                "have the handler set a flag, and call afterwards")  # fmt: skip
        with self._writing:
            self._writer = threading.get_ident()
            try:
                self._send(frame, is_answer and frame.size <= ANSWER_BYTES and len(self._outbox) < ANSWERS_MAX)
            finally:
                self._writer = 0

    def _take_back(self, frame: Encoded) -> None:
        if self.arena is not None:
            for slot in frame.slots:
                self.arena.take_back(slot)

    def _send(self, frame: Encoded, over_limit: bool) -> None:
        if self.lost is not None:
            raise PeerLost(self.lost)
        if self.unsent + frame.size > self.limits.unsent_bytes and self._outbox and not over_limit:
            self._take_back(frame)
            raise LimitExceeded(f"worker {self.peer} does not read: {self.unsent} bytes wait for it, and with "
                                f"{frame.size} more the limit `unsent_bytes` of {self.limits.unsent_bytes} is exceeded"
                                )  # fmt: skip
        self.frames_sent += 1
        try:
            pieces, size = frame.pieces, frame.size
            if self._layer is not None:
                pieces = [self._layer.sealed(b"".join(pieces))]
                size = len(pieces[0])
            sent = 0 if self._outbox else self._try(pieces)
            if sent < size:
                self._queue(pieces, sent)
                self._ask_for_room()
        except BaseException:  # a signal interrupted the frame somewhere: the stream cannot continue
            self._hang_up()
            raise

    def _try(self, pieces: list[Any]) -> int:
        try:
            if len(pieces) == 1:
                return self._socket.send(pieces[0], NOW)
            return self._socket.sendmsg(pieces, (), NOW)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:  # only this direction ends: bytes that the peer sent before must still be read
            self._hang_up(socket.SHUT_WR)
            return 0

    def _queue(self, pieces: list[Any], sent: int) -> None:
        """Copy what the socket has not taken: the caller may change its tensors when `send` has returned."""
        for piece in pieces:
            data = memoryview(piece)
            if sent >= len(data):
                sent -= len(data)
                continue
            rest = memoryview(bytes(data[sent:]))
            self._outbox.append(rest)
            self.unsent += len(rest)
            sent = 0

    def _ask_for_room(self) -> None:
        if self._room is None:
            self._room = os.dup(self._fd)  # epoll has one set of events per descriptor: the duplicate is for EPOLLOUT
            self._pool.watch(self._room, self._flush, select.EPOLLOUT)
        else:
            self._pool.arm(self._room, select.EPOLLOUT)

    def _flush(self) -> None:
        with self._writing:
            while self._outbox and self.lost is None:
                data = self._outbox[0]
                try:
                    sent = self._socket.send(data, NOW)
                except (BlockingIOError, InterruptedError):
                    sent = 0
                except OSError:
                    self._outbox.clear()  # the reading thread finds the end of the stream and ends the connection
                    return
                self.unsent -= sent
                if sent < len(data):
                    self._outbox[0] = data[sent:]
                    self._ask_for_room()
                    return
                self._outbox.popleft()

    # In.

    def lead(self, event: OneShotEvent, deadline: float) -> None:
        """Read this connection on the calling thread until `event` is set, or until `deadline` (of `monotonic`).

        Returns at once if another thread reads already: the caller then waits for the event. See the module.
        """
        if self.lost is not None:
            return
        if self._reader == threading.get_ident():
            self._lead_inside(event, deadline)
            return
        if not self._reading.acquire(blocking=False):
            return
        try:
            self._reader = threading.get_ident()
            self._pool.arm(self._fd, 0)
            self._poll(event, deadline)
        finally:
            self._is_polling = False
            self._reader = 0
            self._reading.release()
            self._pool.arm(self._fd)

    def _lead_inside(self, event: OneShotEvent, deadline: float) -> None:
        """Poll again in a signal handler, which interrupted this reading thread and waits for an answer itself."""
        if not self._is_polling:
            raise RpcError(f"a signal handler calls worker {self.peer} while this thread reads from that worker: "
                           "have the handler set a flag, and call afterwards")  # fmt: skip
        try:
            self._poll(event, deadline)
        finally:
            self._is_polling = True
            thread_event_fd().ring()  # the interrupted wait shares it, and this wait may have taken its ring

    def _poll(self, event: OneShotEvent, deadline: float) -> None:
        event_fd = event.listen()
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        poll.register(event_fd.fd, select.POLLIN)
        while not event.is_set and self.lost is None:
            left = deadline - monotonic()
            if left <= 0:
                break
            self._is_polling = True
            ready = poll.poll(min(left, POLL_SECONDS_MAX) * 1000 + 1)
            self._is_polling = False
            for fd, _ in ready:
                if fd == self._fd:
                    outside(self._read)  # the tensors may be for another thread
                else:
                    event_fd.heard()

    def _readable(self) -> None:
        if self._reading.acquire(blocking=False):  # otherwise the thread that reads arms the descriptor again
            try:
                self._read()
            finally:
                self._reading.release()
                self._pool.arm(self._fd)

    def _read(self) -> None:
        """Read the bytes that have arrived, and deliver the frames that they complete."""
        try:
            for _ in range(READS_IN_A_ROW):
                if self._layer is not None:
                    data = self._socket.recv(room := READ_BYTES, NOW)
                    count = len(data)
                    self._deliver_opened(memoryview(self._layer.opened(data)))
                else:
                    buffer = self._parser.buffer()
                    room = len(buffer)
                    count = self._socket.recv_into(buffer, room, NOW)
                    if count:
                        self._deliver(count)
                if not count:
                    return self.close("it closed the connection")
                if count < room:
                    return None
        except (BlockingIOError, InterruptedError):
            return None
        except OSError as error:
            return self.close(error.strerror or str(error))
        except FrameRefused as error:
            return self.close(f"it broke the protocol: {error}")
        except BaseException:
            self.close("the thread that read from it was interrupted")
            raise

    def _deliver(self, count: int) -> None:
        for frame in self._parser.received(count):
            self.frames_received += 1
            self._take(self, frame)

    def _deliver_opened(self, data: memoryview) -> None:
        while len(data):
            buffer = self._parser.buffer()
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            data = data[count:]
            self._deliver(count)

    def close(self, why: str) -> None:
        """End the connection, on behalf of this side or the peer. Frames that wait in the outbox are dropped."""
        if self.lost is None:
            self.lost = why
            self._pool.forget(self._fd)
            if self._room is not None:
                self._pool.forget(self._room)
            self._hang_up()
            self.arena = self._parser.window = None
            self._over(self, why)

    def _hang_up(self, how: int = socket.SHUT_RDWR) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(how)

    def release(self) -> None:
        """Close the descriptors; no method may be called any more."""
        if self._room is not None:
            os.close(self._room)
            self._room = None
        self._socket.close()
