"""A key of a store in a record: an operation, its outcome, and the knowledge of the key after it.

Theory of operation. A record is incomplete: values are recorded only on request, and a record may begin after the job.
So the knowledge of a key has unknown fields, and an outcome is wrong only if it contradicts the known ones. For known
values, the model's store (`model/store/reference`) and its decision tables define the meaning of an operation. An
unknown value is learnt from the outcomes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, TypeVar

from trystate.model.errors import UsageError
from trystate.model.store.operations import CompareSet
from trystate.model.store.reference import AddTo, Append, CompareAndSet, Contents, Operation, apply
from trystate.model.store.vocabulary import Edition

T = TypeVar("T")
SHOWN_MAX = 40  # shown characters of a value
WRITES = {"set", "add", "append", "compare_set", "delete", "take", "queue_push", "queue_pop"}
READS = {"get", "check", "queue_len"}
SEVERAL = {"multi_set": "set", "multi_get": "get"}  # judged key by key
STATE_KEYS = {"write": "set", "refused": "get", "read": "get"}  # operations on a key with the state of a rendezvous
AS = {name: name for name in WRITES | READS} | SEVERAL | STATE_KEYS
UNANSWERED = {"set", "append", "queue_push"}  # torch's protocol has no answer to these


class MalformedLine(UsageError):
    """A line of a record lacks a field, or has one of another kind."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The recorded part of an answer to an operation: None is unknown.

    Attributes:
        ok: for a check: the key exists; a compare_set: it stored; a delete: the key had a value; a queue_pop: the queue
            had an element; an add: it was not refused; a get: the key has a value.
        version: the number of writes of the key by then.
    """

    ok: bool | None = None
    value: bytes | None = None
    size: int | None = None
    version: int | None = None

    def __str__(self) -> str:
        if self.ok is False:
            return "no"
        said = [
            "" if self.value is None else shown(self.value),
            "" if self.size is None or self.value is not None else f"{self.size} bytes",
            "" if self.version is None else f"version {self.version}",
        ]
        return ", ".join(filter(None, said)) or "yes"


_PARTS = attrgetter("ok", "value", "size", "version")


@dataclass(frozen=True, slots=True)
class KnownKey:
    """The knowledge of a key: None is unknown. `version`: number of writes; `queued`: elements of its queue."""

    there: bool | None = None
    value: bytes | None = None
    size: int | None = None
    version: int | None = None
    queued: int | None = None

    @property
    def is_present(self) -> bool | None:
        """Whether the key exists for check and wait."""
        if self.there or self.queued:
            return True
        return False if self.there is False and self.queued == 0 else None


ABSENT = KnownKey(there=False, version=0, queued=0)
ANYTHING = KnownKey()


@dataclass(frozen=True, slots=True)
class Act:
    """One operation on one key: the arguments that were recorded, and its outcome."""

    name: str
    key: str
    seen: Outcome = Outcome()
    value: bytes | None = None
    size: int | None = None
    amount: int = 0
    expected: bytes | None = None
    is_guess: bool = False  # a proxy sees only the reply to a compare_set: its `ok` is true also if nothing was stored
    kept: int = 0  # a get of a value that the wait before it kept: 1: its key was deleted since; 2: one of its keys was

    def __str__(self) -> str:
        told = f"{self.amount:+d}" if self.name == "add" else "" if self.value is None else shown(self.value)
        return f"{self.name} of {self.key}{f' ({told})' if told else ''}"


def shown(value: bytes) -> str:
    """A value for a reader."""
    text = value[:SHOWN_MAX].decode("latin-1")
    return repr(text) + ("…" if len(value) > SHOWN_MAX else "")


def acts_of(line: Mapping[str, Any]) -> Iterator[Act]:
    """The operations on single keys in a line; none for a line of another kind, or of a refused request.

    Raises:
        MalformedLine: a field is missing or of another kind.
    """
    op = line.get("op")
    if op not in AS or "error" in line:
        return
    try:
        keys = line["keys"] if "keys" in line else [line["key"]]
        if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
            raise TypeError("the keys are not texts")
        for at, key in enumerate(keys):
            yield _act(AS[op], key, _Fields(line, at if op in SEVERAL else None), len(keys))
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise MalformedLine(f"a line of {op} lacks a field or has a wrong one: {error}") from None


class _Fields:
    """The fields of a line for one of its keys: `v` is an element of `vs` if the line has several keys."""

    def __init__(self, line: Mapping[str, Any], at: int | None) -> None:
        self._line, self._at = line, at

    def __call__(self, name: str, kind: type) -> Any:
        found = self._line.get(name)
        if self._at is not None and isinstance(self._line.get(f"{name}s"), list):
            found = self._line[f"{name}s"][self._at]
        if found is not None and not (isinstance(found, kind) and (kind is bool or not isinstance(found, bool))):
            raise TypeError(f"{name} is {str(found)[:SHOWN_MAX]!r}")
        return found

    def due(self, name: str, kind: type) -> Any:
        found = self(name, kind)
        if found is None:
            raise KeyError(name)
        return found


def _act(name: str, key: str, field: _Fields, keys: int) -> Act:
    value, size, version = _bytes(field("value", str)), field("size", int), field("v", int)
    size = len(value) if size is None and value is not None else size
    match name:
        case "get":
            value, size = (None, None) if field("op", str) == "refused" else (value, size)
            there, kept = None if version is None else version > 0, 1 if field("op", str) == "get" else 2
            return Act(name, key, Outcome(there, value, size, version), kept=kept if field("kept", bool) else 0)
        case "add":
            amount = field.due("amount", int)
            return Act(name, key, Outcome(True, b"%d" % field.due("result", int), version=version), amount=amount)
        case "compare_set":
            outcome = Outcome(field("won", bool), version=version)
            return Act(name, key, outcome, value, size, expected=_bytes(field("expected", str)))
        case "check":  # a negative answer for several keys is not about any one key
            found = field("found", bool)
            return Act(name, key, Outcome(None if found is False and keys > 1 else found))
        case "delete" | "take":
            return Act(name, key, Outcome(field("found", bool)))
        case "queue_pop" | "queue_push" | "queue_len":
            result = field("result", int)
            return Act(name, key, Outcome(None if result is None else result > 0, size=result))
    return Act(name, key, Outcome(version=version), value, size)


def _bytes(value: str | None) -> bytes | None:
    return None if value is None else value.encode("latin-1")


def meaning(held: KnownKey, act: Act, edition: Edition = Edition.TRYSTATE) -> tuple[KnownKey, Outcome]:
    """The knowledge of the key after the operation, and the right outcome; the seen one if any is right."""
    match act.name:
        case "set":
            right = _filled(Outcome(version=_next(held)), act.seen)
            return _written(held, act, right), right
        case "get":
            return _gets(held, act)
        case "add":
            return _adds(held, act, edition)
        case "append":
            return _appends(held, act, edition)
        case "compare_set":
            return _compares(held, act, edition)
        case "delete" | "take":
            right = _filled(Outcome(held.there), act.seen)
            return replace(ABSENT, version=None, queued=held.queued), right
        case "check":
            return held, _filled(Outcome(held.is_present), act.seen)
        case "queue_push" | "queue_pop" | "queue_len":
            return _queues(held, act)
    return held, act.seen


def _written(held: KnownKey, act: Act, right: Outcome) -> KnownKey:
    return replace(held, there=True, value=act.value, size=act.size, version=_or(right.version, _next(held)))


def _gets(held: KnownKey, act: Act) -> tuple[KnownKey, Outcome]:
    if act.kept:  # a value although a key was deleted; no line shows the moment of the value
        return held, replace(act.seen, ok=act.kept > 1 or not held.there)
    there = held.there if held.there is not None else act.seen.ok
    right = _filled(Outcome(there, held.value, held.size, held.version if there else 0), act.seen)
    if not there:
        return replace(held, there=there), right
    value, size, version = _or(right.value, held.value), _or(right.size, held.size), held.version
    return replace(held, there=there, value=value, size=size, version=_or(right.version, version)), right


def _queues(held: KnownKey, act: Act) -> tuple[KnownKey, Outcome]:
    """Judge an operation on a queue; its result is the length before a pop and after a push."""
    now = held.queued
    if now is None and act.seen.size is not None:
        now = act.seen.size - (act.name == "queue_push")
    if now is None:
        return held, act.seen
    said = now + (act.name == "queue_push")
    after = max(now - 1, 0) if act.name == "queue_pop" else said
    return replace(held, queued=after), _filled(Outcome(said > 0, size=said), act.seen)


def _or(said: T | None, known: T | None) -> T | None:
    return known if said is None else said


def _next(held: KnownKey) -> int | None:
    return None if held.version is None else held.version + 1


def _filled(right: Outcome, seen: Outcome) -> Outcome:
    """The right outcome for the recorded fields; unknown fields are as seen."""
    pairs = zip(_PARTS(right), _PARTS(seen), strict=True)
    return Outcome(*(known if said is not None and known is not None else said for known, said in pairs))


def _contents(held: KnownKey, key: str) -> Contents | None:
    """The key in the model's store; None if its value is unknown."""
    if held.there is False:
        return Contents()
    return None if held.value is None else Contents({key: held.value})


