"""The same pictures for Markdown readers: Mermaid text, which GitHub and most documentation tools draw.

Mermaid keeps only one of several self-transitions of a state, so each (source, destination) has one arrow.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence

from trystate.model.checker.story import REPEATS, RESTS, Step, Story, tell
from trystate.model.checker.verdicts import Counterexample
from trystate.model.language import Kind, Machine, System
from trystate.model.language.lifelines import SHARED

from .moves import Move, control_states, initial_states, moves

_ARROWS = {Kind.PROTOCOL: "->>", Kind.ENVIRONMENT: "-->>", Kind.FAULT: "--x"}
_SPECIAL = re.compile(r'[#;:<>&"{}|`\\]')


def escape_mermaid(text: str) -> str:
    """Text for a label: characters that Mermaid or HTML would read as markup become character codes."""
    return _SPECIAL.sub(lambda found: f"#{ord(found.group())};", " ".join(text.split()))


def state_chart_mermaid(machine: Machine) -> str:
    """The machine as a `stateDiagram-v2`: events and keys; guards and effects are in the table."""
    labels: dict[tuple[enum.Enum, enum.Enum], list[str]] = {}
    for m in moves(machine):
        labels.setdefault((m.source, m.dest), []).append(_label(m))
    order = {state: k for k, state in enumerate(machine.states)}
    lines = ["stateDiagram-v2"]
    lines += [f'    state "{escape_mermaid(state.name)}" as {_state(state)}' for state in control_states(machine)]
    lines += [f"    [*] --> {_state(state)}" for state in initial_states(machine)]
    for source, dest in sorted(labels, key=lambda pair: (order[pair[0]], order[pair[1]])):
        lines.append(f"    {_state(source)} --> {_state(dest)} : {'<br/>'.join(labels[source, dest])}")
    return "\n".join(lines) + "\n"


def _state(state: enum.Enum) -> str:
    """An identifier that is never one of Mermaid's own words."""
    return f"s_{state.name}"


def _label(m: Move) -> str:
    notes = [m.whose] if m.whose else []
    if m.transition.kind is not Kind.PROTOCOL:
        notes.append(m.transition.kind.value)
    aside = f" ({', '.join(notes)})" if notes else ""
    return escape_mermaid(f"{m.transition.signature} #{m.number}{aside}")


def sequence_mermaid(system: System, run: Counterexample, notes: Sequence[str] = ()) -> str:
    """The run as a `sequenceDiagram`; a fault's arrows end in a cross, repeated steps are in a loop."""
    story = tell(system, run, notes=notes)
    lines = ["sequenceDiagram"]
    lines += [f"    participant m{k} as {escape_mermaid(name)}" for k, name in enumerate(story.members)]
    if story.shared in story.heads:
        known_as = "" if story.shared == SHARED else f" as {escape_mermaid(story.shared)}"
        lines.append(f"    participant {SHARED}{known_as}")
    for step in story.steps:
        if step.number - 1 == story.loop:
            lines.append(f"    loop {REPEATS}")
        lines += [
            f"    {_who(f.source)}-){_who(f.dest)}: {escape_mermaid(f'{f.cell}, sent in {f.sent}')}"
            for f in story.messages
            if f.taken and f.ended == step.number
        ]
        lines += _step(step)
    if story.rests:
        lines.append(f"    Note over {_span(story)}: {escape_mermaid(RESTS)}")
    elif story.loop is not None:
        lines.append("    end")
    return "\n".join(lines) + "\n"


def _step(step: Step) -> list[str]:
    kind = "" if step.kind is Kind.PROTOCOL else f" ({step.kind.value})"
    label = escape_mermaid(f"{step.number} {step.label}{kind}")
    actor = _who(step.actor)
    said = [step.note] if step.note else []
    own = [str(c) for member, changes in step.places() if member == step.actor for c in changes]
    lines = [f"    Note over {actor}: {'<br/>'.join([label, *map(escape_mermaid, [*said, *own])])}"]
    for member, changes in step.places():
        if member != step.actor:
            text = "<br/>".join(escape_mermaid(str(change)) for change in changes)
            lines.append(f"    {actor}{_ARROWS[step.kind]}{_who(member)}: {text}")
    return lines


def _who(member: int | None) -> str:
    return SHARED if member is None else f"m{member}"


def _span(story: Story) -> str:
    last = SHARED if story.shared in story.heads else _who(len(story.members) - 1)
    return f"m0,{last}" if story.members else SHARED
