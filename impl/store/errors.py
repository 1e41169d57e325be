"""The exceptions of the stores. Rule: a handler of torch's exception catches ours, and the text says what to do.

Each class derives from `TrystateError` and from the class that torch raises in its place, so that code written for
`torch.distributed` goes on working. Whether a failed operation may have happened is in the class: only
`OutcomeUnknown` may have; after every other one nothing was changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trystate.model.errors import TrystateError, UsageError

from .. import torch_release

if TYPE_CHECKING:
    import torch.distributed as dist
    from torch.distributed import QueueEmptyError
else:
    dist = torch_release.store_errors()
    QueueEmptyError = torch_release.queue_empty_error()


class StoreError(TrystateError, dist.DistStoreError):
    """Root of what an operation on a store raises; it is torch's `DistStoreError` as well."""


class StoreTimeout(StoreError, TimeoutError):
    """The operation's condition did not come about in time; nothing was changed."""


class LimitExceeded(StoreError):
    """A key, a value or a number of keys is over a limit: nothing was sent, or the server refused all of it."""


class NotANumber(StoreError, ValueError):
    """`add` on a key whose value is not a whole decimal number; the value is as it was."""


class CounterOverflow(StoreError, OverflowError):
    """`add` would have left the range of a signed 64-bit number; the counter is as it was."""


class QueueEmpty(StoreError, QueueEmptyError):
    """`queue_pop(block=False)` found nothing."""


class WrongWorld(StoreError, ValueError):
    """`barrier` was called with another world size than those who already wait there."""


class GroupsDiffer(StoreError, ValueError):
    """Two process groups of other ranks have one name, and would read each other's addresses; nothing was written."""


class NotSupported(StoreError, NotImplementedError):
    """The server, or the kind of store, cannot do this; the text names one that can."""


class SecretRefused(StoreError):
    """Client and server could not prove to each other that they know the same secret."""


class FileRefused(StoreError):
    """A file is not a store's, is another job's, is damaged, or cannot be opened or locked; it was not touched."""


class FileLost(StoreError):
    """The file of a store was deleted or replaced while the store used it; nothing was changed."""


class StoreClosed(StoreError):
    """The store was closed by `close()`, maybe by another thread while this operation waited; nothing was changed."""


class ConnectionLost(TrystateError, dist.DistNetworkError):
    """The server cannot be reached, or hung up; the operation did not happen."""


class OutcomeUnknown(ConnectionLost):
    """The request was sent and never answered: the operation may have happened, or may still happen.

    `timed_out`: the server was silent, and may be there still; else it hung up, or the store was closed meanwhile.
    """

    timed_out = False


class AddressRefused(UsageError, dist.DistNetworkError):
    """A master cannot listen where it is to: the port is taken or reserved, or the host is not this machine's."""


class InvalidArgument(UsageError, ValueError):
    """An argument's value is outside what is allowed."""


class InvalidType(UsageError, TypeError):
    """An argument's type is wrong: keys are text, values text or bytes, timeouts `timedelta`."""
