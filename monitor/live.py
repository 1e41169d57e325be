"""A watched job: each look at its store, or line of its record, is passed to all judges.

Theory of operation. A store that is polled shows states, and `Watch` compares them. A record has more: `Runs` follows
it on the model and reports violated properties with their findings, and `Histories` judges the answers of the store.
Each problem is reported once, when it is found.
"""

from __future__ import annotations

from trystate.model.rendezvous.vocabulary import AgentPhase

from .histories import Histories
from .keys import MalformedLine
from .rendezvous.judging import Problem
from .rendezvous.known import Options
from .rendezvous.runs import Runs
from .rendezvous.shared_state import Protocol, identify
from .sources import Look
from .watch import Notice, Watch

LOOK_SECONDS = 1.0  # time of a record between two looks without a changed state


class Live:
    """The watch of one job, and the judges of its record. `is_wrong`: the record has shown a problem."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.histories = Histories()
        self.is_wrong = False
        terms = watch.terms
        attempts = max(round(terms.expiry / terms.interval), 1)
        self.runs = Runs(
            lambda protocol: Options() if protocol is Protocol.OURS else Options(None, None, terms.interval, attempts)
        )
        self._told: dict[int, int] = {}  # id of a follower -> number of its reported problems

    def take(self, look: Look) -> list[Notice]:
        """Take the next look; returns the notices."""
        watch = self.watch
        watch.job = look.job or watch.job
        if look.why:
            return watch.silence(look.quiet, look.why)
        if look.line is None:
            return watch.look(look.state, look.time, look.took, look.missing)
        if look.line.what == "refused" and watch.job in ("", (identify(look.line.key) or ("", ""))[1]):
            watch.numbers.lost_writes += 1  # the write has lost to another one
        wrong = self._judged(look)
        watch.notices += wrong
        self.is_wrong = self.is_wrong or bool(wrong)
        self._move(look.time)
        if look.state is None and look.time - watch.now < LOOK_SECONDS:
            return wrong
        return [*watch.look(look.state or watch.state, look.time), *wrong]

    def finish(self) -> None:
        """End the record."""
        self.is_wrong = self.is_wrong or bool(self.histories.finish())

    def _judged(self, look: Look) -> list[Notice]:
        assert look.line is not None
        texts: list[str] = []
        try:
            texts += map(str, self.histories.feed(look.line.number, look.line.fields))
        except MalformedLine as error:
            texts.append(str(error))
        self.runs.feed(look.line)
        if self.watch.machines is not None:
            self.watch.machines.line(look.line.fields)
        for follower in (one for one in self.runs.all if self.watch.job in ("", one.run)):
            key = id(follower)
            known = self._told.get(key, 0)
            texts += [_said(each) for each in follower.problems[known:] if each.harm]
            self._told[key] = len(follower.problems)
        return [Notice("warning", look.time, text) for text in texts]

    def _move(self, now: float) -> None:
        """Move the machine of each agent whose phase the model has decided."""
        machines, followers = self.watch.machines, self.runs.followers.values()
        follower = next((f for f in followers if f.begun and f.run == self.watch.job), None)
        if machines is None or follower is None:
            return
        for node in follower.nodes().values():
            if len(node.phases) == 1:
                (phase,) = node.phases
                if phase is not AgentPhase.LEFT or machines.get("agent", node.name) is not None:
                    machines.see("agent", node.name, phase.name, now)
                if phase is AgentPhase.LEFT:
                    machines.forget("agent", node.name)


def _said(problem: Problem) -> str:
    nodes = f"({', '.join(problem.nodes)})" if problem.nodes else ""
    broken = {"violated": "violated", "hopeless": "violated for good"}.get(problem.kind)
    text = f"{broken}: {problem.name}{nodes}: {problem.text}" if broken else problem.text
    finding = problem.finding
    if finding is None:
        return text
    return f"{text} It is {finding.number} {finding.name}; what to do: {finding.workaround or finding.remedy}"
