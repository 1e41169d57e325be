"""Generated pages of docs/: each tool makes their text; this writes them, or reports whether they are fresh."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path

from trystate import registry


def row(*cells: object) -> str:
    return "| " + " | ".join(map(str, cells)) + " |\n"


def finding_link(finding: str) -> str:
    number = registry.finding_number(finding)
    return f"[{number}](findings.md#{number.lower()}-{finding})"


def settled(
    parser: argparse.ArgumentParser,
    made: Callable[[argparse.Namespace], Iterable[tuple[Path, str]]],
    plain: Callable[[str], str] = str,
) -> int:
    """Write the pages that are `made`, or with --check compare them without the parts that `plain` removes.

    Returns the exit code: 1 if a page was compared and is stale.
    """
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a page is stale")
    args = parser.parse_args()
    stale = 0
    for path, text in made(args):
        fresh = path.exists() and plain(path.read_text(encoding="utf-8")) == plain(text)
        if not args.check:
            path.write_text(text, encoding="utf-8")
        stale += not fresh
        print(f"{'fresh' if fresh else 'stale' if args.check else 'written'}: {path.name}")
    return 1 if args.check and stale else 0