def _adds(held: KnownKey, act: Act, edition: Edition) -> tuple[KnownKey, Outcome]:
    contents = _contents(held, act.key)
    right = act.seen
    if contents is not None:
        result = apply(contents, AddTo(act.key, act.amount), edition)[1].result
        right = Outcome(True, b"%d" % result, None, _next(held)) if isinstance(result, int) else Outcome(False)
    elif act.seen.ok:
        right = Outcome(True, version=_next(held))
    right = _filled(right, act.seen)
    if not right.ok:
        return held, right
    value = right.value
    return _written(held, replace(act, value=value, size=None if value is None else len(value)), right), right


def _appends(held: KnownKey, act: Act, edition: Edition) -> tuple[KnownKey, Outcome]:
    contents = _contents(held, act.key)
    right = _filled(Outcome(version=_next(held)), act.seen)
    value, size = None, None if held.size is None or act.size is None else held.size + act.size
    if contents is not None and act.value is not None:
        value = apply(contents, Append(act.key, act.value), edition)[0].values.get(act.key)
        size = None if value is None else len(value)
    elif held.there is False:
        size = act.size
    return _written(held, replace(act, value=value, size=size), right), right


def _compares(held: KnownKey, act: Act, edition: Edition) -> tuple[KnownKey, Outcome]:
    """Judge a compare_set. A proxy's guess is that it has won if the reply is the desired value.

    That reply is also the held value, and for a missing key the expected value: torch's server then stores nothing.
    """
    contents, there = _contents(held, act.key), held.there or not act.is_guess
    stored = won = act.seen.ok
    if None not in (act.expected, act.value):
        there = there or act.expected != act.value
    if contents is not None and act.expected is not None and not (act.is_guess and act.value is None):
        operation: Operation = CompareAndSet(act.key, act.expected, act.value or b"")
        stored = won = apply(contents, operation, edition)[1].case in (CompareSet.CREATE, CompareSet.SWAP)
        won = won or (act.is_guess and contents.values.get(act.key, act.expected) == act.value)
        there = True
    version = held.version if won is False else _next(held) if won else None
    right = _filled(Outcome(won, version=version if held.there or won else None), act.seen)
    if won is None or (stored and not there):
        return replace(ANYTHING, queued=held.queued), right
    return (_written(held, act, right) if stored else held), right
