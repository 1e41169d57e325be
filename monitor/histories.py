"""The check that the answers in a record of a store's operations are correct: keys, waits and watches.

Theory of operation. `Histories.feed` takes the lines of a record in their order and returns the breaches that it finds;
`finish` returns the rest. A server writes its record in the order in which it acts, and each answer is compared with
that order: a read sees the last write, sums of `add` add up, a `compare_set` stores if and only if the value was the
expected one. A proxy sees requests and answers pass, so an operation took effect at some time between the two. A search
finds whether some order explains the answers of a key (`model/checker/linearizability`). A write without an own answer
wakes a wait from the next answer to its connection on: the server may have been paused before.

| check | breach | in a record by |
| --- | --- | --- |
| `order` | an answer that the operations before it do not explain | a server |
| `linearizability` | answers about a key that no order explains | a proxy |
| `not_woken` | all keys of a wait existed, and it did not end | both |
| `woken_early` | a wait ended while a key was missing | a server |
| `not_told` | a watched key has changed, and its watcher was not notified | a server |
| `told_of_nothing` | a watcher was notified of a change that did not happen | a server |

Several keys of one request are judged one by one: correct answers for each key do not show that a multi_get saw all
keys at one moment. Values that were not recorded are compared by size and version alone. After lost lines all keys are
unknown, and the waits and watches that began before are left out.

Memory: at most `KEYS_MAX` keys (older ones are unknown), and for a proxy the operations of the last `SETTLED_SECONDS`,
or `CALLS_MAX` operations of a key that is never at rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from trystate.impl.store.record.format import BARRIER, OURS, TORCH, Keys
from trystate.model.checker.linearizability import Broken, Call, Specification, judge
from trystate.model.errors import LimitReached
from trystate.model.store.vocabulary import Edition

from .keys import ABSENT, ANYTHING, UNANSWERED, WRITES, Act, KnownKey, MalformedLine, Outcome, acts_of, meaning

KEYS_MAX = 100_000
WRONG_MAX = 1_000  # later ones are counted, and not kept
WAKE_SECONDS = 1.0  # a server answers a wait with the write that ends it; a proxy's lines may be this far apart
SETTLED_SECONDS = 30.0  # a proxy writes an operation when it is answered: a longer operation is left out
CALLS_MAX = 20_000  # operations on one key between two moments at which its value is known
CONFIGURATIONS_MAX = 200_000
LOOK_SECONDS = 0.1  # time between two checks for overdue wakes and notifications
CUT_EVERY = 256  # operations on a key between two attempts to shorten its window


@dataclass(frozen=True, slots=True)
class Breach:
    """A violation of a store's rules: the check that found it, and its line in the record, a number or a place."""

    check: str
    line: int | str
    t: float
    key: str
    text: str

    def __str__(self) -> str:
        return f"{place_of(self.line)}: {self.text}"


def place_of(line: int | str) -> str:
    """A line for a reader: `line 7`, or the place that the caller gave."""
    return f"line {line}" if isinstance(line, int) else line


@dataclass(slots=True)
class OpenWait:
    """A wait of a connection: its missing keys, and the time since which all exist."""

    line: int | str
    t: float
    keys: tuple[str, ...]
    missing: set[str]
    ready: float | None = None


@dataclass(slots=True)
class Window:
    """The answered operations on one key since its value was last known, as a proxy saw them."""

    initial: KnownKey
    calls: list[tuple[int | str, Call[Act, Outcome]]] = field(default_factory=list)  # with the number of the line
    begins: float = -inf  # an earlier request is left out


