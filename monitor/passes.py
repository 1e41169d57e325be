"""Backward passes as the workers recorded them: merged, compared with the model's, and reported.

Theory of operation. Each worker writes its own record (`impl/autograd/recorder`), by its own clock. `merged` puts them
into one causal order: a message is received after it was sent, and answered after it was received; clocks decide only
between lines without a cause. `Passes` takes the lines in that order. For each worker's part of a pass it follows the
machine `part` of the model (`model/autograd/backward`), whose moves are read off the declaration. A part of the runtime
does not distinguish marking and counting from running, so these three are one state here.

| check | problem |
| --- | --- |
| `moves` | a part moves in a way that no step of the model does |
| `counts` | a node is counted twice, runs without having been counted, or runs twice in a pass |
| `order` | a message is received, or answered, that was not sent; a send gets two gradients in one pass |
| `end` | backward() returned, and a node has not run, an answer is missing, or a worker's part is not done |
| `left` | backward() raised, and a worker that can be reached still has its part of the pass |
| `contexts` | a part begins in a context that is over at this worker |

A record that is cut or full ends early, and no later line of its worker is expected.
"""

from __future__ import annotations

import heapq
import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trystate.impl.host.visible import some
from trystate.model.autograd.backward import Ours, Smart
from trystate.model.autograd.vocabulary import Part
from trystate.model.errors import UsageError

FORMAT = 1
NEEDED = {"header": ("worker",), "told": ("to",), "heard": ("peer",), "answered": ("peer", "outcome")}
LINE_BYTES_MAX = 1 << 26  # the counts of two million nodes
PASSES_MAX = 10_000  # passes that are kept: at twice this number, older passes that have ended are forgotten
WRONG_MAX = 1_000
SHOWN_MAX = 8  # nodes or messages that a sentence lists
RUNNING = (Part.MARKING, Part.COUNTING, Part.RUNNING)
OVER = (Part.DONE, Part.CANCELLED)
LIVE = (Part.RUNNING, Part.PASSIVE, Part.DRAINING)

Line = Mapping[str, Any]
Told = tuple[int, int, str, int]  # pass, worker, kind and send of a message


@dataclass(frozen=True, slots=True)
class PassWrong:
    """A violation of the model: the check that found it, the record and its line, and the pass."""

    check: str
    where: str
    number: int
    text: str

    def __str__(self) -> str:
        return f"{self.where}: pass {shown_id(self.number)}: {self.text}"


@dataclass(frozen=True, slots=True)
class PictureRow:
    """An event in a picture: a note of one worker, or (with `to`) a message between two."""

    worker: int
    lines: tuple[str, ...]
    to: int | None = None
    answer: bool = False


@dataclass(slots=True)
class Share:
    """One worker's part of a pass."""

    state: Part = Part.IDLE
    counted: dict[int, str] = field(default_factory=dict)  # number of a node -> its name
    ran: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Pass:
    """A pass: its context, the part of each worker, and the messages without an answer."""

    number: int
    context: int
    began: float
    ended: float = 0.0
    shares: dict[int, Share] = field(default_factory=dict)
    open: dict[Told, tuple[int, str]] = field(default_factory=dict)  # -> its sender, and the place of the line
    given: set[int] = field(default_factory=set)  # sends that got a gradient
    marked: set[int] = field(default_factory=set)
    lost: set[int] = field(default_factory=set)  # workers that did not answer
    messages: int = 0
    where: str = ""  # the line of its end
    rows: list[PictureRow] = field(default_factory=list)

    @property
    def root(self) -> int:
        return self.number >> 48

    @property
    def state(self) -> Part:
        return self.shares[self.root].state if self.root in self.shares else Part.IDLE

    def __str__(self) -> str:
        """One line for a reader."""
        how = {Part.DONE: "returned", Part.CANCELLED: "raised", Part.FAILED: "is being cancelled"}
        nodes = sum(len(share.ran) for share in self.shares.values())
        took = f" after {1000 * (self.ended - self.began):.1f} ms" if self.ended else ""
        mode = "SMART" if self.marked else "FAST"
        counts = ((len(self.shares), "worker"), (nodes, "node"), (self.messages, "message"))
        said = ", ".join(f"{count} {noun}{'s' * (count != 1)}" for count, noun in counts)
        return (
            f"pass {shown_id(self.number)} in context {shown_id(self.context)}, {mode}: {said}; "
            f"backward() {how.get(self.state, 'has not returned')}{took}"
        )


def shown_id(number: int) -> str:
    """An id as `worker.count`."""
    return f"{number >> 48}.{number & (1 << 48) - 1}"


