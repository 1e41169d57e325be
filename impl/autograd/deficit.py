"""The account that finds the end of a backward pass: Dijkstra and Scholten's, with a sum in the signals.

Source: E. W. Dijkstra and C. S. Scholten, "Termination detection for diffusing computations", Information Processing
Letters 11 (1980). A pass is a *diffusing computation*: it begins at one worker, the root, and spreads by messages
(BACKWARD, MARK). Each message is answered by exactly one *signal* (DONE). The *deficit* of a worker is the number of
its own messages that are not signalled yet.

Theory of operation. A worker is neutral or engaged.

- A neutral worker becomes *engaged* by the first message that it gets. The sender is its *parent*, and waits for the
  signal until this worker is neutral again. The parents form a tree with the worker of `backward()` as its root.
- An engaged worker signals every further message at once.
- An engaged worker that runs nothing, and whose deficit is 0, signals its parent and is neutral again. It may be
  engaged again, by another parent.
- The root has deficit 0 and runs nothing exactly when no message moves anywhere: then the pass is at rest.

The paper's account shows when a computation is at rest, but not whether it is complete. So each signal also reports the
change of the number of *sends without a gradient* since the last signal, in this worker and in the subtree below it. At
rest, the root's total of the reports is that number for the whole pass.

A message to the parent is held back while it can be *piggybacked* on the signal to the parent. The parent is engaged
until it has that signal, so a piggybacked message does not need its own signal.

No I/O, no lock, no clock. `LocalPass` owns one and calls it under the driver's lock.

Failures, after which the pass fails: a peer is lost, so its signal never comes (`LocalPass.lost`), and a message is
refused (`LocalPass.fail`, which signals the parent with the error).
"""

from __future__ import annotations

from .effects import Asker, Request


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
        self.total = 0  # the sum of all reports; only used at the root

    def engage(self, sender: Asker) -> bool:
        """Take a message. Returns True if its sender is the parent now, and False if its signal is due at once."""
        if self.engaged:
            return False
        self.engaged, self.parent = True, sender
        return True

    def is_parent(self, peer: int) -> bool:
        """Whether a message to `peer` can go with the signal that it waits for."""
        return self.parent is not None and self.parent.peer == peer

    def send(self, request: Request, at_once: bool) -> list[Request]:
        """Hold a message of this worker back for the signal to the parent, or return it to be sent now."""
        if not at_once and self.is_parent(request.to):
            self.held.append(request)
            return []
        self.unsignalled += 1
        return [request]

    def release(self) -> list[Request]:
        """Return the messages that were held back, to be sent separately."""
        held, self.held = self.held, []
        self.unsignalled += len(held)
        return held

    def report(self) -> int:
        """Return the change to report with the next signal, or to add to the total."""
        change, self.unreported = self.unreported, 0
        return change

    def disengage(self) -> tuple[Asker | None, Request | None]:
        """Become neutral. Returns the parent to signal, and the message to piggyback on the signal, if any."""
        self.engaged = False
        parent, self.parent = self.parent, None
        held, self.held = self.held, []
        return parent, held[0] if held else None
