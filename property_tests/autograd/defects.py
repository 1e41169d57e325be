"""Mistakes that random programs must notice, planted in the processes that run them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from unittest import mock

from trystate.impl.autograd.torch_graph import TorchGraph

Right = Callable[..., Any]


def lost_path(right: Right) -> Right:
    """Of two gradients of one value one counts."""
    return lambda graph, one, other: other


def freed(right: Right) -> Right:
    """The graph is not retained for the next pass."""
    return lambda graph, starts, leaves, retain: right(graph, starts, leaves, False)


def early(right: Right) -> Right:
    """Hooks see parts of a gradient."""
    return lambda graph, node: True


def unannounced(right: Right) -> Right:
    """Nobody is told that a gradient has been accumulated."""

    def keep(graph: TorchGraph, into: dict[Any, Any], node: Any, gradient: Any) -> None:
        with mock.patch.object(node.variable, "_post_accumulate_grad_hooks", None):
            right(graph, into, node, gradient)

    return keep


DEFECTS: Mapping[str, tuple[str, Callable[[Right], Right]]] = {
    "lost path": ("add", lost_path),
    "freed": ("run_region", freed),
    "early": ("tolerates", early),
    "unannounced": ("keep", unannounced),
}
_planted: list[Any] = []


def plant(rank: int, name: str) -> None:
    method, defect = DEFECTS[name]
    patch = mock.patch.object(TorchGraph, method, defect(getattr(TorchGraph, method)))
    patch.start()
    _planted.append(patch)


def mend(rank: int) -> None:
    while _planted:
        _planted.pop().stop()
