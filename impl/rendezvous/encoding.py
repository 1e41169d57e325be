"""The state of a rendezvous as bytes: JSON of a known version, checked field by field, and bounded.

Rule: a value that was read is used only after it was checked completely; unlike a pickle, it cannot run code. A value
that readers would refuse is not written.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from itertools import starmap
from typing import Any

from .command import PARTS, Command
from .state import LISTS, RANK_KEY_LENGTH_MAX, Closed, Node, Participant, Settings, State

READ_BYTES_MAX = 16 << 20  # limit of the state that a server encodes for its room of 65,536 nodes
FORMAT = "trystate-rendezvous-4"  # each shape has its own name, so no state is taken for one of an older shape
RECORDED = "trystate-rendezvous-3"  # older records have this one, with a count of heartbeats instead of `written`
STATE_BYTES_MAX = 1 << 20  # of a document: some 8,000 nodes
TEXT_LENGTH_MAX = 1024
NUMBER_MAX = (1 << 53) - 1  # an integer that every reader of JSON can hold
# The types of the settings, in their order; the command follows them.
KINDS: tuple[Any, ...] = (int, int, float, float, float, int, int, float)
LISTINGS_KEPT = 8192  # cache of checked listings: few nodes change from one state to the next


class _Unfit(ValueError):
    """The reason why these fields are not a state."""


def encode(state: State) -> bytes:
    """The state as bytes; equal states give equal bytes.

    Raises:
        RendezvousStateError: `decode` would refuse the bytes, or they are more than STATE_BYTES_MAX.
    """
    fields = _fields(state)
    try:
        _checked(fields)
    except _Unfit as why:
        raise _refusal(f"the state of the rendezvous cannot be written: {why}") from None
    data = _dumped(fields)
    if len(data) > STATE_BYTES_MAX:
        raise _refusal(
            f"the state of {sum(1 for _ in state.listed())} nodes takes {len(data)} bytes, and the limit is "
            f"{STATE_BYTES_MAX}; use shorter host names (--local-addr) or fewer nodes"
        )
    return data


def encode_any_size(state: State) -> bytes:
    """The bytes of a state whose parts have been checked; `decode` takes them with `any_size`."""
    return _dumped(_fields(state))


def _fields(state: State) -> dict[str, Any]:
    end = state.closed
    fields: dict[str, Any] = {
        "format": FORMAT, "life": state.life, "version": state.version, "writer": state.writer, "round": state.round,
        "complete": state.complete, "call": state.call, "news": state.revision, "settings": _parts(state.settings),
        "done": list(state.done), "spent": state.spent, "cause": state.cause,
        "closed": None if end is None else [end.by, end.reason, end.verdict],
    }  # fmt: skip
    for name in LISTS:
        fields[name] = [
            [p.node.address, p.node.pid, p.node.local_id, p.node.token, p.host, p.port, p.written, p.rank_key]
            for p in getattr(state, name)
        ]
    fields["draining"] = list(state.draining)
    return fields


def _dumped(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _refusal(text: str) -> Exception:
    from .errors import RendezvousStateError  # imports torch, which a server that encodes states does without

    return RendezvousStateError(text)


def _parts(settings: Settings) -> list[Any]:
    """The settings as a list of numbers; 30 and 30.0 seconds give the same bytes, because they are equal settings."""
    values, command = [getattr(settings, name) for name in settings.__slots__[:-1]], settings.command
    runs = [command.program, command.arguments, command.nproc] if isinstance(command, Command) else command
    numbers = (float(v) if kind is float and isinstance(v, int) else v for v, kind in zip(values, KINDS, strict=True))
    return [*numbers, runs]


def encode_settings(settings: Settings) -> bytes:
    """Settings as bytes; equal settings give equal bytes."""
    return _dumped(_parts(settings))


def decode_settings(data: bytes) -> Settings:
    """The settings in these bytes. Raises ValueError: they are not settings; the text names the place."""
    try:
        return _settings(json.loads(str(data, "utf-8")))
    except RecursionError:
        raise _Unfit("settings are nested lists") from None


def decode(data: bytes, *, recorded: bool = False, any_size: bool = False) -> State:
    """The state in these bytes; with `recorded`, also one of the last version, which a record may have.

    Args:
        any_size: the bytes are of the reader's own journal: they may be more than READ_BYTES_MAX.

    Raises:
        RendezvousStateError: they are not a state, or are of another version; the text names the place.
    """
    try:
        if len(data) > READ_BYTES_MAX and not any_size:
            raise _Unfit(f"it has {len(data)} bytes, and the limit is {READ_BYTES_MAX}")
        return _decoded(data, (FORMAT, RECORDED) if recorded else (FORMAT,))
    except _Unfit as why:
        raise _refusal(
            f"the value in the store is not a state of a rendezvous: {why}. It was not touched; give the job another "
            "--rdzv-id"
        ) from None


def _decoded(data: bytes, formats: tuple[str, ...]) -> State:
    try:
        fields = json.loads(str(data, "utf-8"))
    except (ValueError, RecursionError):
        raise _Unfit(f"it begins with {bytes(data[:24])!r}, which is not JSON") from None
    if not isinstance(fields, dict) or fields.get("format") not in formats:
        found = fields.get("format") if isinstance(fields, dict) else fields
        raise _Unfit(f"its format is {_shown(found)}, not {FORMAT!r}; run one version of trystate on all nodes")
    if set(fields) != set(FIELDS):
        raise _Unfit(f"it has the fields {', '.join(sorted(map(str, fields)))[:200]}")
    return _checked(fields)


def _checked(fields: dict[str, Any]) -> State:
    lists = {name: _participants(fields[name], name) for name in LISTS}
    tokens = [p.node.token for nodes in lists.values() for p in nodes]
    if len(tokens) != len(set(tokens)):
        raise _Unfit("a node is listed twice")
    settings = _settings(fields["settings"])
    if len(lists["participants"]) + len(lists["expected"]) > settings.max_nodes:
        raise _Unfit(f"it has more participants than max_nodes={settings.max_nodes}")
    complete = _flag(fields["complete"], "complete")
    if complete and (lists["expected"] or len(lists["participants"]) < settings.min_nodes):
        raise _Unfit("a complete round has an expected node, or fewer participants than min_nodes")
    found: dict[str, Any] = {**lists, **{name: checked(fields[name], name) for name, checked in PLAIN.items()}}
    return State(
        settings=settings,
        complete=complete,
        revision=found.pop("news"),
        done=tuple(_text(token, "done") for token in _list(fields["done"], "done")),
        closed=_closed(fields["closed"]),
        draining=_draining(fields["draining"], lists),
        **found,
    )


def _draining(value: Any, lists: dict[str, tuple[Participant, ...]]) -> tuple[str, ...]:
    tokens = tuple(_text(token, "draining") for token in _list(value, "draining"))
    if not tokens:
        return tokens
    may_be = {p.node.token for name, nodes in lists.items() if name != "participants" for p in nodes}
    if len(tokens) != len(set(tokens)) or not may_be.issuperset(tokens):
        raise _Unfit("draining has a node twice, a participant, or one that is not listed")
    return tokens


def _participants(value: Any, name: str) -> tuple[Participant, ...]:
    try:
        return tuple(starmap(_listing, _list(value, name)))
    except TypeError:  # another number of parts, or an unhashable part
        raise _Unfit(f"{name} has an entry that is not a list of eight texts and numbers") from None


@lru_cache(maxsize=LISTINGS_KEPT, typed=True)
def _listing(
    address: Any, pid: Any, local_id: Any, token: Any, host: Any, port: Any, written: Any, rank_key: Any
) -> Participant:
    node = Node(_text(address, "address"), _number(pid, "pid"), _number(local_id, "local_id"), _text(token, "token"))
    if _number(port, "port") > 65535:
        raise _Unfit(f"port is {port}, above the limit of 65535")
    key = _text(rank_key, "rank_key", RANK_KEY_LENGTH_MAX)
    return Participant(node, _text(host, "host"), port, _number(written, "written"), key)


def _settings(value: Any) -> Settings:
    *values, runs = _list(value, "settings", len(KINDS) + 1)
    for v, kind in zip(values, KINDS, strict=True):
        number = isinstance(v, int | float) and not isinstance(v, bool) and -1 <= v <= NUMBER_MAX
        if not number or (kind is int and not isinstance(v, int)):
            raise _Unfit(f"settings has {_shown(v)} instead of a number")
    low, high = values[:2]
    if not 1 <= low <= high or min(*values[2:4], values[7]) < 0 or values[4] <= 0 or values[5] < 2:
        raise _Unfit(f"settings has nodes {low}:{high}, a heartbeat every {values[4]} s x {values[5]}")
    found: list[Any] = [kind(v) for v, kind in zip(values, KINDS, strict=True)]
    return Settings(**dict(zip(Settings.__slots__, found, strict=False)), command=_command(runs))


def _command(value: Any) -> Command:
    values = _list(value, "command", len(PARTS))
    return Command(_text(values[0], "program"), _text(values[1], "arguments"), _number(values[2], "nproc"))


def _closed(value: Any) -> Closed | None:
    if value is None:
        return None
    return Closed(*(_text(part, "closed") for part in _list(value, "closed", 3)))


def _list(value: Any, name: str, length: int | None = None) -> list[Any]:
    if not isinstance(value, list):
        raise _Unfit(f"{name} is {_shown(value)}, not a list")
    if length is not None and len(value) != length:
        raise _Unfit(f"{name} has {len(value)} parts, not {length}")
    return value


def _text(value: Any, name: str, length_max: int = TEXT_LENGTH_MAX) -> str:
    if not isinstance(value, str) or len(value) > length_max:
        raise _Unfit(f"{name} is {_shown(value)}, not a text of at most {length_max} characters")
    return value


def _number(value: Any, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= NUMBER_MAX:
        raise _Unfit(f"{name} is {_shown(value)}, not a whole number from 0 to {NUMBER_MAX}")
    return value


def _flag(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise _Unfit(f"{name} is {_shown(value)}, not true or false")
    return value


PLAIN: dict[str, Callable[[Any, str], Any]] = {
    **dict.fromkeys(("life", "writer", "cause"), _text),
    **dict.fromkeys(("version", "round", "call", "news", "spent"), _number),
}
FIELDS = ("format", "complete", "settings", "done", "closed", "draining", *LISTS, *PLAIN)


def _shown(value: Any) -> str:
    """The beginning of a value, without writing out a deep or long one."""
    if isinstance(value, str):
        return repr(value[:40])
    short = value is None or isinstance(value, float) or (isinstance(value, int) and value.bit_length() < 100)
    return repr(value) if short else f"of kind {type(value).__name__}"
