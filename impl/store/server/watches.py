"""The watches of connections, and the events that are sent to them.

Theory of operation. A session has the keys that it watches (`session.watches`), and the contents have the session among
the watchers of each key. A change of a key makes one event. Its bytes are made for the first watcher and shared by the
others. An event is sent after the earlier replies of its session, in the order of the changes.

Failures:

- A session watches too many keys: `Refused`.
- A session leaves too much unread: it is closed instead of getting the event (`Replies.overflowed`), so no watcher
  misses a change and continues.

Called by the handlers, and by the contents during a change, on the driver's thread.
"""

from __future__ import annotations

from trystate.model.store.vocabulary import Status

from ..contents.contents import Refused
from ..contents.watching import Changed, Watching
from ..limits import Limits
from ..wire import U64, blob
from .session import Session
from .unread import Replies, joined


class Watches:
    """The watches of all sessions."""

    def __init__(self, watching: Watching, limits: Limits, replies: Replies) -> None:
        self.watching, self.limits, self.replies = watching, limits, replies

    def begin(self, session: Session, key: bytes) -> None:
        """Watch a key. Raises `Refused`."""
        most = self.limits.watches_per_connection
        if len(session.watches) >= most and key not in session.watches:
            reason = f"the limit of {most} watched keys is reached; cancel some, or raise watches_per_connection"
            raise Refused(Status.TOO_LARGE, reason)
        session.watches[key] = None
        self.watching.begin(session, key)

    def end(self, session: Session, key: bytes) -> None:
        """End the watch of a key. Does nothing if the key is not watched."""
        session.watches.pop(key, None)
        self.watching.end(session, key)

    def forget(self, session: Session) -> None:
        """End all watches of a session."""
        for key in session.watches:
            self.watching.end(session, key)
        session.watches.clear()

    def tell(self, session: Session, event: Changed) -> None:
        """Send an event."""
        if not self.replies.overflowed(session):
            if event.wire is None:
                event.wire = _encoded(event)
            session.outgoing += event.wire
            self.replies.pend(session)


def _encoded(event: Changed) -> list[bytes]:
    parts = [bytes((Status.EVENT, event.change)) + blob(event.key)]
    for value in (event.old, event.new):
        parts += (bytes((value is not None,)) + U64.pack(len(value or b"")), value or b"")
    return joined(parts)
