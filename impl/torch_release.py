"""The differences between releases of torch that concern the runtime, looked up in the installed release.

Theory of operation. The runtime is built on torch's `Store`, its launcher and its elastic agent, which have gained
methods, options and parameters from release to release. Each function here looks for one of them in the installed
torch, by its name or its signature, which also works for unknown releases. Numbers of releases are used only in the
texts of errors.

Failures:

- A program uses a feature that the installed torch lacks. It is refused, with the first release that has the feature.
- A release drops a feature. The tests of that release fail, and it is not in the range below.

Rule: no other module of the runtime checks the installed torch, and importing this module imports no torch.
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
"""Options of torchrun that came after OLDEST, and the first release that has them. Our agent itself ends the workers
within `--shutdown-timeout`, which torchrun has since 2.12 and `trystate run` has on every release."""

SHUTDOWN_SECONDS = 30  # torch's default of `--shutdown-timeout`


def installed() -> str:
    """The release of the installed torch, such as `2.13.0`, without the name of its build."""
    return version("torch").partition("+")[0]


def outside_range(release: str) -> str:
    """The sentence for a release outside the tested range, with the remedy; empty for a release in the range."""
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
    """Whether the installed torch is older than this; only for differences that no name or signature shows."""
    return _numbers(installed()) < _numbers(since)


def needs(what: str, since: str) -> str:
    """The sentence for a feature that the installed torch does not have yet."""
    return f"{what} needs torch {since} or newer, and torch {installed()} is installed"


# ---- the bases of our exceptions; without an installed torch (a server, `trystate explain`) they are stand-ins


def store_errors() -> Any:
    """`torch.distributed`, or stand-ins for its exceptions if torch is not installed."""
    try:
        import torch.distributed as dist
    except ModuleNotFoundError as error:
        return _stand_ins(error, RuntimeError, "DistError", "DistStoreError", "DistNetworkError")
    return dist


def rendezvous_errors() -> Any:
    """The module of the exceptions of torch's rendezvous, or stand-ins if torch is not installed."""
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


@cache  # the store and the adapter of torch's stores need the same class
def queue_empty_error() -> type[Exception]:
    """`torch.distributed.QueueEmptyError`; before torch 2.8, which has no queues, a class that nothing raises."""
    found: type[Exception] = getattr(store_errors(), "QueueEmptyError", type("QueueEmptyError", (RuntimeError,), {}))
    return found


def lacks(store: Any, method: str) -> str:
    """The sentence for a method that this store's class lacks in the installed torch; empty if the class has it."""
    return "" if hasattr(store, method) else needs(method, METHODS.get(method, NEWEST))


# ---- the launcher and the agent


def signals_to_handle(config: LaunchConfig) -> str | None:
    """The signals that end an agent; None before torch 2.10, whose LaunchConfig lacks the field."""
    return getattr(config, "signals_to_handle", None)


def event_log_handler(config: LaunchConfig) -> str:
    """The name of torch's handler for the agent's events; before torch 2.8 only one handler existed."""
    return getattr(config, "event_log_handler", "null")


def shutdown_timeout(config: LaunchConfig) -> int:
    """Seconds that workers may take to end; before torch 2.12 a LaunchConfig lacks the field."""
    found: int | None = getattr(config, "shutdown_timeout", SHUTDOWN_SECONDS)
    assert found is not None  # LaunchConfig ensures it
    return found


def worker_options(config: LaunchConfig) -> dict[str, Any]:
    """The options that LaunchConfig and WorkerSpec have under the same name in this release."""
    from torch.distributed.elastic.agent.server.api import WorkerSpec

    shared = WorkerSpec.__dataclass_fields__.keys() & type(config).__dataclass_fields__.keys()
    return {name: getattr(config, name) for name in shared}


def is_agents(caller: FrameType) -> bool:
    """Whether the caller of `shutdown` of the rendezvous handler is torch's agent, which calls it up to torch 2.7.

    The agent calls it whenever it stops its workers finally, also after a signal or a failure. The launcher calls it
    afterwards with the agent's error, unless a signal ended the agent. In later releases only the launcher calls it.
    """
    return caller.f_globals.get("__name__") == "torch.distributed.elastic.agent.server.local_elastic_agent"


def shutdown_arguments(seconds: int) -> dict[str, Any]:
    """The keyword arguments with which torch's agent ends its workers within `seconds` without ending the round.

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
    """The edge of a tensor, which keeps the graph behind it alive; `follow` returns a tensor whose node precedes it.

    Before 2.13 the Python object of a user's `Function` does not own its node in C++. Without a node that leads to it,
    the graph ends there.
    """
    import torch

    if _owns_itself(edge[0]):
        return edge
    with torch.enable_grad():
        found = _OwningEdge(edge)
        found.owner = follow().grad_fn
    return found


def _owns_itself(node: Any) -> bool:
    """Whether the Python object of a node owns the node and has its metadata."""
    import torch

    # The release is checked last, because it is read from a file, and this runs for each tensor of a call.
    return not isinstance(node, torch.autograd.function.BackwardCFunction) or not is_before("2.13")


def zeros_for(node: Any) -> Tensor:
    """Zeros that torch's engine accepts for the first input of a node.

    Before 2.13 the node of a user's `Function` does not expose the shape of its input, and up to 2.7 reading it ends
    the process. The engine names the shape when it refuses a gradient of another shape, before anything runs. The
    gradient here has no memory. For a shape of at most one element the engine would sum it, and refuses its device.
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
