"""docs/sources.md explains each citation and leads to each figure; docs/glossary.md has each term, with its place."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from trystate import registry
from trystate.diagrams.structure import structure_name

CHECKOUT = Path(__file__).resolve().parents[3]
PAGE = CHECKOUT / "docs" / "sources.md"
FILE = re.compile(r"[\w./-]+\.(?:py|cpp|hpp|h|rst)\b")


@cache
def citations() -> frozenset[str]:
    """The citations of all transitions and properties of all editions with all faults, and of all tables and rows."""
    found = set[str]()
    for system in registry.in_each_edition(registry.SYSTEMS.values()):
        found |= {t.cite for t in system.transitions} | {p.cite for p in system.properties}
    for table in registry.titled_tables().values():
        found |= {table.cite, *(row.cite for row in table.rows)}
    return frozenset(found - {""})


def names(text: str) -> Iterator[str]:
    """The names in the first column of the tables `name`, in the sections "The articles" and "torch"."""
    for section in re.findall(r"^## (?:The articles|torch)$(.*?)(?=^## |\Z)", text, re.M | re.S):
        for table in re.findall(r"^\| name \|.*?(?=^$|\Z)", section, re.M | re.S):
            for row in table.splitlines()[2:]:
                yield from re.findall(r"`([^`]+)`", row.split("|")[1])


def test_each_citation_begins_with_a_name_that_the_page_explains() -> None:
    """Each file that a citation mentions is a name of the page too."""
    known = {*names(PAGE.read_text(encoding="utf-8"))}
    begins = re.compile("|".join(rf"{re.escape(name)}(?![\w.-])" for name in sorted(known, key=len, reverse=True)))
    assert {c for c in citations() if not begins.match(c) or not {*FILE.findall(c)} <= known} == set()


def test_each_name_of_the_page_is_cited() -> None:
    used = " ".join(citations())
    assert [name for name in names(PAGE.read_text(encoding="utf-8")) if name not in used] == []


def test_the_bibliography_has_each_citation() -> None:
    pytest.importorskip("mkdocs", reason="the extra docs is not installed")
    assert citations() - runpy.run_path(str(CHECKOUT / "docs" / "website.py"))["citations"]().keys() == set()


def test_the_page_leads_to_each_walk_and_structure_and_to_no_other_picture() -> None:
    linked = set(re.findall(r"\(\.\./diagrams/generated/([\w-]+)\.md\)", PAGE.read_text(encoding="utf-8")))
    drawn = {walk.name for walk in registry.WALKS} | {structure_name(made) for made in registry.STRUCTURES}
    assert {name for name in linked if not name.startswith("graph-")} == drawn
    assert all((CHECKOUT / "diagrams" / "generated" / f"{name}.md").is_file() for name in linked)


# ---- the glossary

ROW = re.compile(r"\| (?P<term>[^|]+) \| [^|]+ \| [^|]+ \| `(?P<path>[^`:]+)(?::(?P<name>[^`]+))?` \|")
LINES = [line for line in (CHECKOUT / "docs/glossary.md").read_text().splitlines() if line.startswith("|")][2:]
PLACES = [(row["path"], row["name"]) for line in LINES if (row := ROW.fullmatch(line))]


ARTICLES = runpy.run_path(str(CHECKOUT / "docs" / "articles.py"))


def test_every_row_is_read_and_terms_are_in_order() -> None:
    terms = [line.split("|")[1].strip() for line in LINES]
    assert len(PLACES) == len(LINES) >= 60
    assert terms == sorted(set(terms), key=str.lower)


@pytest.mark.parametrize(("path", "name"), PLACES)
def test_a_term_lives_where_the_glossary_says(path: str, name: str | None) -> None:
    assert (CHECKOUT / path).is_file()
    assert name is None or name in ARTICLES["names"](path)
