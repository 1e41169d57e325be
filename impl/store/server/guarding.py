"""Connections whose bytes are sealed: by TLS from the first byte, or bound to the proof of the server's secret.

Rule: the service sees only bytes that were opened. Bytes that follow the proof in the same piece are in no record, so a
relay may have added them: they end the connection. Replies are sealed from the first opened bytes of the peer on. The
proof of the server, which no layer seals yet, has left before, because the peer waits for it.
"""

from __future__ import annotations

from typing import Any

from ...host import tls
from ...host.sealing import Layer

Base: Any = object  # a connection of a driver, whose module imports this one


class Guarded(Base):  # type: ignore[misc]  # a mixin
    """A connection with a layer."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.layer: Layer | None = None if self.driver.tls is None else tls.serving(self.driver.tls)
        self.seals = False

    def data_received(self, data: bytes) -> None:
        if self.layer is None or (data := self._opened(data)):
            self.seals = self.layer is not None
            super().data_received(data)
        session = self.session
        if session.bound is None or session.closing:
            return
        if self.layer is None:
            self.layer = session.bound
            self.service.admit(session)
        self.service.half_sent.record(session, session.bound.half)
        if session.bound.half:
            self.driver.settle()

    def _opened(self, data: bytes) -> bytes:
        assert self.layer is not None
        try:
            data = self.layer.opened(data)
        except OSError as error:
            data = b""
            self.service.close(self.session, tls.reason(error))
        if answer := self.layer.answer():  # behind the bytes that the transport still has
            (self._leave_to_transport if self.transport.get_write_buffer_size() else super().transmit)(answer)
        if not data:
            self.driver.settle()
        return data

    def transmit(self, data: bytes | memoryview) -> None:
        try:
            super().transmit(self.layer.sealed(data) if self.seals and self.layer is not None else data)
        except OSError:  # TLS seals nothing after a broken record of the peer
            self.transport.abort()

    def transmit_parts(self, parts: list[bytes]) -> int:
        self.transmit(data := b"".join(parts))
        return len(data)


def guarded(kind: type[Any]) -> type[Any]:
    """The same kind of connection, guarded."""
    return type(f"Guarded{kind.__name__}", (Guarded, kind), {})
