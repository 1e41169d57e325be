"""The format of a record of a store: lines of JSON, in the order in which the store did what they say.

A line is one JSON object in UTF-8. Keys and values of the store are text, a character for each byte (latin-1). Each
line has `t`, the seconds since the epoch on the recorder's clock (the wall's time at its start, and from then on the
monotonic clock: it never goes back), `c`, the number of the connection, from 1 (0: the recorder itself), and `op`.

The recorder itself
    header    `format` (1), `by` ("store serve", "store proxy"), `version` of trystate, `host`, `pid`, `monotonic`
              (the clock of this host at `t`), `keys` ("rendezvous", "all"), `values`, `limits` (`bytes`, `files`). A
              later file has `continues`, its number, and `left_out`, if not all states are repeated
    tick      nothing else was written for a second
    lost      so many `lines` could not be kept: they came too fast, or the disk refused them
    end       the recorder was stopped in order
Connections
    open      `peer`           close     the connection is gone
    unfollowed  `why`: the proxy cannot read this connection, whose bytes it passes on (a proxy's record alone)
State keys: `torch.rendezvous.ID` (torch's c10d backend) and `trystate/ID/state` (ours), below any prefix
    write     `key`, `v` (the version after it, counted by the recorder from 1), `from` (the one before it, 0: none),
              `size`, `value` (whole, up to VALUE_BYTES_MAX). `how`, if not by compare_set. `unseen`: a proxy found a
              value that came past it; `c` is 0
    refused   `key`, `v` (the version that the store has, and that its writer gets to read), `size`, `value` (the one
              that was not stored)
    read      `key`, `v` (0: the key does not exist). A compare_set that wants what it expects is a read, with
              `how` if it has stored the same value again. `kept`: a key was deleted after the wait that this read
              follows, and the answer has the values that the wait kept
    delete    `key`, `found`
Other keys, of which those below `torch.rendezvous.` and `trystate/` are recorded, or all. A value is there only if
values were asked for, and up to VALUE_BYTES_MAX
    set, append        `key`, `size`, `value`, `v`
    multi_set          `keys`, `sizes`, `values`, `vs`
    add                `key`, `amount`, `result`, `v`
    compare_set        `key`, `size`, `value`, `expected`, `won`, `v` (after it)
    get, multi_get     `key`, `v`; `keys`, `vs` (0: does not exist); `kept`, as of a read
    delete, take       `key`, `found`; for a state key both are `delete`
    check              `keys`, `found`
    num_keys           `result`                   list_keys   `key` (the prefix), `result` (how many)
    queue_push, queue_pop   `key`, `size`, `value`, `result` (the queue's length after the push, before the pop)
    queue_len          `key`, `result`
    reserve, put_back  `key`, `serial`: the first of a queue is kept for the pop that follows, or is back
    barrier            `key`, `world`: it has arrived, and goes on when all have
    watch, unwatch     `key`                      told   `key`, `change`: a watcher is sent a change
    `error` (the name of a status): the request was refused, and changed nothing
Requests that block
    wait      `key` (the first; `keys`: all, if there are several), `missing`: the request blocks. A proxy, which cannot
              know, names the keys that it did not see set, and says so only after PATIENCE_SECONDS
    go        `key`, `keys`: it goes on, woken; the line of its read follows
    stop      `key`, `keys`, `why`: "timeout", "cancelled", "closed", "unfollowed"

A list of keys has KEYS_MAX at most, and `more` says how many are left out. Handshakes, and with them secrets, are
never recorded. A connection's line stands before the lines of what it caused: the write, and then the waits that go on.

Files: FILE, FILE.1, FILE.2 ... A later file begins with a header, and with the lines that are needed to go on, each
with `again`: open for each connection, write for each state key (`from` is its `v`), wait for each blocked request.
The same lines follow `lost`. A line that has no newline was cut off, and is no line.
"""

from __future__ import annotations

import enum
import re

FORMAT = 1
VALUE_BYTES_MAX = 4 << 20  # of a value in a line: some 20,000 nodes
KEYS_MAX = 100  # of a list of keys in a line
STATES_MAX = 1_000  # state keys and waits that are repeated at the begin of a file
LINE_BYTES_MAX = 64 << 20  # a value of the largest size, each byte of it escaped, and as much again
PATIENCE_SECONDS = 0.1  # for the answer to a wait, in a proxy: then it counts as blocked
TORCH, OURS = b"torch.rendezvous.", b"trystate/"
_STATE = re.compile(rb"(?:.*/)?(?:torch\.rendezvous\.(?:(?!\.\d+/).)+|trystate/(?!rpc/).+/state)", re.DOTALL)


class Keys(enum.Enum):
    """The keys whose requests are recorded."""

    RENDEZVOUS = "rendezvous"
    ALL = "all"


def is_state(key: bytes) -> bool:
    """Whether the whole state of a rendezvous is in this key."""
    return (TORCH in key or OURS in key) and _STATE.fullmatch(key) is not None


def text(data: bytes) -> str:
    """Bytes of a store as a line has them."""
    return data.decode("latin-1")
