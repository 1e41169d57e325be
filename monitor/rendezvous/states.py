"""Comparison of the model's states with the store's: the part that a record shows, and states with more nodes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trystate.model.language.sorts import ordinal
from trystate.model.rendezvous.vocabulary import AgentPhase, Deadline, Heartbeat, Membership

from .nodes import Roster
from .shared_state import Protocol, Snapshot
from .stepping import Bytes, Stepper, Values

REFERENCES = ("master", "published")  # the fields that name a node: its number + 1, or 0
BEATS = bytes(0 if k == ordinal(Heartbeat.NONE) else 1 for k in range(256))
SET = bytes(0 if k == ordinal(Deadline.UNSET) else 1 for k in range(256))
Shown = tuple[object, ...]


class Lens:
    """Reduces the states of one stepper to the parts that a record shows."""

    def __init__(self, stepper: Stepper, protocol: Protocol) -> None:
        self.stepper = stepper
        self._at = {name: column.at for name, column in stepper.columns.items()}
        self._with_deadline = protocol is Protocol.TORCH
        left = (name for name in stepper.columns if name.endswith("_left"))
        self.counters = [(at, stepper.initial[at]) for at in map(self._at.__getitem__, left)]  # full: no limit

    def shows(self, state: Bytes) -> Shown:
        """The part of a state of the model that a record shows."""
        at = self._at
        deadline = state[at["deadline"]].translate(SET) if self._with_deadline else b""
        beats = state[at["heartbeat_age"]].translate(BEATS)
        same = ("complete", "closed", "round", "member", "rank")
        return (*(state[at[name]] for name in same), beats, deadline)

    def wanted(self, snapshot: Snapshot, roster: Roster) -> Shown:
        """Like `shows`, but for a state of the store."""
        columns, size = self.stepper.columns, self.stepper.columns["member"].shape[0]
        member, rank, beats = ([0] * size for _ in range(3))
        for who, kind in snapshot.members.items():
            member[roster.index(who)] = ordinal(kind)
        for who, number in snapshot.ranks.items():
            rank[roster.index(who)] = min(number, columns["rank"].slot.sort.high)
        for who in snapshot.beats:
            beats[roster.index(who)] = 1
        number = snapshot.round % (columns["round"].slot.sort.high or 1)
        deadline = bytes([snapshot.deadline is not None]) if self._with_deadline else b""
        flags = (bytes([snapshot.complete]), bytes([snapshot.closed is not None]), columns["round"].pack(number))
        return (*flags, columns["member"].pack(member), columns["rank"].pack(rank), bytes(beats), deadline)

    def differences(self, state: Bytes, wanted: Shown, roster: Roster) -> list[str]:
        """The texts about the differences between a state and the record."""
        out = []
        names = ("complete", "closed", "round", "member", "rank", "heartbeat", "deadline")
        for name, own, other in zip(names, self.shows(state), wanted, strict=True):
            if own == other:
                continue
            assert isinstance(own, bytes) and isinstance(other, bytes)
            if name not in ("member", "rank", "heartbeat"):
                out.append(f"{name} {int.from_bytes(own, 'little')}, not {int.from_bytes(other, 'little')}")
                continue
            for k, peer in enumerate(roster.peers):
                width = len(own) // self.stepper.columns["member"].shape[0]
                a, b = (int.from_bytes(x[k * width : (k + 1) * width], "little") for x in (own, other))
                if a != b:
                    shown = (lambda v: list(Membership)[v].name) if name == "member" else str
                    out.append(f"{name}[{peer}] {shown(a)}, not {shown(b)}")
        return out

    def phase(self, state: Bytes, node: int) -> AgentPhase:
        return list(AgentPhase)[state[self._at["phase"]][node]]

    def adopted(self, state: Bytes, wanted: Shown) -> Bytes:
        """The state with the fields that the record shows; the other fields keep their assumed values."""
        changed, at = list(state), self._at
        for name, value in zip(("complete", "closed", "round", "member", "rank"), wanted, strict=False):
            assert isinstance(value, bytes)
            changed[at[name]] = value
        beats, old = wanted[5], state[at["heartbeat_age"]]
        assert isinstance(beats, bytes)
        fresh, none = ordinal(Heartbeat.FRESH), ordinal(Heartbeat.NONE)
        changed[at["heartbeat_age"]] = bytes(
            (k or fresh) if lives else none for lives, k in zip(beats, old, strict=True)
        )
        if self._with_deadline:
            value, now = wanted[6], state[at["deadline"]][0]
            changed[at["deadline"]] = bytes([(now or ordinal(Deadline.RUNNING)) if value != b"\0" else 0])
        elif state[at["complete"]] != changed[at["complete"]]:
            changed[at["deadline"]] = b"\0"
        return tuple(changed)

    def as_found(self, state: Bytes, snapshot: Snapshot, roster: Roster) -> Bytes:
        """The state with guessed other fields, for a record that begins in the middle: members of a round run in it."""
        step, values = self.stepper, Values()
        places = {who: roster.index(who) for who in snapshot.members}
        members = [k for who, k in places.items() if snapshot.members[who] is Membership.PARTICIPANT]
        for who, kind in snapshot.members.items():
            k = places[who]
            runs = snapshot.complete and kind is Membership.PARTICIPANT
            expected = kind is Membership.EXPECTED
            values["phase", (k,)] = ordinal(AgentPhase.RUNNING if runs or expected else AgentPhase.JOINING)
            if runs:
                values |= {("returned", (k,)): 1, ("saw_rank", (k,)): min(snapshot.ranks[who], len(members) - 1)}
                values |= {("saw", (k, j)): 1 for j in members}
                values["master", (k,)] = min(members) + 1
                values |= {("told", (k,)): 1} if "told" in step.columns else {}
        if "published" in step.columns and snapshot.complete and members:
            values["published", ()] = min(members) + 1
        if not self._with_deadline and not snapshot.complete:
            values["deadline", ()] = ordinal(Deadline.RUNNING if snapshot.calling else Deadline.UNSET)
        return step.put(state, values)


def rearranged(state: Bytes, old: Stepper, new: Stepper, sources: Sequence[int | None]) -> Bytes:
    """A state of `old` as a state of `new`: its node k was node `sources[k]`, or is a node that has not come yet."""
    size = new.columns["member"].shape[0]
    picks = np.array([*(-1 if s is None else s for s in sources), *[-1] * (size - len(sources))])
    fresh = picks < 0
    moved = {s + 1: k + 1 for k, s in enumerate(sources) if s is not None}
    out = []
    for name, column in new.columns.items():
        found, initial = old.columns[name].array(state), column.slot.initial[0]
        if name in REFERENCES:
            found = np.array([moved.get(int(v), 0) for v in found.reshape(-1)]).reshape(found.shape)
        for axis in range(found.ndim):
            found = np.take(found, np.where(fresh, 0, picks), axis=axis)
        if found.ndim:
            found = found.copy()
            for axis in range(found.ndim):
                found[(slice(None),) * axis + (fresh,)] = initial
        if name == "crashed":
            found[len(sources) :] = 1  # these nodes do not exist
        out.append(column.pack(found))
    return tuple(out)
