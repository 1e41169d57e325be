"""Why a call is late: the worker at the end of its chain of calls, named in the caller's RpcTimeout.

The function of a call may wait for another call, and so on. If the last worker of such a chain hangs, the deadlines of
all its callers expire, and each caller could only name its own callee. So shortly before the deadline of a call its
caller sends inquiries: which calls the function waits for, then the same to the callees of these calls, and so on.
Threads that read connections answer them, never the thread that runs the function. A worker that does not answer in the
time that is left is the one that hangs. If all answer, the calls at the end of the chain still run.

Only calls that a function makes on its own thread are attributed to it. The answers only serve the text of an error: no
call ends earlier or later because of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from struct import Struct
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from .frames import Kind

if TYPE_CHECKING:
    from .agent import Agent
    from .requests import Answer, Incoming, Request

Key = tuple[int, int]  # a request: the worker that made it, and its number there
QUESTION = Struct("<IQ")  # a Key
QUESTIONS_MAX = 64  # the most questions of one inquiry: a function may wait for many calls, and each of them for many
WAITS_MAX = 8  # the most calls that one answer names
NAME_MAX = 200  # characters of a function's name in an answer
FRACTION, SECONDS_MAX = 0.2, 1.0  # the part of a call's timeout, at its end, for the inquiry


def lead_time(timeout: float) -> float:
    """The seconds between the inquiry and the deadline of a call with this timeout in seconds."""
    return min(timeout * FRACTION, SECONDS_MAX)


class ChainedCall(NamedTuple):
    """One call of the chain: function `what` on worker `to`."""

    to: int
    what: str


Path = tuple[ChainedCall, ...]


class Inquiries:
    """One worker's inquiries, and its answers to the inquiries of others."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._running: dict[Key, Incoming] = {}
        agent.serve(Kind.INQUIRY, self._asked)
        agent.inquire = self._inquire

    def begun(self, call: Incoming) -> None:
        self._running[call.peer, call.number] = call

    def ended(self, call: Incoming) -> None:
        self._running.pop((call.peer, call.number), None)

    def _inquire(self, number: int, request: Request, seconds: float) -> Callable[[], str]:
        inquiry = Inquiry(self._agent, seconds)
        inquiry.ask((self._agent.me, number), (ChainedCall(request.to, request.what),))
        return inquiry.result

    def _asked(self, incoming: Incoming) -> None:
        """Answer an inquiry, on a thread that reads a connection; must not block."""
        key = QUESTION.unpack(incoming.body)
        call = self._running.get(key)
        causes = {key, call.waits_for} if call is not None else {key}
        waits = self._agent.caused_by(causes)[:WAITS_MAX]
        said = {"runs": call is not None, "waits": [(n, r.to, r.what[:NAME_MAX]) for n, r in waits]}
        incoming.answer(json.dumps(said).encode())


class Inquiry:
    """One inquiry: the known calls that one late call waits for."""

    def __init__(self, agent: Agent, seconds: float) -> None:
        self._agent, self._deadline = agent, monotonic() + seconds
        self._questions = 0
        self._silent: dict[int, Path] = {}  # paths whose last worker has not answered, by the number of the question
        self._running: list[Path] = []  # paths whose last call runs and does not wait for another one

    def ask(self, key: Key, path: Path) -> None:
        """Send the worker at the end of a path the question which calls the request `key` waits for."""
        left = self._deadline - monotonic()
        if self._questions >= QUESTIONS_MAX or left <= 0:
            return
        self._questions += 1
        self._silent[self._questions] = path
        answered = partial(self._answered, self._questions, path)
        self._agent.request(path[-1].to, Kind.INQUIRY, QUESTION.pack(*key), (), left, answered)

    def _answered(self, question: int, path: Path, answer: Answer | BaseException) -> None:
        """Take an answer in, on any thread; must not block."""
        if isinstance(answer, BaseException):
            return  # the path stays in `_silent`
        try:
            said = json.loads(answer.body)
            waits = [(int(number), ChainedCall(int(to), str(what))) for number, to, what in said["waits"]]
            runs = bool(said["runs"])
        except (ValueError, KeyError, TypeError):
            return
        for number, step in waits:
            if step.to in self._agent.workers:
                self.ask((path[-1].to, number), (*path, step))
        if runs and not waits:
            self._running.append(path)
        del self._silent[question]

    def result(self) -> str:
        """The state of the call for the text of an error; "" if nothing is known."""
        silent, running = (max(list(paths), key=len, default=None) for paths in (self._silent.values(), self._running))
        if silent is not None:
            return f"{self._shown(silent)}which does not answer: see whether its process hangs"
        if running is not None:
            return f"{self._shown(running)}where it still runs: see what it does there"
        return ""

    def _shown(self, path: Path) -> str:
        names = [self._agent.workers[step.to].name for step in path]
        chain = (
            f"it waits for {step.what} on worker {name!r}, " for step, name in zip(path[1:], names[1:], strict=True)
        )
        return "".join(chain) or f"worker {names[0]!r}, "
