"""Texts that others have written (names, reasons, keys, headers), on a terminal or in a log.

Rule: a client that writes to a store must not be able to clear a screen, to set its title, or to forge a line.
"""

from __future__ import annotations

from collections.abc import Sequence


def visible(text: object) -> str:
    r"""The text in one line, with an escape such as `\x1b` or `\n` for each character that is not printable."""
    line = str(text)
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in line)


def some(names: Sequence[str], most: int, count: int | None = None) -> str:
    """`a, b and 3 more`: the first names, and the number of the others. `count`: of all, if `names` are the first."""
    others = (len(names) if count is None else count) - most
    more = f" and {others} more" if others > 0 else ""
    return ", ".join(names[:most]) + more
