"""One connection to one worker: frames out in order, frames in by one thread at a time.

Rule: nobody waits for the peer to read. What the system does not take at once is copied and queued, and sent by a
thread of the pool when there is room. Who waits for an answer may read the connection himself meanwhile (`lead`).
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

from .arena import Arena, Window
from .errors import FrameRefused, LimitExceeded, PeerLost
from .events import OneShotEvent
from .frames import Encoded, Frame, Parser
from .limits import Limits
from .pool import Pool

NOW = socket.MSG_DONTWAIT
READS_IN_A_ROW = 64  # of a connection that never dries up; then others get their turn
LOOK_SECONDS = 1000.0  # poll takes an int of milliseconds


class Connection:
    """A connected, authenticated socket.

    On any thread `take(connection, frame)` is called for each frame, and `over(connection, why)` once no more come.
    """

    def __init__(
        self, peer: int, sock: socket.socket, arena: Arena | None, window: Window | None, limits: Limits
    ) -> None:
        self.peer, self.arena, self.limits = peer, arena, limits
        self.lost: str | None = None  # why it is over
        self.goodbye = False  # the peer has said so: its end is no loss
        self._socket = sock
        self._fd = sock.fileno()
        self._parser = Parser(limits, window)
        self._reading = threading.Lock()
        self._writing = threading.Lock()
        self._outbox: deque[memoryview] = deque()
        self._unsent = 0
        self.frames_sent = self.frames_received = 0
        self._room: int | None = None  # the same socket again, to be told when there is room

    def belong(
        self, pool: Pool, take: Callable[[Connection, Frame], None], over: Callable[[Connection, str], None]
    ) -> None:
        """Be read by these threads, and tell these functions."""
        self._pool, self._take, self._over = pool, take, over
        self._socket.setblocking(True)

    def begin(self) -> None:
        """Read."""
        self._pool.watch(self._fd, self._readable, select.EPOLLIN)

    # Out.

    def send(self, frame: Encoded) -> None:
        """Send a frame after those before it. Raises PeerLost, and LimitExceeded if the peer does not read."""
        with self._writing:
            if self.lost is not None:
                raise PeerLost(self.lost)
            if self._unsent + frame.size > self.limits.unsent_bytes and self._outbox:
                self._take_back(frame)
                raise LimitExceeded(f"worker {self.peer} does not read: {self._unsent} bytes wait for it already, "
                                    f"{frame.size} more are > {self.limits.unsent_bytes}")  # fmt: skip
            self.frames_sent += 1
            try:
                sent = 0 if self._outbox else self._try(frame.pieces)
                if sent < frame.size:
                    self._queue(frame.pieces, sent)
                    self._ask_for_room()
            except BaseException:  # an interrupt: nobody knows where in the frame it stopped
                self._hang_up()
                raise

    def _try(self, pieces: list[Any]) -> int:
        try:
            if len(pieces) == 1:
                return self._socket.send(pieces[0], NOW)
            return self._socket.sendmsg(pieces, (), NOW)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:  # what the peer has sent before is still read, and then the end of it
            self._hang_up(socket.SHUT_WR)
            return 0

    def _take_back(self, frame: Encoded) -> None:
        if self.arena is not None:
            for slot in frame.slots:
                self.arena.take_back(slot)

    def _queue(self, pieces: list[Any], sent: int) -> None:
        """Keep a copy of what is left: the tensors are the caller's, who may change them."""
        for piece in pieces:
            data = memoryview(piece)
            if sent >= len(data):
                sent -= len(data)
                continue
            rest = memoryview(bytes(data[sent:]))
            self._outbox.append(rest)
            self._unsent += len(rest)
            sent = 0

    def _ask_for_room(self) -> None:
        if self._room is None:
            self._room = os.dup(self._fd)  # epoll knows one set of events for each descriptor
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
                    self._outbox.clear()  # the reader meets the end
                    return
                self._unsent -= sent
                if sent < len(data):
                    self._outbox[0] = data[sent:]
                    self._ask_for_room()
                    return
                self._outbox.popleft()

    @property
    def unsent(self) -> int:
        return self._unsent

    # In.

    def lead(self, flag: OneShotEvent, deadline: float) -> None:
        """Read here until the flag is set or the deadline is over; returns at once if another thread reads."""
        if self.lost is not None or not self._reading.acquire(blocking=False):
            return
        try:
            self._pool.arm(self._fd, 0)
            bell = flag.listen()
            poll = select.poll()
            poll.register(self._fd, select.POLLIN)
            poll.register(bell.fd, select.POLLIN)
            while not flag.is_set and self.lost is None:
                left = deadline - monotonic()
                if left <= 0:
                    break
                for fd, _ in poll.poll(min(left, LOOK_SECONDS) * 1000 + 1):
                    if fd == self._fd:
                        self._read()
                    else:
                        bell.heard()
        finally:
            self._reading.release()
            self._pool.arm(self._fd)

    def _readable(self) -> None:
        if self._reading.acquire(blocking=False):  # else whoever reads arms it again
            try:
                self._read()
            finally:
                self._reading.release()
                self._pool.arm(self._fd)

    def _read(self) -> None:
        """What is there; the end too."""
        try:
            for _ in range(READS_IN_A_ROW):
                buffer = self._parser.buffer()
                room = len(buffer)
                count = self._socket.recv_into(buffer, room, NOW)
                if not count:
                    return self._end("it closed the connection")
                for frame in self._parser.received(count):
                    self.frames_received += 1
                    self._take(self, frame)
                if count < room:
                    return None
        except (BlockingIOError, InterruptedError):
            return None
        except OSError as error:
            return self._end(error.strerror or str(error))
        except FrameRefused as error:
            return self._end(f"it broke the protocol: {error}")
        except BaseException:
            self._end("the thread that read from it was interrupted")
            raise

    def _end(self, why: str) -> None:
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

    def close(self, why: str) -> None:
        """From this side. What was sent and is not yet taken is lost."""
        self._end(why)

    def release(self) -> None:
        """Give the descriptors back; nothing may use it any more."""
        if self._room is not None:
            os.close(self._room)
            self._room = None
        self._socket.close()
