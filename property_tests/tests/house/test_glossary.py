"""docs/glossary.md: each term once, in order, with a place that exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[3]
ROW = re.compile(r"\| (?P<term>[^|]+) \| [^|]+ \| [^|]+ \| `(?P<path>[^`:]+)(?::(?P<name>[^`]+))?` \|")
LINES = [line for line in (CHECKOUT / "docs/glossary.md").read_text().splitlines() if line.startswith("|")][2:]
PLACES = [(row["path"], row["name"]) for line in LINES if (row := ROW.fullmatch(line))]


def defines(path: Path, name: str) -> bool:
    """Whether a module defines `name`, or `Class.attribute`."""
    body: list[ast.stmt] = ast.parse(path.read_text()).body
    *classes, last = name.split(".")
    for each in classes:
        found = [node for node in body if isinstance(node, ast.ClassDef) and node.name == each]
        if not found:
            return False
        body = found[0].body
    named = {node.name for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    for node in (inner for statement in body for inner in ast.walk(statement)):
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        named |= {each.id if isinstance(each, ast.Name) else each.attr for each in targets
                  if isinstance(each, ast.Name | ast.Attribute)}  # fmt: skip
    return last in named


def test_every_row_is_read_and_terms_are_in_order() -> None:
    terms = [line.split("|")[1].strip() for line in LINES]
    assert len(PLACES) == len(LINES) >= 60
    assert terms == sorted(set(terms), key=str.lower)


@pytest.mark.parametrize(("path", "name"), PLACES)
def test_a_term_lives_where_the_glossary_says(path: str, name: str | None) -> None:
    assert (CHECKOUT / path).is_file()
    assert name is None or defines(CHECKOUT / path, name)
