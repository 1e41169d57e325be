"""Each room keeps to its budget of lines, which CONTRIBUTING.md lists."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[3]
TEXT = CHECKOUT / "CONTRIBUTING.md"
MADE = re.compile(
    r"(\..*_cache|\.git|\.hypothesis|\.venv|.*\.egg-info|build|dist|node_modules|__pycache__|trystate-.*)$"
)
needs_clone = pytest.mark.skipif(not TEXT.is_file(), reason="needs a clone: a wheel holds packages only")


def lines_of_code(text: str) -> int:
    """The lines of a module without blank lines, comments and docstrings."""
    left_out: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docs = node.body[:1] if ast.get_docstring(node) else []
            left_out.update(n for one in docs for n in range(one.lineno, (one.end_lineno or 0) + 1))
    lines = enumerate(text.splitlines(), 1)
    return sum(bool(line.strip()) and not line.lstrip().startswith("#") and n not in left_out for n, line in lines)


def budgets(text: str) -> dict[str, int]:
    """Room -> lines, from the table of CONTRIBUTING.md."""
    (table,) = re.findall(r"^\| room \| lines of Python, at most \|\n.*\n((?:\|.*\n)+)", text, re.M)
    rows = re.findall(r"^\| `([\w/]+)/` \| ([\d,]+) \|$", table, re.M)
    return {room: int(lines.replace(",", "")) for room, lines in rows}


def kept() -> list[str]:
    """The files of the checkout, by their paths in it, without those that a tool has made."""
    found = []
    for folder, folders, names in os.walk(CHECKOUT):
        folders[:] = [name for name in folders if not MADE.match(name)]
        found += [Path(folder, name).relative_to(CHECKOUT).as_posix() for name in names]
    return found


def over(sizes: dict[str, int], most: dict[str, int]) -> Iterator[str]:
    for room, size in sizes.items():
        if room not in most:
            yield f"{room}/ has no budget: add a row to CONTRIBUTING.md"
        elif size > most[room]:
            yield f"{room}/ has {size:,} lines, more than {most[room]:,}: remove some, or make room elsewhere"


@needs_clone
def test_no_room_has_more_lines_than_its_budget() -> None:
    most = budgets(TEXT.read_text(encoding="utf-8"))
    sizes = dict.fromkeys(most, 0)
    for name in kept():
        if name.endswith(".py") and name != "property_tests/__init__.py":  # which has a docstring alone
            room = max((r for r in most if name.startswith(f"{r}/")), key=len, default=name.split("/")[0])
            sizes[room] = sizes.get(room, 0) + lines_of_code((CHECKOUT / name).read_text(encoding="utf-8"))
    assert all(sizes.values()) and [*over(sizes, most)] == []


@needs_clone
def test_the_repository_has_no_more_files_than_its_budget() -> None:
    (most,) = re.findall(r"^The repository has at most ([\d,]+) files\.$", TEXT.read_text(encoding="utf-8"), re.M)
    assert len(kept()) <= int(most.replace(",", ""))
