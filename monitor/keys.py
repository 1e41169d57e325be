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
WRITES = {"set", "add", "append", "compare_set", "delete", "take", "multi_set", "queue_push", "queue_pop"}
READS = {"get", "multi_get", "check", "queue_len"}
SEVERAL = {"multi_set": "set", "multi_get": "get"}  # judged key by key


class MalformedLine(UsageError):
    """A line of a record lacks a field, or has one of another kind."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer to an operation, as far as it was recorded: None is unknown.

    Attributes:
        ok: a check: the key is there; a compare_set: it stored; a delete: there was a value; an add: it was not
            refused; a get: there is a value.
        version: of a get, how often the key was written by then.
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

    def __str__(self) -> str:
        told = f"{self.amount:+d}" if self.name == "add" else "" if self.value is None else shown(self.value)
        return f"{self.name} of {self.key}{f' ({told})' if told else ''}"


def shown(value: bytes) -> str:
    """A value for a person."""
    text = value[:SHOWN_MAX].decode("latin-1")
    return repr(text) + ("…" if len(value) > SHOWN_MAX else "")


def acts_of(line: Mapping[str, Any]) -> Iterator[Act]:
    """The operations on single keys that a line tells of; none for a line of another kind.

    Raises:
        MalformedLine: a field is missing, or of another kind.
    """
    op = line.get("op")
    if op not in WRITES | READS:
        return
    try:
        keys = line["keys"] if "keys" in line else [line["key"]]
        if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
            raise TypeError("keys")
        for at, key in enumerate(keys):
            yield _act(SEVERAL.get(op, op), key, line, at if op in SEVERAL else None, len(keys))
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise MalformedLine(f"a line of {op} lacks a field or has a wrong one: {error}") from None


def _act(op: str, key: str, line: Mapping[str, Any], at: int | None, keys: int) -> Act:
    def field(name: str, kind: type) -> Any:
        found = line.get(name)
        if at is not None and isinstance(line.get(f"{name}s"), list):
            found = line[f"{name}s"][at]
        if found is not None and not (isinstance(found, kind) and (kind is bool or not isinstance(found, bool))):
            raise TypeError(f"{name}={str(found)[:SHOWN_MAX]!r}")
        return found

    value, size, version = _bytes(field("value", str)), field("size", int), field("v", int)
    size = len(value) if size is None and value is not None else size
    match op:
        case "get":
            ok = None if version is None else version > 0
            return Act(op, key, Outcome(ok, value, size, version))
        case "add":
            result = line["result"]
            if not isinstance(result, int) or isinstance(result, bool):
                return Act(op, key, Outcome(False), amount=line["amount"])
            return Act(op, key, Outcome(True, b"%d" % result), amount=line["amount"])
        case "compare_set":
            won = field("won", bool)
            return Act(op, key, Outcome(won), value, size, expected=_bytes(field("expected", str)))
        case "check":  # "not all are there" says nothing of one of several
            result = field("result", bool)
            return Act(op, key, Outcome(None if result is False and keys > 1 else result))
        case "delete" | "take" | "queue_pop":
            return Act(op, key, Outcome(field("result", bool)))
    return Act(op, key, Outcome(), value, size)


def _bytes(value: str | None) -> bytes | None:
    return None if value is None else value.encode("latin-1")


def meaning(held: Held, act: Act, edition: Edition = Edition.TRYSTATE) -> tuple[Held, Outcome]:
    """The knowledge of the key after the operation, and the outcome that is right; where any is, the one seen."""
    match act.name:
        case "set":
            return replace(held, there=True, value=act.value, size=act.size, version=_next(held)), act.seen
        case "get":
            there = held.there if held.there is not None else act.seen.ok
            right = _filled(Outcome(there, held.value, held.size, held.version if there else 0), act.seen)
            if not there:
                return replace(held, there=there), right
            value, size, version = _or(right.value, held.value), _or(right.size, held.size), held.version
            return replace(held, there=there, value=value, size=size, version=_or(right.version, version)), right
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
        case "queue_push":
            return replace(held, queued=None if held.queued is None else held.queued + 1), act.seen
        case "queue_pop":
            right = _filled(Outcome(None if held.queued is None else held.queued > 0), act.seen)
            left = None if held.queued is None or right.ok is None else held.queued - right.ok
            return replace(held, queued=left), right
    return held, act.seen


def _or(said: T | None, known: T | None) -> T | None:
    return known if said is None else said


def _next(held: Held) -> int | None:
    return None if held.version is None else held.version + 1


def _filled(right: Outcome, seen: Outcome) -> Outcome:
    """The outcome that is right, as far as one was recorded; what is not known is as it was seen."""
    fields = (
        known if said is not None and known is not None else said
        for known, said in (
            (right.ok, seen.ok), (right.value, seen.value), (right.size, seen.size), (right.version, seen.version)
        )
    )  # fmt: skip
    return Outcome(*fields)


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
        right = Outcome(True, b"%d" % result) if isinstance(result, int) else Outcome(False)
    if not right.ok:
        return held, right
    size = None if right.value is None else len(right.value)
    return replace(held, there=True, value=right.value, size=size, version=_next(held)), right


def _appends(held: Held, act: Act, edition: Edition) -> tuple[Held, Outcome]:
    contents = _contents(held, act.key)
    if contents is not None and act.value is not None:
        value = apply(contents, Append(act.key, act.value), edition)[0].values.get(act.key)
        size = None if value is None else len(value)
        return replace(held, there=value is not None, value=value, size=size, version=None), act.seen
    before = 0 if held.there is False else held.size
    size = None if before is None or act.size is None else before + act.size
    return replace(held, there=True, value=None, size=size, version=None), act.seen


def _compares(held: Held, act: Act, edition: Edition) -> tuple[Held, Outcome]:
    contents = _contents(held, act.key)
    won = act.seen.ok
    if contents is not None and act.expected is not None:
        operation: Operation = CompareAndSet(act.key, act.expected, act.value or b"")
        won = apply(contents, operation, edition)[1].case in (CompareSet.CREATE, CompareSet.SWAP)
    right = _filled(Outcome(won), act.seen)
    if won is None:
        return replace(ANYTHING, queued=held.queued), right
    if not won:
        return held, right
    return replace(held, there=True, value=act.value, size=act.size, version=_next(held)), right
