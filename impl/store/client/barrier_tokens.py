"""Tokens of clients at a barrier. With its token a client that arrives again on another connection counts once.

Rule: a token is random and belongs to one call. If that call raised, the server may still hold the token on a
connection that it considers alive. The next call at the same barrier therefore uses the same token, and the server
moves it to the new connection. Two calls never use one token at the same time.
"""

from __future__ import annotations

import secrets
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from ..wire import TOKEN_BYTES

LEFT_MAX = 1024  # most tokens; then the oldest is dropped, and its call counts while its connection lives


class BarrierTokens:
    """The tokens of one client."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left: deque[tuple[bytes, bytes]] = deque(maxlen=LEFT_MAX)

    @contextmanager
    def held(self, name: bytes) -> Iterator[bytes]:
        """The token of one call at the barrier `name`."""
        token = self._left_at(name) or secrets.token_bytes(TOKEN_BYTES)
        try:
            yield token
        except BaseException:  # also if nothing was sent: the token may come from an earlier call
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
