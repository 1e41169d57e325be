"""The differences between releases of torch that the runtime meets, asked of the release that is installed.

Theory of operation. The runtime stands on torch's `Store`, on its launcher and on its elastic agent, and these gained
methods, options and parameters from release to release. Each function here asks the installed torch for one of them,
by its name or its signature, so that a release that was never seen before is asked the same way. Numbers of releases
are for the texts of errors alone. Two things can go wrong. A program uses something that the installed torch lacks:
it is refused, with the release that brought it. A release drops something: the tests of that release fail, and it is
not in the range below.

Rule: no other module of the runtime asks which torch is installed, and importing this one imports no torch.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from types import FrameType, SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed.launcher.api import LaunchConfig

OLDEST, NEWEST = "2.6", "2.15"  # the runtime's tests pass on both, and on releases between
TESTED = f"{OLDEST} to {NEWEST}"

METHODS = {
    "queue_push": "2.8", "queue_pop": "2.8", "queue_len": "2.8", "clone": "2.8", "list_keys": "2.10", "barrier": "2.12",
}  # fmt: skip
"""Methods of torch's stores that came after OLDEST, and the first release that has them."""

OPTIONS = {
    "event-log-handler": "2.8",
    "numa-binding": "2.9",
    "signals-to-handle": "2.10",
    "duplicate-stdout-filters": "2.10",
    "duplicate-stderr-filters": "2.10",
    "virtual-local-rank": "2.10",
    "log-line-prefix-template": "2.14",
}
"""Options of torchrun that came after OLDEST, and the first release that has them; our agent itself ends the workers
within `--shutdown-timeout`, which torchrun has since 2.12, and `trystate run` on every release."""

SHUTDOWN_SECONDS = 30  # torch's default for that


def installed() -> str:
    """The release of the installed torch, as `2.13.0`, without the name of its build."""
    return version("torch").partition("+")[0]


def outside_range(release: str) -> str:
    """The sentence for a release that is older or newer than the tested ones, with the remedy; empty within them."""
    if is_too_old(release):
        return f"torch {release} is too old: pip install 'torch>={OLDEST}'"
    if _numbers(release) > _numbers(NEWEST):
        return f"torch {release} is newer, and is used like {NEWEST}"
    return ""


def is_too_old(release: str) -> bool:
    """Whether the runtime cannot work on it."""
    return _numbers(release) < _numbers(OLDEST)


def _numbers(release: str) -> tuple[int, ...]:
    """Major and minor number: a patch release changes neither names nor signatures."""
    return tuple(int(part) for part in re.findall(r"\d+", release)[:2])


@cache
def is_before(since: str) -> bool:
    """Whether the installed torch is older than this; only for what neither a name nor a signature tells."""
    return _numbers(installed()) < _numbers(since)


def needs(what: str, since: str) -> str:
    """The sentence for something that the installed torch does not have yet."""
    return f"{what} needs torch {since} or newer, and torch {installed()} is installed"


# ---- the exceptions from which ours derive: where torch is not installed (a server, `trystate explain`), stand-ins


def store_errors() -> Any:
    """`torch.distributed`, or where there is no torch what stands for its exceptions."""
    try:
        import torch.distributed as dist
    except ModuleNotFoundError as error:
        return _stand_ins(error, RuntimeError, "DistError", "DistStoreError", "DistNetworkError")
    return dist


def rendezvous_errors() -> Any:
    """The module of the exceptions of torch's rendezvous, or where there is no torch what stands for them."""
    try:
        from torch.distributed.elastic.rendezvous import api
    except ModuleNotFoundError as error:
        names = (f"Rendezvous{what}Error" for what in ("", "Closed", "Timeout", "Connection", "State"))
        return _stand_ins(error, Exception, *names)
    return api


def _stand_ins(error: ModuleNotFoundError, base: type[Exception], root: str, *names: str) -> Any:
    if error.name != "torch":
        raise error
    first = type(root, (base,), {})
    return SimpleNamespace(**{root: first}, **{name: type(name, (first,), {}) for name in names})


# ---- stores


def queue_empty_error() -> type[Exception]:
    """`torch.distributed.QueueEmptyError`; before torch 2.8, which has no queues, a class that nothing raises."""
    dist = store_errors()

    found: type[Exception] = getattr(dist, "QueueEmptyError", _NoQueues)
    return found


class _NoQueues(RuntimeError):
    pass


