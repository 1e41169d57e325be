"""The conformance harness, for our own suites and for yours.

`state_machine` turns a system into a hypothesis state machine over a `Subject`; `replay_every_edge` of
`.paths` takes every step of a small system. Rule: importing this loads neither hypothesis nor torch.
"""

from typing import TYPE_CHECKING, Any

from .subjects import Disagreement, Refused, Subject

if TYPE_CHECKING:
    from .stateful import state_machine

__all__ = ["Disagreement", "Refused", "Subject", "state_machine"]


def __getattr__(name: str) -> Any:
    if name == "state_machine":
        from .stateful import state_machine

        return state_machine
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}: it has {', '.join(__all__)}")