class Histories:
    """The checks of the operations of a record. See the module.

    Attributes:
        counts: numbers of checked operations, by name; `left out` counts the unchecked ones.
        undecided: sentences about undecided questions.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.undecided: dict[str, None] = {}
        self.wrong: list[Breach] = []
        self._proxy = False
        self._file: int | None = None  # the number of the file
        self._whole = True  # no line was lost, so all reserved elements are known
        self._all = True  # all keys are recorded, and not only keys of a rendezvous
        self._edition = Edition.TRYSTATE
        self._unseen = ABSENT  # the knowledge of a key that no line has named
        self._keys: dict[str, KnownKey] = {}
        self._reserved: set[str] = set()  # queues whose lengths are not judged
        self._waits: dict[int, OpenWait] = {}
        self._watchers: dict[
            str, dict[int, list[tuple[int | str, float]]]
        ] = {}  # key -> connection -> changes to be notified
        self._windows: dict[str, Window] = {}
        self._answered: dict[int, float] = {}  # connection -> its last answer
        self._unanswered: dict[int, list[tuple[int | str, Act, float]]] = {}  # connection -> line, operation, time
        self._now = self._looked = 0.0
        self._ended = False

    def feed(self, number: int | str, line: Mapping[str, Any]) -> list[Breach]:
        """Take the next line of the record, and its number or place; returns the breaches that it reveals.

        Raises:
            MalformedLine: the line lacks a field, or has one of another kind.
        """
        before = len(self.wrong)
        op, t, c = line.get("op"), line.get("t"), line.get("c", 0)
        if not isinstance(op, str) or not isinstance(t, int | float) or not isinstance(c, int):
            raise MalformedLine(f"{place_of(number)}: op={op!r}, t={t!r}, c={c!r}: not a name, a time and a number")
        self._now = max(self._now, float(t))
        try:
            self._take(number, op, c, line)
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError, MalformedLine) as error:
            self.damaged(place_of(number))
            known = isinstance(error, MalformedLine)
            why = f"{error}" if known else f"a line of {op} lacks a field or has a wrong one: {error}"
            raise MalformedLine(f"{place_of(number)}: {why}") from None
        if self._now - self._looked > LOOK_SECONDS:
            self._looked = self._now
            self._late()
        return self.wrong[before:]

    def finish(self) -> list[Breach]:
        """End the record; returns the remaining breaches."""
        before = len(self.wrong)
        self._now += WAKE_SECONDS + SETTLED_SECONDS if self._ended else 0.0
        self._late()
        for c in list(self._unanswered):
            self._answers(c, ever=False)
        for key, window in self._windows.items():
            self._judge(key, window)
        self._windows.clear()
        return self.wrong[before:]

    def _take(self, number: int | str, op: str, c: int, line: Mapping[str, Any]) -> None:
        if "error" in line:  # a refused operation has changed nothing
            self._count(op, checked=False)
            return
        match op:
            case "header":
                self._header(line)
            case "lost":
                self._forget(f"{place_of(number)}: lines were lost there, and all keys are unknown")
            case "open":
                self._answered[c] = self._now
            case "close":
                self._gone(c)
            case "end":
                self._ended = True
            case "wait":
                missing = [] if line.get("more") else [str(key) for key in line["missing"]]
                keys = tuple(map(str, line["keys"] if "keys" in line else [line["key"]]))
                if not missing and not line.get("more"):
                    keys = ()  # the wait of a barrier, whose name is not a key of the store
                if not (line.get("again") and c in self._waits):
                    self._waits[c] = OpenWait(number, self._now, keys, set(missing))
                    self._count("wait", bool(missing))
            case "reserve" | "put_back":  # the recorded lengths of its queue exclude reserved elements
                self._reserved.add(line["key"])
                self._keys[line["key"]] = replace(self._known(line["key"]), queued=None)
            case "write" if line.get("again"):
                value = str(line["value"]).encode("latin-1")
                self._keys[line["key"]] = KnownKey(True, value, len(value), line["v"], None)
            case "go" | "stop":
                self._ends(number, op, c)
            case "watch" if not self._proxy:
                self._watchers.setdefault(line["key"], {}).setdefault(c, [])
            case "unwatch":
                self._watchers.get(line["key"], {}).pop(c, None)
            case "told":
                self._told(number, line["key"], c)
            case _:
                if op == "read" and "how" in line:
                    self._to_be_told(number, line["key"])
                for act in acts_of(line):
                    if not act.name.startswith("queue_") or (self._whole and act.key not in self._reserved):
                        self._act(number, c, act, line)
                if self._proxy and (op not in UNANSWERED | {"multi_set"} or "result" in line):
                    self._answers(c)

    def _header(self, line: Mapping[str, Any]) -> None:
        number = int(line.get("continues", 0))
        first = self._file is None
        if self._file is not None and number != self._file + 1:
            what = (
                f"file {self._file + 1} of the record is missing" if number else "the record of another server begins"
            )
            self._forget(f"{what}, and all keys are unknown")
        if first or not number:
            self._proxy, self._whole = line.get("by") == "store proxy", not number
            self._edition = Edition.TORCH if self._proxy else Edition.TRYSTATE
            self._all = line.get("keys", Keys.ALL.value) == Keys.ALL.value
            self._unseen = ABSENT if first and not (self._proxy or number) else ANYTHING
        self._file = number

    def _known(self, key: str) -> KnownKey:
        if key in self._keys:
            return self._keys[key]
        return self._unseen if self._all or any(part.decode() in key for part in (TORCH, OURS, BARRIER)) else ANYTHING

    def damaged(self, place: str) -> None:
        """Forget all keys: a line of the record at this place cannot be read, and may concern any key."""
        self._forget(f"{place}: a line cannot be read there, and all keys before it are unknown")

    def _forget(self, why: str) -> None:
        if len(self.undecided) < WRONG_MAX:
            self.undecided[why] = None
        self._whole = False
        for key, window in self._windows.items():
            self._judge(key, window)
        self._unseen = ANYTHING
        for kept in (self._keys, self._waits, self._watchers, self._windows, self._unanswered):
            kept.clear()

    def _gone(self, c: int) -> None:
        self._waits.pop(c, None)
        self._answers(c, ever=False)
        self._answered.pop(c, None)
        for watchers in self._watchers.values():
            watchers.pop(c, None)

    def _count(self, name: str, checked: bool = True) -> None:
        self.counts[name if checked else "left out"] += 1

    def _note(self, check: str, number: int | str, t: float, key: str, text: str) -> None:
        self.counts[f"wrong: {check}"] += 1
        if len(self.wrong) < WRONG_MAX:
            self.wrong.append(Breach(check, number, t, key, text))

    # ---- operations

    def _act(self, number: int | str, c: int, act: Act, line: Mapping[str, Any]) -> None:
        if self._proxy:
            act = _seen_by_a_proxy(act)
        silent = self._proxy and act.name in UNANSWERED and act.seen.size is None
        before = self._known(act.key)
        self._keys.pop(act.key, None)  # the newest key is the last one
        after, right = meaning(before, act, self._edition)
        if self._proxy:
            since = max(self._answered.get(c, 0.0), self._now - SETTLED_SECONDS)
            asked = min(float(line.get("asked", since)), self._now)
            self._windows.setdefault(act.key, Window(before))  # before this operation has taken effect
            if silent:
                self._unanswered.setdefault(c, []).append((number, act, asked))
            else:
                self._passed(number, c, act, asked, self._now)
        else:
            self._count(act.name)
            if right != act.seen:
                self._note("order", number, self._now, act.key, f"{act}: the answer is {act.seen}, {_why(right)}")
                after = meaning(ANYTHING, act, self._edition)[0]  # continue from the answer
        self._keys[act.key] = after
        if len(self._keys) > KEYS_MAX:
            del self._keys[next(iter(self._keys))]
            self._unseen = ANYTHING
            self.undecided[f"the record names more than {KEYS_MAX} keys: the oldest are unknown"] = None
        if act.name in WRITES:
            self._changed(number, act)
            if not silent:  # a paused server does a silent write later
                self._wakes(act.key)

    def _changed(self, number: int | str, act: Act) -> None:
        changed = act.name in ("set", "append") or (act.name in ("add", "compare_set") and act.seen.ok)
        if changed or (act.name in ("delete", "take") and act.seen.ok):
            self._to_be_told(number, act.key)

    def _to_be_told(self, number: int | str, key: str) -> None:
        for due in self._watchers.get(key, {}).values():
            due.append((number, self._now))

    # ---- waits

    def _wakes(self, key: str) -> None:
        """Take a write of the key that has taken effect."""
        present = self._known(key).is_present
        for waiting in self._waits.values():
            if waiting.ready is None and key in waiting.missing and present:
                waiting.missing.discard(key)
                waiting.ready = None if waiting.missing else self._now
            elif waiting.ready is None and key in waiting.keys and present is False:
                waiting.missing.add(key)

    def _ends(self, number: int | str, op: str, c: int) -> None:
        waiting = self._waits.pop(c, None)
        if waiting is None:
            return
        if op == "stop":
            self._is_late(waiting)
        if op == "go" and not self._proxy:
            missing = sorted(key for key in waiting.keys if self._known(key).is_present is False)
            if missing:
                text = f"the wait of {place_of(waiting.line)} ended, and {', '.join(missing)} did not exist"
                self._note("woken_early", number, self._now, missing[0], text)

    def _is_late(self, waiting: OpenWait) -> bool:
        """Whether the wait should have ended by now; if so, that is noted."""
        if waiting.ready is None or self._now - waiting.ready <= WAKE_SECONDS:
            return False
        keys = ", ".join(sorted(waiting.keys))
        text = f"the wait for {keys} was not woken: all keys existed after {waiting.ready - waiting.t:.1f} s"
        self._note("not_woken", waiting.line, waiting.t, min(waiting.keys), text)
        return True

    def _late(self) -> None:
        """Find waits that should have ended by now, and changes that should have been notified."""
        for c, waiting in list(self._waits.items()):
            if self._is_late(waiting):
                del self._waits[c]
        for key, watchers in self._watchers.items():
            for c, due in watchers.items():
                while due and self._now - due[0][1] > WAKE_SECONDS:
                    number, t = due.pop(0)
                    self._note("not_told", number, t, key, f"connection {c} watches {key}, and got no notification")

    # ---- watches

    def _told(self, number: int | str, key: str, c: int) -> None:
        due = self._watchers.get(key, {}).get(c)
        if due is None:
            return  # the watch began before the record
        self._count("told")
        if due:
            due.pop(0)
        else:
            text = f"connection {c} was notified, but {key} is as before"
            self._note("told_of_nothing", number, self._now, key, text)

    # ---- a proxy's record

    def _answers(self, c: int, *, ever: bool = True) -> None:
        """Take an answer of a connection: its earlier requests without own answers have taken effect."""
        for number, act, asked in self._unanswered.pop(c, []):
            self._passed(number, c, act, asked, self._now if ever else None)
            if ever:
                self._wakes(act.key)
        if ever:
            self._answered[c] = self._now

    def _passed(self, number: int | str, c: int, act: Act, asked: float, returned: float | None) -> None:
        """Add an operation with the time of its request; `returned` is None if its effect is unknown."""
        window = self._windows[act.key]
        if asked <= window.begins or self._now - asked > 2 * SETTLED_SECONDS:
            self._count(act.name, checked=False)
            if act.name in WRITES:  # it may have taken effect at any moment since
                self.undecided[f"an operation on {act.key} took {self._now - asked:.0f} s"] = None
                self._windows[act.key] = Window(ANYTHING, [], self._now)
            return
        self._count(act.name)
        seen = None if returned is None else act.seen
        window.calls.append((number, Call(f"{c}.{number}", act, asked, returned, seen)))
        if len(window.calls) % CUT_EVERY == 0:
            self._shorten(act.key, window)

    def _shorten(self, key: str, window: Window) -> None:
        cut = self._cut(key, window)
        if not cut and len(window.calls) <= CALLS_MAX:
            return
        if not cut:
            self.undecided[f"{key} was never at rest in {CALLS_MAX} operations: its value is unknown"] = None
        done = Window(window.initial, window.calls[:cut] if cut else window.calls)
        last = done.calls[-1][1]
        after = meaning(ANYTHING, last.operation, self._edition)[0] if cut else ANYTHING
        self._judge(key, done)
        self._windows[key] = Window(after, window.calls[cut:] if cut else [], last.returned or self._now)

    def _cut(self, key: str, window: Window) -> int:
        """The number of operations up to the last one that overlaps no other and shows the key's value; 0: none."""
        calls = [call for _, call in window.calls]  # ordered by their answers
        begins = min(  # the time of the first request among the later operations
            (asked for asks in self._unanswered.values() for _, act, asked in asks if act.key == key), default=self._now
        )
        for at in range(len(calls) - 1, 0, -1):
            call, before = calls[at], calls[at - 1]
            returned = call.returned or self._now
            settled = self._now - returned > SETTLED_SECONDS and (before.returned or self._now) < call.invoked
            says = call.operation.name in ("set", "add", "get") and call.operation.seen.ok is not False
            if settled and says and returned < begins:
                return at + 1
            begins = min(begins, call.invoked)
        return 0

    def _judge(self, key: str, window: Window) -> None:
        specification = Specification[KnownKey, Act, Outcome](
            window.initial, lambda held, act: [meaning(held, act, self._edition)], lambda act: (act.key,)
        )
        try:
            found = judge((call for _, call in window.calls), specification, configurations_max=CONFIGURATIONS_MAX)
        except LimitReached:
            self.undecided[f"{key}: too many of its operations overlap to be put in order"] = None
            return
        if isinstance(found, Broken):
            number = next(number for number, call in window.calls if call == found.culprit)
            self._note("linearizability", number, found.culprit.returned or 0.0, key, found.explanation)


def _seen_by_a_proxy(act: Act) -> Act:
    """The operation without its version, which counts the writes that the proxy has seen, and not the store's."""
    there = act.seen.ok
    if act.name == "get":  # the reply itself shows whether the key exists
        there = None if act.seen.size is None and act.seen.value is None else True
    return replace(act, seen=replace(act.seen, version=None, ok=there), is_guess=True)


def _why(right: Outcome) -> str:
    return f"but the operations before it give {right}" if right != Outcome() else "which no order explains"


def check(lines: Iterable[Mapping[str, Any]]) -> Iterator[Breach]:
    """The breaches in a record's operations, in the order in which they are found."""
    histories = Histories()
    for number, line in enumerate(lines, 1):
        yield from histories.feed(number, line)
    yield from histories.finish()
