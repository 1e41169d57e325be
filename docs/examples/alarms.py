"""Alarms on a running job: print a line when a heartbeat ends, a round moves, or the workers of a node start.

    python docs/examples/alarms.py FILE

FILE is the record that `trystate store serve --record FILE` writes. The script follows it while it grows. With
`polled(endpoint, job, None, 1.0)` instead of `tailed` the same alarms work on any store, including torch's own.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from trystate.monitor.live import Live
from trystate.monitor.machines import Followed, Machines
from trystate.monitor.sources import tailed
from trystate.monitor.watch import Watch


class Heartbeat(Followed):
    def on_enter_EXPIRED(self, event: Any) -> None:
        print(f"page the operator: {self.name} does not beat")


class Round(Followed):
    def after_move(self, event: Any) -> None:
        print(f"the round of job {self.name} is {self.state}, by {event.event.name}")


class Agent(Followed):
    def on_enter_EXCHANGING(self, event: Any) -> None:
        print(f"{self.name} has met the others, and exchanges numbers of workers with them")

    def on_enter_RUNNING(self, event: Any) -> None:
        print(f"{self.name} runs its workers")


def main(path: str) -> None:
    machines = Machines({"heartbeat": Heartbeat, "round": Round, "agent": Agent})
    live = Live(Watch("", path, machines=machines))
    for look in tailed(Path(path), None):
        live.take(look)


if __name__ == "__main__":
    main(sys.argv[1])