def part_moves() -> frozenset[tuple[Part, Part]]:
    """The moves of a part in one pass, in both modes, that the model's steps claim.

    The runtime passes through DRAINING at once when all its messages are answered, and does not record it then.
    """
    arcs = {arc for system in (Ours(attempt=1), Smart(attempt=1)) for t in system.transitions for arc in t.arcs}
    pairs = {(_merged(a.source), _merged(a.dest)) for a in arcs if isinstance(a.source, Part)}
    one = {(source, dest) for source, dest in pairs if source is not dest and not (source in OVER and dest in RUNNING)}
    return frozenset(one | {(a, d) for a, b in one for c, d in one if b is c is Part.DRAINING and a is not d})


def _merged(part: Any) -> Part:
    return Part.RUNNING if part in RUNNING else part


# ---- reading


def lines_of(path: Path) -> Iterator[tuple[str, Line]]:
    """The lines of one worker's record, each with its place; a last line that a crash has cut off is left out.

    Raises:
        UsageError: the file cannot be read, or a line does not belong to such a record.
    """
    try:
        with open(path, "rb") as file:
            for number in range(1, 1 << 62):
                raw = file.readline(LINE_BYTES_MAX)
                if not raw.endswith(b"\n"):
                    if len(raw) == LINE_BYTES_MAX:
                        raise UsageError(f"{path.name}:{number}: the line has more than {LINE_BYTES_MAX} bytes")
                    return
                where = f"{path.name}:{number}"
                yield where, _checked(where, raw, number == 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None


def is_record(path: Path) -> bool:
    """Whether this is the record of a worker's passes."""
    try:
        with open(path, "rb") as file:
            return b'"by":"autograd"' in file.readline(1000)
    except OSError:
        return False


def _checked(where: str, raw: bytes, is_first: bool) -> Line:
    try:
        line = json.loads(raw)
    except (ValueError, RecursionError):
        raise UsageError(f"{where}: the line is not JSON") from None
    if not isinstance(line, dict) or not isinstance(line.get("op"), str):
        raise UsageError(f"{where}: the line has no `op`; give a record that `record_to` has written")
    if is_first and (line.get("by"), line.get("format")) != ("autograd", FORMAT):
        raise UsageError(f"{where}: this is not a record of passes of format {FORMAT}; give one that `record_to` wrote")
    if lacking := [name for name in NEEDED.get(line["op"], ()) if not isinstance(line.get(name), int | str)]:
        raise UsageError(f"{where}: the line has no `{lacking[0]}`; give a record that `record_to` has written")
    return line


def merged(records: Sequence[Path]) -> Iterator[tuple[str, int, Line]]:
    """The lines of all records in one causal order, each with its place and its worker."""
    told: Counter[tuple[Any, ...]] = Counter()
    streams = [lines_of(path) for path in records]
    heads: dict[int, tuple[str, int, Line]] = {}  # record -> its next line, with its place and its worker

    def advance(record: int, worker: int) -> None:
        heads.pop(record, None)
        for where, line in itertools.islice(streams[record], 1):
            heads[record] = where, int(line["worker"]) if line["op"] == "header" else worker, line

    for record in range(len(streams)):
        advance(record, -1)
    while heads:
        ready = [r for r, (_, worker, line) in heads.items() if all(told[cause] for cause in _needs(worker, line))]
        first = min(ready or heads, key=lambda r: (float(heads[r][2].get("t", 0.0)), r))
        where, worker, line = heads[first]
        told.update(_makes(worker, line))
        yield where, worker, line
        advance(first, worker)


def _ids(line: Line) -> tuple[Any, ...]:
    return line.get("context"), line.get("pass"), line.get("message"), tuple(line.get("sends", ()))


def _makes(worker: int, line: Line) -> Iterator[tuple[Any, ...]]:
    if line["op"] == "told":
        yield ("told", worker, line["to"], *_ids(line))
    elif line["op"] == "heard":
        yield ("heard", worker, line["peer"], *_ids(line))


def _needs(worker: int, line: Line) -> Iterator[tuple[Any, ...]]:
    if line["op"] == "heard":
        yield ("told", line["peer"], worker, *_ids(line))
    elif line["op"] == "answered" and line["outcome"] != "LOST":
        yield ("heard", line["peer"], worker, *_ids(line))


# ---- checking


class Passes:
    """The checks of passes. See the module.

    Attributes:
        passes: by number, in the order in which they began.
        counts: number of checked lines of each kind.
        workers: the workers with a record.
    """

    def __init__(self, rows_max: int = 0) -> None:
        self.passes: dict[int, Pass] = {}
        self.counts: Counter[str] = Counter()
        self.workers: set[int] = set()
        self.wrong: list[PassWrong] = []
        self._moves = part_moves()
        self._rows_max = rows_max
        self._over: dict[int, set[int]] = defaultdict(set)  # worker -> contexts that are over there
        self._cut: set[int] = set()

    def feed(self, where: str, worker: int, line: Line) -> list[PassWrong]:
        """Take the next line, of this worker; returns its problems.

        Raises:
            UsageError: the line lacks a field, or has one of another kind.
        """
        before = len(self.wrong)
        try:
            self._take(where, worker, line)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UsageError(f"{where}: a line of {line.get('op')} lacks a field or has a wrong one: {error}") from None
        return self.wrong[before:]

    def _take(self, where: str, worker: int, line: Line) -> None:
        op = line["op"]
        self.counts[op] += 1
        if op == "header":
            self.workers.add(worker)
        elif op == "full":
            self._cut.add(worker)
        elif line["pass"] is None:
            if op in ("told", "heard"):  # CLEAN
                self._over[worker].add(int(line["context"]))
        else:
            one = self._pass(line)
            if op in ("state", "counted", "ran"):
                one.shares.setdefault(worker, Share())
            {"state": self._state, "counted": self._counted, "ran": self._ran, "told": self._told,
             "heard": self._heard, "answered": self._answered}[op](where, worker, line, one)  # fmt: skip

    def _pass(self, line: Line) -> Pass:
        number = int(line["pass"])
        if number not in self.passes:
            self.passes[number] = Pass(number, int(line["context"]), float(line["t"]))
            if len(self.passes) > 2 * PASSES_MAX:
                for old in [p for p in self.passes.values() if p.state in OVER][:PASSES_MAX]:
                    self._ends(self.passes.pop(old.number))
        return self.passes[number]

    def _note(self, check: str, where: str, one: Pass, text: str) -> None:
        self.counts[f"wrong: {check}"] += 1
        if len(self.wrong) < WRONG_MAX:
            self.wrong.append(PassWrong(check, where, one.number, text))

    def _draw(self, one: Pass, row: PictureRow) -> None:
        if len(one.rows) < self._rows_max:
            one.rows.append(row)

    def _state(self, where: str, worker: int, line: Line, one: Pass) -> None:
        share, state = one.shares[worker], Part[line["state"]]
        if (share.state, state) not in self._moves:
            self._note("moves", where, one, f"worker {worker}'s part moved from {share.state.name} to {state.name}, "
                       "which no step of the model does")  # fmt: skip
        if share.state is Part.IDLE and one.context in self._over[worker]:
            self._note("contexts", where, one, f"it begins at worker {worker}, where its context is over")
        share.state = state
        if state is Part.DONE:
            missing = [f"{name} ({n})" for n, name in share.counted.items() if n not in share.ran]
            if missing:
                self._note("end", where, one, f"worker {worker}'s part is done, and did not run {_listed(missing)}")
        if worker == one.root and state in OVER:
            one.ended, one.where = float(line["t"]), where
        self._draw(one, PictureRow(worker, (state.name.lower(),)))

    def _counted(self, where: str, worker: int, line: Line, one: Pass) -> None:
        share = one.shares[worker]
        if share.counted:
            self._note("counts", where, one, f"worker {worker} counts its nodes again")
        share.counted = {int(number): str(name) for number, name, _ in line["nodes"]}
        told = (f"{name} ({count})" for _, name, count in line["nodes"][:SHOWN_MAX])
        self._draw(one, PictureRow(worker, ("counts dependencies", *told)))

    def _ran(self, where: str, worker: int, line: Line, one: Pass) -> None:
        share = one.shares[worker]
        if share.state in OVER:
            return  # its nodes ran while the pass was cancelled
        again = [share.counted.get(n, str(n)) for n in line["nodes"] if n in share.ran]
        strange = [str(n) for n in line["nodes"] if n not in share.counted]
        if again:
            self._note("counts", where, one, f"worker {worker} runs {_listed(again)} a second time")
        if strange:
            self._note("counts", where, one, f"worker {worker} runs nodes that were not counted: {_listed(strange)}")
        share.ran.update(line["nodes"])
        names = [share.counted.get(n, "?") for n in line["nodes"]]
        self._draw(one, PictureRow(worker, ("runs", *names[:SHOWN_MAX])))

    def _told(self, where: str, worker: int, line: Line, one: Pass) -> None:
        kind, to = line["message"], int(line["to"])
        one.messages += 1
        for send in line.get("sends", [0]):
            if kind == "BACKWARD" and send in one.given:
                self._note("order", where, one, f"a second gradient goes to send {shown_id(send)}")
            if kind in ("BACKWARD", "MARK"):
                (one.given if kind == "BACKWARD" else one.marked).add(send)
            one.open[(to, int(line["answers"]), kind, send)] = worker, where
        self._draw(one, PictureRow(worker, (_text(line),), to))

    def _heard(self, where: str, worker: int, line: Line, one: Pass) -> None:
        for send in line.get("sends", [0]):
            own, carried = ((worker, k, line["message"], send) for k in (0, 1))
            if carried in one.open:  # sent with an answer: it has no own answer
                del one.open[carried]
            elif own not in one.open and int(line["peer"]) in self.workers - self._cut:
                self._note("order", where, one, f"worker {worker} receives {_text(line)}, which worker {line['peer']} "
                           "has not sent")  # fmt: skip

    def _answered(self, where: str, worker: int, line: Line, one: Pass) -> None:
        peer, outcome = int(line["peer"]), line["outcome"]
        for send in line.get("sends", [0]):
            if one.open.pop((peer, 0, line["message"], send), None) is None:
                self._note("order", where, one, f"an answer to {_text(line)}, which worker {worker} has not sent")
        if outcome == "LOST":
            one.lost.add(peer)
        change = f", {line['change']:+d}" if line.get("change") else ""
        self._draw(one, PictureRow(peer, (f"{outcome}{change}",), worker, answer=True))

    # ---- the end of the record

    def finish(self) -> list[PassWrong]:
        """End the records; returns the problems of the ends of the passes.

        They are checked now and not at the line of the end, which has no order with the lines of other workers.
        """
        before = len(self.wrong)
        for one in self.passes.values():
            self._ends(one)
        return self.wrong[before:]

    def _ends(self, one: Pass) -> None:
        if one.state is Part.DONE:
            self._returned(one)
        elif one.state is Part.CANCELLED:
            self._raised(one)

    def _returned(self, one: Pass) -> None:
        busy = [f"worker {worker} ({share.state.name})" for worker, share in one.shares.items()
                if share.state is not Part.DONE and worker not in self._cut]  # fmt: skip
        if busy:
            self._note("end", one.where, one, f"backward() returned, and these parts are not done: {_listed(busy)}")
        waiting = [_unanswered(told, one.open[told][0]) for told in one.open]
        if waiting:
            self._note("end", one.where, one, f"backward() returned, and these answers are missing: {_listed(waiting)}")
        if missing := sorted(one.marked - one.given):
            sends = _listed([shown_id(send) for send in missing])
            self._note("end", one.where, one, f"backward() returned, and these marked sends got no gradient: {sends}")

    def _raised(self, one: Pass) -> None:
        left = [f"worker {worker} ({share.state.name})" for worker, share in one.shares.items()
                if share.state in LIVE and worker not in one.lost | self._cut]  # fmt: skip
        if left:
            self._note("left", one.where, one, f"backward() raised, and the pass is not over at {_listed(left)}")

    def waits(self) -> Iterator[str]:
        """The waits of each pass that is not over."""
        for one in self.passes.values():
            if one.state in OVER or not one.shares:
                continue
            states = ", ".join(f"worker {w} {share.state.name}" for w, share in sorted(one.shares.items()))
            yield f"pass {shown_id(one.number)}: backward() of worker {one.root} has not returned ({states})"
            for told, (sender, where) in heapq.nsmallest(SHOWN_MAX, one.open.items()):
                yield f"  {_unanswered(told, sender)} ({where})"


def _text(line: Line) -> str:
    sends = ", ".join(map(shown_id, line.get("sends", [])[:SHOWN_MAX]))
    return f"{line['message']} {sends}".strip()


def _unanswered(told: Told, sender: int) -> str:
    to, carried, kind, send = told
    name = kind if kind == "CANCEL" else f"{kind} of send {shown_id(send)}"
    if carried:
        return f"worker {sender} sent {name} with an answer, and worker {to} has not received it"
    return f"worker {sender} waits for worker {to} to answer {name}"


def _listed(items: Sequence[str]) -> str:
    return some(items, SHOWN_MAX)


def read(paths: Iterable[Path], rows_max: int = 0) -> Passes:
    """Read the records of the workers of one job, and check all passes."""
    passes = Passes(rows_max)
    for where, worker, line in merged(list(paths)):
        passes.feed(where, worker, line)
    passes.finish()
    return passes
