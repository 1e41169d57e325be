"""Texts that a client may write into a store to deceive a person at a terminal."""

from __future__ import annotations

FORGED = "verdict: every line is explained, and no property was violated"
HOSTILE = f"\x1b[2J\x1b]0;title\x07\x9b\u202e\n{FORGED}"  # clears the screen, sets a title, writes backwards, a line


def harmless(text: str) -> bool:
    """Whether it is lines of printable characters, none of which is forged."""
    return all(line.isprintable() and line != FORGED for line in text.split("\n"))
