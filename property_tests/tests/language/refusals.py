"""The mistaken declarations of refusals.txt."""

from __future__ import annotations

from pathlib import Path


def refused(title: str) -> dict[str, str]:
    """The declarations of a section, each with the words of its error."""
    sections = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").split("\n## ")
    (rows,) = (rows.strip().split("\n\n") for name, _, rows in (s.partition("\n") for s in sections) if name == title)
    return dict(row.split("\n-> ") for row in rows)
