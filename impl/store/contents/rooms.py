"""The rooms of a store: each rendezvous that the server itself applies, and the key that represents it.

Theory of operation. A room is a part of the contents from its first change on. Its run id then has a key too: an older
release keeps a rendezvous in the value of this key, and refuses FORMAT in words. No operation may change the key
(`Contents.guarded`). So a run id has a room or a value of an older release, and never both. The deletion of the key is
the end of the room, in memory and in a journal (`forget`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...rendezvous.rooms.room import Room

if TYPE_CHECKING:
    from .contents import Contents

FORMAT = b'{"format": "trystate-room-1"}'


def key_of(run_id: bytes) -> bytes:
    """The key in which an older release keeps the rendezvous."""
    return b"/trystate/" + run_id + b"/state"


def room_of(contents: Contents, run_id: bytes) -> Room:
    """The room of a run id, or a new one, which joins the contents at its first change if they have space for it.

    The request that makes this first change raises `Refused` if they have none.
    """
    found = contents.rooms.get(run_id)
    if found is not None:
        return found

    def changed(record: bytes) -> None:
        if run_id not in contents.rooms:
            contents.set(key_of(run_id), FORMAT)
            keep(contents, run_id, room)
        contents.room_changed(run_id, record)

    room = Room(lambda: contents.life(), changed, members_max=contents.limits.members_per_room)
    return room


def keep(contents: Contents, run_id: bytes, room: Room) -> None:
    """Make a room a part of the contents."""
    contents.rooms[run_id] = room
    contents.guarded.add(key_of(run_id))


def forget(contents: Contents, run_id: bytes) -> None:
    """Delete the key, and with it the room. Raises `Refused`, and has changed nothing: a journal has no space."""
    contents.take(key_of(run_id))
    drop(contents, key_of(run_id))


def drop(contents: Contents, key: bytes) -> None:
    """The key was deleted: if it is the key of a room, the room has ended."""
    run_id = key.removeprefix(b"/trystate/").removesuffix(b"/state")
    if key in contents.guarded and run_id in contents.rooms:
        contents.guarded.remove(key)
        del contents.rooms[run_id]