def lacks(store: Any, method: str) -> str:
    """The sentence for a method that this store's class does not have in the installed torch; empty if it has it."""
    return "" if hasattr(store, method) else needs(method, METHODS.get(method, NEWEST))


# ---- the launcher and the agent


def signals_to_handle(config: LaunchConfig) -> str | None:
    """The signals that end an agent; None before torch 2.10, whose launcher does not say."""
    return getattr(config, "signals_to_handle", None)


def event_log_handler(config: LaunchConfig) -> str:
    """The name of torch's handler for the agent's events; before torch 2.8 there was one."""
    return getattr(config, "event_log_handler", "null")


def shutdown_timeout(config: LaunchConfig) -> int:
    """Seconds that workers may take to end; before torch 2.12 a LaunchConfig has the field only from `trystate run`."""
    found: int | None = getattr(config, "shutdown_timeout", SHUTDOWN_SECONDS)
    assert found is not None  # LaunchConfig sees to that
    return found


def worker_options(config: LaunchConfig) -> dict[str, Any]:
    """The options of a LaunchConfig that a WorkerSpec has under the same name, in this release."""
    from torch.distributed.elastic.agent.server.api import WorkerSpec

    shared = WorkerSpec.__dataclass_fields__.keys() & type(config).__dataclass_fields__.keys()
    return {name: getattr(config, name) for name in shared}


def is_agents(caller: FrameType) -> bool:
    """Whether it is torch's agent that calls `shutdown` of its rendezvous handler, as it does up to torch 2.7.

    It does so whenever it stops its workers for good, also for a signal or a failure. The launcher calls it after that
    with the agent's error, unless a signal ended the agent: as later releases do, whose agent never calls it.
    """
    return caller.f_globals.get("__name__") == "torch.distributed.elastic.agent.server.local_elastic_agent"


def shutdown_arguments(seconds: int) -> dict[str, Any]:
    """The keyword arguments with which torch's agent ends its workers within `seconds`, and leaves the round alone.

    `timeout` came with torch 2.12. Up to 2.7 torch's agent closes the rendezvous for all nodes, unless `is_restart`.
    """
    from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent

    known = inspect.signature(LocalElasticAgent._shutdown).parameters
    wanted = {"timeout": seconds, "is_restart": True}
    return {name: value for name, value in wanted.items() if name in known}


# ---- autograd


class _OwningEdge(tuple[Any, int]):
    """An edge that keeps its node alive."""

    owner: Any


def owning(edge: tuple[Any, int], follow: Callable[[], Tensor]) -> tuple[Any, int]:
    """The edge of a tensor, which keeps the graph behind it alive: `follow` makes a tensor whose node comes before.

    Before 2.13 the Python object of a user's `Function` does not own its node in C++, and without a node that leads to
    it the graph ends there.
    """
    import torch

    if _owns_itself(edge[0]):
        return edge
    with torch.enable_grad():
        found = _OwningEdge(edge)
        found.owner = follow().grad_fn
    return found


def _owns_itself(node: Any) -> bool:
    """Whether the Python object of a node is the node, and answers for it."""
    import torch

    # In this order: each tensor of a call comes here, and the release is read from a file.
    return not isinstance(node, torch.autograd.function.BackwardCFunction) or not is_before("2.13")


def zeros_for(node: Any) -> Tensor:
    """Zeros that torch's engine takes for the first input of a node.

    Before 2.13 the node of a user's `Function` does not say what it takes, and up to 2.7 ends the process when asked.
    The engine says it when it refuses a gradient of another shape, before anything runs: here one without memory, which
    would be summed up for a shape of at most one element, and is refused then for its device.
    """
    import torch

    if _owns_itself(node):
        meta = node._input_metadata[0]
        return torch.zeros(meta.shape, dtype=meta.dtype, device=meta.device)
    engine: Any = torch.autograd.Variable._execution_engine
    edge = torch.autograd.graph.GradientEdge(node, 0)
    unfit = torch.empty(_UNUSUAL_LENGTH, device="meta")
    try:
        engine.run_backward((edge,), (unfit,), True, False, (), allow_unreachable=True, accumulate_grad=False)
    except RuntimeError as error:
        found = re.search(r"expected shape compatible with \[([\d, ]*)\]", str(error))
        return torch.zeros([int(length) for length in re.findall(r"\d+", found[1])] if found else 1)
    raise AssertionError(f"{node} took a gradient of {_UNUSUAL_LENGTH} elements")


_UNUSUAL_LENGTH = 982_451_653
