"""The exceptions of the rendezvous: torch's exceptions, with a remedy in the text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trystate.model.errors import TrystateError

from .. import torch_release

if TYPE_CHECKING:
    from torch.distributed.elastic.rendezvous import api as torch_api

    from .state import Closed, Node, Settings
else:
    torch_api = torch_release.rendezvous_errors()


class RendezvousError(TrystateError, torch_api.RendezvousError):
    """The base of all errors of the rendezvous; it is also torch's `RendezvousError`."""


class RendezvousClosedError(RendezvousError, torch_api.RendezvousClosedError):
    """The rendezvous was closed; the text names the node and the reason."""

    symptom = "the-rendezvous-is-closed"


class RendezvousDrained(RendezvousError):
    """An operator has drained this node: it has left, and the others continue."""

    symptom = "a-node-was-drained"


class NotNeeded(SystemExit):
    """The job has succeeded while this node had no seat, or it was drained: the launcher's process ends with code 0.

    A program that calls torch's `elastic_launch` and has more to do afterwards catches it.
    """


class RendezvousIdShared(RendezvousError):
    """The job had seats for other nodes alone and no own id, so it is unknown whether this node belonged to it."""

    symptom = "the-rendezvous-is-closed"


class RendezvousTimeoutError(RendezvousError, torch_api.RendezvousTimeoutError):
    """No round with this node was complete in time; the others continue without it."""

    symptom = "no-round-begins"


class Interrupted(RendezvousError):
    """Another thread ended this node's part while it was under way."""


class RendezvousConnectionError(RendezvousError, torch_api.RendezvousConnectionError):
    """The store could not be reached for as long as the node was ready to wait."""

    symptom = "the-endpoint"


class RendezvousStateError(RendezvousError, torch_api.RendezvousStateError):
    """The value in the store is not a state of a rendezvous, or is of another version; it was not changed."""

    symptom = "settings-that-differ"


class RendezvousSettingsError(RendezvousError, ValueError):
    """The settings of this node differ from the settings of the rendezvous that it wants to join, or are invalid."""

    symptom = "settings-that-differ"


# ---- errors of both parts of a node, on a document and in a room


def checked(settings: Settings) -> Settings:
    """These settings. Raises RendezvousSettingsError: a full round would complete below its own minimum."""
    low, high = settings.min_nodes, settings.max_nodes
    if not 1 <= low <= high:
        raise RendezvousSettingsError(
            f"--nnodes={low}:{high}: with max_nodes={high}, min_nodes={low} is not possible; "
            "give --nnodes=MIN:MAX with 1 <= MIN <= MAX"
        )
    return settings


def late_error(node: Node, settings: Settings, seconds: float, others: str) -> RendezvousTimeoutError:
    """The error of a join whose deadline has passed; `others` is a clause about the nodes that remain."""
    return RendezvousTimeoutError(
        f"no round with {node} was complete within join_timeout={seconds:g} s; see whether at least "
        f"min_nodes={settings.min_nodes} nodes have started. This node has left; {others}"
    )


def drained_error(node: Node, others: str) -> RendezvousDrained:
    return RendezvousDrained(f"an operator has drained this node, {node}: it has left; {others}")


def closed_error(closed: Closed) -> RendezvousClosedError:
    return RendezvousClosedError(f"the rendezvous was {closed}")
