"""The account by which a backward pass finds its own end: Dijkstra and Scholten's, with a sum in the signals.

Source: E. W. Dijkstra and C. S. Scholten, "Termination detection for diffusing computations", Information Processing
Letters 11 (1980). A pass is a *diffusing computation*: it begins at one worker, the root, and spreads by messages
(BACKWARD, MARK). Each message is answered by exactly one *signal* (DONE). The *deficit* of a worker is the number of
its own messages that are not signalled yet.

Theory of operation. A worker is neutral or engaged.

- A neutral worker becomes *engaged* by the first message that it gets. The sender is its *parent*, and waits for the
  signal until this worker is neutral again. The parents form a tree whose root is the worker of `backward()`.
- An engaged worker signals every further message at once.
- An engaged worker that runs nothing, and whose deficit is 0, signals its parent and is neutral again. It may be
  engaged anew, by another parent.
- The root has deficit 0 and runs nothing exactly when no message moves anywhere: then the pass is at rest.

The paper's account tells when a computation is at rest, and not whether it is complete. So each signal also reports by
how much the number of *sends without a gradient* has changed since the last signal, in this worker and in the subtree
below it. At rest, the root's total of the reports is that number for the whole pass.

A message to the parent is held back while it can be *piggybacked* on the signal to the parent. The parent is engaged
until it has that signal, so that a piggybacked message needs no signal of its own.

No I/O, no lock, no clock. `LocalPass` owns one and calls it under the driver's lock. Two things can go wrong, and both
end in an error of the pass: a peer is lost, so that its signal never comes (`LocalPass.lost`), and a message is refused
(`LocalPass.fail`, which signals the parent with the error).
"""

from __future__ import annotations

from .contexts import Asker
from .effects import Request


class Deficit:
    """One worker's account of one pass.

    Args:
        unreported: the sends of this worker that wait for a gradient when its part of the pass begins.
    """

    __slots__ = ("engaged", "held", "parent", "total", "unreported", "unsignalled")

    def __init__(self, unreported: int) -> None:
        self.engaged = False
        self.parent: Asker | None = None  # the peer that engaged this worker; None at the root
        self.unsignalled = 0  # messages of this worker without a signal: the deficit
        self.held: list[Request] = []  # messages to the parent that may go with the signal to it
        # The change of sends without a gradient, in this subtree, that no signal has reported; the model's `owed`.
        self.unreported = unreported
        self.total = 0  # at the root: the sum of all reports

    def engage(self, sender: Asker) -> bool:
        """A message came. True: its sender is the parent now. False: its signal is due at once."""
        if self.engaged:
            return False
        self.engaged, self.parent = True, sender
        return True

    def is_parent(self, peer: int) -> bool:
        """Whether a message to `peer` can go with the signal that it waits for."""
        return self.parent is not None and self.parent.peer == peer

    def send(self, request: Request, at_once: bool) -> list[Request]:
        """A message of this worker: it is held back for the parent's signal, or returned to be sent now."""
        if not at_once and self.is_parent(request.to):
            self.held.append(request)
            return []
        self.unsignalled += 1
        return [request]

    def release(self) -> list[Request]:
        """The messages that were held back, to be sent by themselves."""
        held, self.held = self.held, []
        self.unsignalled += len(held)
        return held

    def signalled(self) -> None:
        """A message of this worker has its signal."""
        self.unsignalled -= 1

    def report(self) -> int:
        """The change to report with the next signal, or to add to the total."""
        change, self.unreported = self.unreported, 0
        return change

    def disengage(self) -> tuple[Asker | None, Request | None]:
        """This worker is neutral: the parent to signal, and the message to piggyback on the signal, if there is one."""
        self.engaged = False
        parent, self.parent = self.parent, None
        held, self.held = self.held, []
        return parent, held[0] if held else None

    def forget_parent(self) -> Asker | None:
        """The pass has failed: the parent, to be signalled with the error, and with nothing else."""
        parent, self.parent, self.held = self.parent, None, []
        return parent
