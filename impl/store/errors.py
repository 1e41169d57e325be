"""The exceptions of the stores. Rule: a handler of torch's exception catches ours, and the text names the remedy.

Each class derives from `TrystateError` and from the class that torch raises in the same case, so code written for
`torch.distributed` still works. The class shows whether the failed operation may have happened: it may have only with
`OutcomeUnknown`. With every other class nothing was changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trystate.model.errors import TrystateError, UsageError
from trystate.model.store.vocabulary import Status

from .. import torch_release

if TYPE_CHECKING:
    import torch.distributed as dist
    from torch.distributed import QueueEmptyError
else:
    dist = torch_release.store_errors()
    QueueEmptyError = torch_release.queue_empty_error()


class StoreError(TrystateError, dist.DistStoreError):
    """The root of the exceptions that an operation on a store raises. It is also a `DistStoreError` of torch."""


class StoreTimeout(StoreError, TimeoutError):
    """The condition that the operation waits for was not met in time. Nothing was changed."""


class LimitExceeded(StoreError):
    """A key, a value or a number of keys exceeds a limit. Nothing was sent, or the server refused the whole request."""


class NotANumber(StoreError, ValueError):
    """`add` on a key whose value is not a whole decimal number. The value was not changed."""


class CounterOverflow(StoreError, OverflowError):
    """`add` would have left the range of a signed 64-bit number. The counter was not changed."""


class QueueEmpty(StoreError, QueueEmptyError):
    """`queue_pop(block=False)` found the queue empty."""


class WrongWorld(StoreError, ValueError):
    """`barrier` was called with another world size than the callers that already wait there."""


class GroupsDiffer(StoreError, ValueError):
    """Two process groups of other ranks have one name and would read each other's addresses. Nothing was written."""


class NotSupported(StoreError, NotImplementedError):
    """The server or the kind of store does not support this. The text names one that does."""


class SecretRefused(StoreError):
    """Client and server could not prove to each other that they have the same secret."""


class TlsRefused(SecretRefused):
    """Client and server do not accept each other's certificate, or only one of them uses TLS."""


class FileRefused(StoreError):
    """The directory of a kept server is not a store's, is damaged, in use, or can't be opened. It was not changed."""


class StoreClosed(StoreError):
    """The store was closed by `close()`, maybe by another thread while this operation waited. Nothing was changed."""


class ConnectionLost(TrystateError, dist.DistNetworkError):
    """The server cannot be reached or has hung up. The operation did not happen."""


class OutcomeUnknown(ConnectionLost):
    """The request was sent and never answered: the operation may have happened, or may still happen.

    With `timed_out` the server was silent and may still run. Otherwise it hung up, or the store was closed meanwhile.
    """

    timed_out = False


class AddressRefused(UsageError, dist.DistNetworkError):
    """A master cannot listen at its address: the port is in use or reserved, or the host is not this machine."""


class InvalidArgument(UsageError, ValueError):
    """An argument's value is not allowed."""


class InvalidType(UsageError, TypeError):
    """An argument's type is wrong: keys are text, values text or bytes, timeouts `timedelta`."""


# The exceptions for the statuses of operations that the contents refuse, on the server or here. Others: StoreError.
REFUSALS: dict[Status, type[StoreError]] = {
    Status.NOT_A_NUMBER: NotANumber,
    Status.OVERFLOW: CounterOverflow,
    Status.TOO_LARGE: LimitExceeded,
    Status.WRONG_WORLD: WrongWorld,
    Status.EMPTY: QueueEmpty,
}
