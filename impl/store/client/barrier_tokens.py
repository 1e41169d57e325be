"""Tokens of clients at a barrier, so that a client counts once though it comes again on another connection.

Rule: a token is random, and of one call. If that call raised, the server may hold the token on a connection that it
takes for alive, so the next call at the same barrier has it, and the server moves it. No two calls have one at a time.
"""

from __future__ import annotations

import secrets
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from ..wire import TOKEN_BYTES

LEFT_MAX = 1024  # beyond it a call that raised counts until the server finds its connection dead


class BarrierTokens:
    """The tokens of one client."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left: deque[tuple[bytes, bytes]] = deque(maxlen=LEFT_MAX)

    @contextmanager
    def held(self, name: bytes) -> Iterator[bytes]:
        """The token of one call at the barrier of that name."""
        token = self._left_at(name) or secrets.token_bytes(TOKEN_BYTES)
        try:
            yield token
        except BaseException:  # also where nothing was asked: the token may be of an earlier call
            with self._lock:
                self._left.append((name, token))
            raise

    def _left_at(self, name: bytes) -> bytes | None:
        with self._lock:
            for left in self._left:
                if left[0] == name:
                    self._left.remove(left)
                    return left[1]
        return None
