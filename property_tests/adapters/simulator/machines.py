"""A simulated host: its clock, its messages, its processes and its faults.

Rule: after a crash the host starts its next process. A subclass defines the process.
"""

from __future__ import annotations

import random
from typing import Any

from .link import Link
from .moments import Time
from .schedule import NO_RETURN, Fault, Host, Schedule

KILL_SECONDS = 0.25  # longest time to kill workers
START_SECONDS = 0.1  # longest time from the return of next_rendezvous to the start of the workers
LEAVE_SECONDS = 3.0  # how long a process tries to announce its end after the end of its workers


class Machine:
    """A host, and the processes that have run on it: only the last one may be up. `frozen_until` is in true time."""

    network: Any  # the network of handlers: a `servers.Network`

    def __init__(self, host: Host, schedule: Schedule, time: Time) -> None:
        self.host, self.time = host, time
        self.seed = f"{schedule.seed} {host.number}"
        self.rng = random.Random(self.seed)
        self.link = Link(time, self.rng)
        self.frozen_until = self.disturbed_until = 0.0  # the end of a freeze of the host, and of any disturbance
        self.processes: list[Any] = []
        self.lost = False  # its process was killed, and is not started again
        time.at(host.start, self.boot)

    def clock(self) -> float:
        return self.host.clock + self.host.rate * self.time.now

    @property
    def frozen(self) -> bool:
        return self.frozen_until > self.time.now

    @property
    def still_until(self) -> float:
        """The time until which its agent does not run."""
        return self.frozen_until

    def started(self, number: int) -> Any:
        """A new process, the `number`-th."""
        raise NotImplementedError

    def thaw(self) -> None:
        """Called when a stall may be over."""

    def strike(self, process: Any, fault: Fault) -> None:
        """The workers of the running process fail, or succeed."""
        raise NotImplementedError

    def boot(self) -> None:
        self.lost = False
        self.processes.append(self.started(len(self.processes)))

    def suffer(self, fault: Fault) -> None:
        """A fault of this host begins."""
        self._disturbed(fault.seconds)
        if fault.kind == "stall":
            self._stall(fault.seconds)
        elif fault.kind == "stall_in_write":
            self.link.trap = lambda: self._stall(fault.seconds)
        elif fault.kind in ("cut", "loss", "slow"):
            name = f"{fault.kind}_until"
            setattr(self.link, name, max(getattr(self.link, name), self.time.now + fault.seconds))
        elif self.processes and self.processes[-1].up:
            self._hit(self.processes[-1], fault)

    def _disturbed(self, seconds: float) -> None:
        self.disturbed_until = max(self.disturbed_until, self.time.now + (seconds if seconds < NO_RETURN else 0.0))

    def _stall(self, seconds: float) -> None:
        self._disturbed(seconds)
        self.frozen_until = max(self.frozen_until, self.time.now + seconds)
        self.time.after(seconds, self.thaw)

    def _hit(self, process: Any, fault: Fault) -> None:
        if fault.kind == "crash":
            process.die()
            self.frozen_until = self.time.now
            self.lost = fault.seconds >= NO_RETURN
            if not self.lost:
                self.time.after(fault.seconds, self.boot)
        elif fault.kind == "leave":
            self.time.at(self.still_until, process.leave)
        else:
            self.strike(process, fault)
