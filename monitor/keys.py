"""A key of a store as a record tells of it: an operation, its outcome, and what is known of the key after it.

Theory of operation. A record leaves things out: values are recorded only when asked for, and a record may begin after
the job. So what is known of a key has unknown fields, and an operation is judged by what is known: an outcome is wrong
only if it contradicts that. Where values are known, the meaning of an operation is that of the model's store
(`model/store/reference`), by its decision tables. An unknown value is learnt from the outcomes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from trystate.model.errors import UsageError
from trystate.model.store.operations import CompareSet
from trystate.model.store.reference import AddTo, Append, CompareAndSet, Contents, Operation, apply
from trystate.model.store.vocabulary import Edition

T = TypeVar("T")
SHOWN_MAX = 40  # characters of a value in a text
WRITES = {"set", "add", "append", "compare_set", "delete", "take", "queue_push", "queue_pop"}
READS = {"get", "check", "queue_len"}
SEVERAL = {"multi_set": "set", "multi_get": "get"}  # judged key by key
STATE_KEYS = {"write": "set", "refused": "get", "read": "get"}  # of a key that has the state of a rendezvous
AS = {name: name for name in WRITES | READS} | SEVERAL | STATE_KEYS
UNANSWERED = {"set", "append", "queue_push"}  # in torch's protocol


class MalformedLine(UsageError):
    """A line of a record lacks a field, or has one of another kind."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer to an operation, as far as it was recorded: None is unknown.

    Attributes:
        ok: a check: the key is there; a compare_set: it stored; a delete: there was a value; a queue_pop: there was
            an element; an add: it was not refused; a get: there is a value.
        version: how often the key was written by then.
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


@dataclass(frozen=True, slots=True)
class Held:
    """The knowledge of a key: None is unknown. `version`: how often it was written; `queued`: elements of its queue."""

    there: bool | None = None
    value: bytes | None = None
    size: int | None = None
    version: int | None = None
    queued: int | None = None

    @property
    def is_present(self) -> bool | None:
        """Is the key there, as check and wait see it?"""
        if self.there or self.queued:
            return True
        return False if self.there is False and self.queued == 0 else None


ABSENT = Held(there=False, version=0, queued=0)
ANYTHING = Held()


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
    is_guess: bool = False  # of a compare_set, a proxy knows the reply alone: the desired value may have been there
    kept: int = 0  # of a get: 1: its key was deleted after the wait before it, which kept the value; 2: one of its keys

    def __str__(self) -> str:
        told = f"{self.amount:+d}" if self.name == "add" else "" if self.value is None else shown(self.value)
        return f"{self.name} of {self.key}{f' ({told})' if told else ''}"


def shown(value: bytes) -> str:
    """A value for a person."""
    text = value[:SHOWN_MAX].decode("latin-1")
    return repr(text) + ("…" if len(value) > SHOWN_MAX else "")


def acts_of(line: Mapping[str, Any]) -> Iterator[Act]:
    """The operations on single keys that a line tells of; none for a line of another kind, or of a refused request.

    Raises:
        MalformedLine: a field is missing, or of another kind.
    """
    op = line.get("op")
    if op not in AS or "error" in line:
        return
    try:
        keys = line["keys"] if "keys" in line else [line["key"]]
        if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
            raise TypeError("the keys are no texts")
        for at, key in enumerate(keys):
            yield _act(AS[op], key, _Fields(line, at if op in SEVERAL else None), len(keys))
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise MalformedLine(f"a line of {op} lacks a field or has a wrong one: {error}") from None


class _Fields:
    """The fields of a line, for one of its keys: `v` stands for an element of `vs`, if there are several."""

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
        case "check":  # "not all are there" says nothing of one of several
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


def meaning(held: Held, act: Act, edition: Edition = Edition.TRYSTATE) -> tuple[Held, Outcome]:
    """The knowledge of the key after the operation, and the outcome that is right; where any is, the one seen."""
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


def _written(held: Held, act: Act, right: Outcome) -> Held:
    return replace(held, there=True, value=act.value, size=act.size, version=_or(right.version, _next(held)))


def _gets(held: Held, act: Act) -> tuple[Held, Outcome]:
    if act.kept:  # a value, though one of the keys is gone; of which moment it is, no line shows
        return held, replace(act.seen, ok=act.kept > 1 or not held.there)
    there = held.there if held.there is not None else act.seen.ok
    right = _filled(Outcome(there, held.value, held.size, held.version if there else 0), act.seen)
    if not there:
        return replace(held, there=there), right
    value, size, version = _or(right.value, held.value), _or(right.size, held.size), held.version
    return replace(held, there=there, value=value, size=size, version=_or(right.version, version)), right


def _queues(held: Held, act: Act) -> tuple[Held, Outcome]:
    """The result is the length: before a pop, and after a push."""
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


def _next(held: Held) -> int | None:
    return None if held.version is None else held.version + 1


def _filled(right: Outcome, seen: Outcome) -> Outcome:
    """The outcome that is right, as far as one was recorded; what is not known is as it was seen."""
    return Outcome(
        _as_known(right.ok, seen.ok), _as_known(right.value, seen.value), _as_known(right.size, seen.size),
        _as_known(right.version, seen.version),
    )  # fmt: skip


def _as_known(known: T | None, said: T | None) -> T | None:
    return known if said is not None and known is not None else said


def _contents(held: Held, key: str) -> Contents | None:
    """The key in the model's store; None if its value is not known."""
    if held.there is False:
        return Contents()
    return None if held.value is None else Contents({key: held.value})


def _adds(held: Held, act: Act, edition: Edition) -> tuple[Held, Outcome]:
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
    after = replace(act, value=value, size=None if value is None else len(value))
    return _written(held, after, right), right


def _appends(held: Held, act: Act, edition: Edition) -> tuple[Held, Outcome]:
    contents = _contents(held, act.key)
    right = _filled(Outcome(version=_next(held)), act.seen)
    value, size = None, None if held.size is None or act.size is None else held.size + act.size
    if contents is not None and act.value is not None:
        value = apply(contents, Append(act.key, act.value), edition)[0].values.get(act.key)
        size = None if value is None else len(value)
    elif held.there is False:
        size = act.size
    return _written(held, replace(act, value=value, size=size), right), right


def _compares(held: Held, act: Act, edition: Edition) -> tuple[Held, Outcome]:
    contents = _contents(held, act.key)
    won = act.seen.ok
    if contents is not None and act.expected is not None:
        operation: Operation = CompareAndSet(act.key, act.expected, act.value or b"")
        won = apply(contents, operation, edition)[1].case in (CompareSet.CREATE, CompareSet.SWAP)
        won = won or (act.is_guess and act.value is not None and contents.values.get(act.key) == act.value)
    version = held.version if won is False else _next(held) if won else None
    right = _filled(Outcome(won, version=version if held.there or won else None), act.seen)
    if won is None:
        return replace(ANYTHING, queued=held.queued), right
    return (_written(held, act, right) if won else held), right
