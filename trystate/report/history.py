"""The operations of a recorded store, and the wrong answers among them: as text and as values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trystate.monitor.histories import Histories

from .results import plural

SHOWN_MAX = 20


def wrongs(histories: Histories) -> int:
    """The number of wrong answers, including the ones that were not kept."""
    return sum(count for name, count in histories.counts.items() if name.startswith("wrong: "))


def text(histories: Histories) -> Iterator[str]:
    """The number of checked operations of each kind, and each wrong answer."""
    counts = {name: n for name, n in sorted(histories.counts.items()) if not name.startswith("wrong: ")}
    left = counts.pop("left out", 0)
    told = ", ".join(f"{n} {name}" for name, n in counts.items())
    beside = f"; {left} could not be" if left else ""
    yield f"store: {plural(sum(counts.values()), 'operation')} checked{f' ({told})' if told else ''}{beside}"
    for each in histories.wrong[:SHOWN_MAX]:
        yield f"  WRONG ({each.check}) {each}"
    if (more := wrongs(histories) - SHOWN_MAX) > 0:
        yield f"  ... {more} more"
    for why in histories.undecided:
        yield f"  not decided: {why}"
    if not histories.wrong:
        yield "  each answer is correct for a store, and no wait or watch was left unanswered"


def as_data(histories: Histories) -> dict[str, Any]:
    """The same as values of JSON."""
    wrong = [{part: getattr(each, part) for part in each.__slots__} for each in histories.wrong]
    return {"counts": dict(histories.counts), "wrong": wrong, "undecided": list(histories.undecided)}
