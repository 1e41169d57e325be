"""The format of a record of a store: lines of JSON, in the order in which the store did the operations.

A line is one JSON object in UTF-8. Keys and values of the store are text with one character for each byte (latin-1).
Each line has `t`, the seconds since the epoch on the recorder's clock (wall time at its start, from then on advanced by
the monotonic clock, so it never goes back), `c`, the number of the connection from 1 (0: the recorder), and `op`.

The recorder itself
    header    `format` (1), `by` ("store serve", "store proxy"), `version` of trystate, `host`, `pid`, `monotonic`
              (the clock of this host at `t`), `keys` ("rendezvous", "all"), `values`, `limits` (`bytes`, `files`). A
              later file has `continues`, its number, and `left_out`, if not all states are repeated
    tick      nothing else was written for a second
    lost      `lines`: the number of lines that could not be kept. They came too fast, or the disk refused them
    end       the recorder was stopped normally
Connections
    open      `peer`           close     the connection has ended
    unfollowed  `why`: the proxy cannot read this connection and only passes on its bytes (only in a proxy's record)
State keys: `torch.rendezvous.ID` (torch's c10d backend) and `trystate/ID/state` (ours), below any prefix
    write     `key`, `v` (the version after it, counted by the recorder from 1), `from` (the version before it, 0:
              none), `size`, `value` (complete, up to VALUE_BYTES_MAX). `how`, if not by compare_set. `unseen`: a proxy
              found a value that it has not passed on; `c` is 0
    refused   `key`, `v` (the version that the store has and sends to the writer), `size`, `value` (the value that was
              not stored)
    read      `key`, `v` (0: the key does not exist). A compare_set with equal expected and desired values is a read,
              with `how` if it has stored the same value again. `kept`: a key was deleted after the wait before this
              read, and the answer has the values that the wait kept
    delete    `key`, `found`
Other keys: those below `torch.rendezvous.`, `trystate/` and `ft_rendezvous_barrier:` (NVRx's barrier) are recorded, or
all keys. A line has a value if values are recorded, or if its key is the barrier's, and up to VALUE_BYTES_MAX
    set, append        `key`, `size`, `value`, `v`
    multi_set          `keys`, `sizes`, `values`, `vs`
    add                `key`, `amount`, `result`, `v`
    compare_set        `key`, `size`, `value`, `expected`, `won`, `v` (after it)
    get, multi_get     `key`, `v`; `keys`, `vs` (0: does not exist); `kept` as in a read
    delete, take       `key`, `found`; for a state key both are `delete`
    check              `keys`, `found`
    num_keys           `result`                   list_keys   `key` (the prefix), `result` (how many)
    queue_push, queue_pop   `key`, `size`, `value`, `result` (the queue's length after the push, before the pop)
    queue_len          `key`, `result`
    reserve, put_back  `key`, `serial`: the first element of a queue is kept for the next pop, or was put back
    barrier            `key`, `world`: the caller has arrived, and continues when all have
    watch, unwatch     `key`                      told   `key`, `change`: a change is sent to a watcher
    room               `key` (of the state that an older release would keep), `intent` (its kind), `size` (the request),
                       `node` (the token of its sender), `result` (the size of the answer). Each change of the room is a
                       write of the key, `how` "room", and the end of a room is a delete of the key
    notice             `key`: a notice is sent to a member of the room
    `error` (the name of a status): the request was refused and changed nothing
Requests that block
    wait      `key` (the first; `keys`: all, if there are several), `missing`: the request blocks. A proxy cannot see
              that. It writes this line after PATIENCE_SECONDS, and `missing` has the keys whose write it has not seen
    go        `key`, `keys`: the request was woken and continues; the line of its read follows
    stop      `key`, `keys`, `why`: "timeout", "cancelled", "closed", "unfollowed"

A list of keys has at most KEYS_MAX keys, and `more` is the number of keys left out. Handshakes, which contain secrets,
are never recorded. A line is before the lines of its effects: first the write, then the waits that it wakes.

Files: FILE, FILE.1, FILE.2 ... A later file begins with a header and with the lines that a reader needs to continue.
Each has `again`: open for each connection, write for each state key (`from` is its `v`), wait for each blocked request.
The same lines follow `lost`. A line without a newline was cut off and does not count.
"""

from __future__ import annotations

import enum
import re

FORMAT = 1
VALUE_BYTES_MAX = 4 << 20  # the largest value in a line: the state of some 20,000 nodes
KEYS_MAX = 100  # the longest list of keys in a line
STATES_MAX = 1_000  # state keys and waits that are repeated at the start of a file
LINE_BYTES_MAX = 64 << 20  # a value of the largest size with each byte escaped, and as much again
PATIENCE_SECONDS = 0.1  # a wait without an answer for this time counts as blocked, in a proxy
TORCH, OURS, BARRIER = b"torch.rendezvous.", b"trystate/", b"ft_rendezvous_barrier:"
_STATE = re.compile(rb"(?:.*/)?(?:torch\.rendezvous\.(?:(?!\.\d+/).)+|trystate/(?!rpc/).+/state)", re.DOTALL)


class Keys(enum.Enum):
    """The keys whose requests are recorded."""

    RENDEZVOUS = "rendezvous"
    ALL = "all"


def is_state(key: bytes) -> bool:
    """Whether this key holds the whole state of a rendezvous."""
    return (TORCH in key or OURS in key) and _STATE.fullmatch(key) is not None


def text(data: bytes) -> str:
    """Bytes of a store as text for a line."""
    return data.decode("latin-1")
