"""The page of the articles: each item of the five, traced to its step, picture, code, test and comparison.

    python docs/articles.py > articles.md

An item is one thing that an article describes. The items of an article are in docs/articles/NAME.toml, in its order.
Each has a `section`, a `name`, and five columns (`COLUMNS`). A column is a list of places, or a sentence with the
reason why it has no place. An item that the project leaves out has `left_out`, the reason, instead of the columns. A
place is a file below the column's folder, alone (`rendezvous/operators`) or with a name in it
(`rendezvous/operators.JOIN_SEED`, `rendezvous/torch.Torch.finish`). A picture is a name that `trystate diagram` draws.
A comment `# open: ...` above an item names a missing part.

Errors: an unknown or missing key, an empty column, a place that does not exist, and a citation of an article
(`cite="rendezvous-engine 3.2.4"`, or the same in a docstring) whose section has no item. The site has the page
(docs/website.py).
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from trystate import registry
from trystate.diagrams.graph import graph_name
from trystate.diagrams.structure import structure_name
from trystate.diagrams.style import slug

HERE = Path(__file__).parent
ROOT = HERE.parent
PICTURES = "diagrams/generated"
COLUMNS = {  # each column of an item, and the folder of its places
    "model": "model", "picture": PICTURES, "runtime": "impl", "tests": "property_tests/tests",
    "compared": "property_tests",
}  # fmt: skip
ARTICLES = (
    "rendezvous-engine", "elastic-node-change", "ddp-initialisation", "distributed-autograd-design",
    "distributed-autograd-contexts", "project",
)  # fmt: skip
NUMBER = r"\d+(?:\.\d+)*"
CITATION = re.compile(  # an article, and a section or several: `rendezvous-engine 3.2.1, 4.6`
    rf"({'|'.join(ARTICLES[:-1])})[\w-]*:? ({NUMBER}(?:, {NUMBER})*|[A-Z][A-Za-z]+(?: [A-Za-z]+)*)"
)
NIGHT, SAMPLE = " (by night)", " (a sample by day)"
MODULE = "pytestmark"
LISTED_MAX = 12  # names of declarations in a line


@dataclass(frozen=True)
class Article:
    """A file of docs/articles: the title and source of an article, and its items in their order."""

    name: str
    title: str
    source: str
    items: tuple[dict[str, Any], ...]

    def sections(self) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        for section in dict.fromkeys(item["section"] for item in self.items):
            yield section, [item for item in self.items if item["section"] == section]

    def home(self, cited: str) -> str | None:
        """The section under which the page lists a citation: itself, its first part, or the section around it."""
        sections = [section for section, _ in self.sections()]
        parts = [one for one in sections if one.startswith(f"{cited}.")]
        wholes = [one for one in sections if cited.startswith((f"{one}.", f"{one} "))]
        found = [*(one for one in sections if one == cited), *parts, *sorted(wholes, key=len, reverse=True)]
        return found[0] if found else None


class Mistake(SystemExit):
    """A file of docs/articles is not as the head of this tool describes; the text names file, item and column."""


def articles(folder: Path = HERE / "articles") -> list[Article]:
    """All articles; Mistake if a file is not as it must be."""
    found = []
    for name in ARTICLES:
        path = folder / f"{name}.toml"
        read = tomllib.loads(path.read_text(encoding="utf-8"))
        for item in read["item"]:
            _judge(f"{path.name}: {item.get('name')}", item)
        found.append(Article(name, read["title"], read["source"], tuple(read["item"])))
    return found


def _judge(where: str, item: dict[str, Any]) -> None:
    given, always = item.keys(), {"section", "name"}
    if given not in (always | COLUMNS.keys(), always | {"left_out"}):
        columns = ", ".join(COLUMNS)
        raise Mistake(f"{where}: has {', '.join(given)}; give section, name, and either {columns}, or left_out alone")
    for column, value in item.items():
        if not value and column != "section":
            raise Mistake(f"{where}: {column} is empty: name a place, or give in a sentence the reason why it has none")
        for place in value if column in COLUMNS and isinstance(value, list) else ():
            if _link(column, place) is None:
                raise Mistake(f"{where}: {column}: there is no {place} below {COLUMNS[column]}/")


def _link(column: str, place: str) -> str | None:
    """A place as Markdown; None if it is not there."""
    folder = COLUMNS[column]
    if column == "picture":
        return f"[{place}](../{folder}/{place}.svg)" if place in pictures() else None
    module, _, inner = place.partition(".")
    path = f"{folder}/{module}{'/__init__' if (ROOT / folder / module).is_dir() else ''}.py"
    there = (ROOT / path).is_file() and (not inner or inner in names(path))
    return _link_to(inner.rpartition(".")[2] or Path(module).name, path) if there else None


@cache
def pictures() -> frozenset[str]:
    """The names of all pictures."""
    tables = {slug(title) for title in registry.titled_tables()}
    runs = {*registry.findings(), *(walk.name for walk in registry.WALKS)}
    made = {*map(structure_name, registry.STRUCTURES), *map(graph_name, registry.GRAPHS)}
    charts = {
        slug(f"{slug(cls.__name__)} {edition} {machine}")
        for cls in registry.SYSTEMS.values()
        for edition in registry.edition_names(cls) or ("",)
        for machine in registry.machine_names(cls)
    }
    return frozenset(tables | runs | made | charts)


def _link_to(name: str, path: str) -> str:
    """A declaration, after its folder and module, because torch's and ours have the same name; a test without them."""
    file = Path(path)
    module = file.parent.name if file.stem == "__init__" else f"{file.parent.name}/{file.stem}"
    label = module if name in (file.stem, Path(module).name) else f"{module}.{name}"
    return f"[{name if name.startswith('test_') else label}](../{path})"


@cache
def names(path: str) -> frozenset[str]:
    """The classes, functions and values that a file declares, those in a class as Class.name."""

    def declared(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
        for each in body:
            match each:
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    yield prefix + each.name
                case ast.ClassDef():
                    yield prefix + each.name
                    yield from declared(each.body, f"{prefix}{each.name}.")
                case ast.Assign():
                    yield from (prefix + one.id for one in each.targets if isinstance(one, ast.Name))
                case ast.AnnAssign(target=ast.Name(id=name)):
                    yield prefix + name

    return frozenset(declared(_tree(path).body))


@cache
def _tree(path: str) -> ast.Module:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


@cache
def citations() -> dict[tuple[str, str], list[str]]:
    """Article and section: the declarations of model/ and impl/ that cite it, as Markdown."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for folder in ("model", "impl"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            path = str(file.relative_to(ROOT))
            for node, name in around(_tree(path), file.stem):
                text = node.value if isinstance(node, ast.Constant) else ""
                for article, sections in CITATION.findall(text) if isinstance(text, str) else ():
                    for section in sections.split(", "):
                        found.setdefault((article, section), {})[_link_to(name, path)] = None
    return {key: [*links] for key, links in found.items()}


def around(node: ast.AST, name: str) -> Iterator[tuple[ast.AST, str]]:
    """Each node below this one, with the name of the innermost declaration around it; `name` is its own."""
    for child in ast.iter_child_nodes(node):
        yield child, name
        match child:
            case ast.FunctionDef(name=inner) | ast.AsyncFunctionDef(name=inner) | ast.ClassDef(name=inner):
                yield from around(child, inner)
            case ast.Assign(targets=[ast.Name(id=inner)]) | ast.AnnAssign(target=ast.Name(id=inner)):
                yield from around(child, inner)
            case _:
                yield from around(child, name)


def _homeless(all_of_them: list[Article]) -> list[str]:
    """The citations of sections without an item. A section is also found by its parts and by the section around it."""
    by_name = {article.name: article for article in all_of_them}
    return [
        f"{article} {section}, cited by {links[0]}"
        for (article, section), links in citations().items()
        if by_name[article].home(section) is None
    ]


def page(folder: Path = HERE / "articles") -> str:
    """The whole page; Mistake if a file is not as it must be, or a citation has no item."""
    found = articles(folder)
    if homeless := _homeless(found):
        raise Mistake("no item stands for " + "; ".join(homeless))
    items = [item for article in found for item in article.items]
    left = [item for item in items if "left_out" in item]
    text = (
        "# The articles, item by item\n\n"
        "The project began with five articles about PyTorch's control plane. Each thing that they describe is an item "
        "here, under the number of its section, with five columns: the step or table of the *model* that declares it; "
        "its *picture*; the code of the *runtime* that does it, or what ours does in its place; the *tests* of it; and "
        "the code in which it is *compared* with torch or with our runtime. "
        "Words in italics say why a column has no place. A test *by night* is of the nightly profile alone, which the "
        "nightly job of the workflow runs; one with *a sample by day* has more cases there. "
        f"{len(items)} items; {len(left)} of them are left out, each with its reason. Below a section are the "
        "declarations that cite it (`cite=` in the code). [The properties that hold in each edition](verdicts.md), "
        "[the defects of torch](findings.md).\n"
    )
    for article in found:
        text += f"\n## {article.title}\n\n{article.source}\n"
        for section, its in article.sections():
            text += f"\n### {section}\n\n" if section else "\n"
            text += _table(its)
            text += _cited(article, section)
    return text


def _table(items: list[dict[str, Any]]) -> str:
    lines = ["| item | " + " | ".join(COLUMNS) + " |", "| --- |" + " --- |" * len(COLUMNS)]
    for item in items:
        if "left_out" in item:
            cells = [f"*left out*: {item['left_out']}", *[""] * (len(COLUMNS) - 1)]
        else:
            cells = [_cell(column, item[column]) for column in COLUMNS]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in (item["name"], *cells)) + " |")
    return "\n".join(lines) + "\n"


def _cell(column: str, value: str | list[str]) -> str:
    if isinstance(value, str):
        return f"*{value}*"
    return ", ".join(f"{_link(column, place)}{_night(place) if column == 'tests' else ''}" for place in value)


def _night(place: str) -> str:
    """A remark if a test runs only by night, or runs a sample of its cases by day."""
    module, _, inner = place.partition(".")
    path = f"{COLUMNS['tests']}/{module}.py"
    if (ROOT / path).is_file():
        alone, sampled = nightly(path)
        for which, remark in ((alone, NIGHT), (sampled, SAMPLE)):
            if inner in which or MODULE in which:
                return remark
    return ""


@cache
def nightly(path: str) -> tuple[frozenset[str], frozenset[str]]:
    """The declarations of a test file that run only in the nightly profile, and the ones that run a sample by day.

    The names of support/nightly.py are followed through the file: a test that uses a list which is shorter by day is
    sampled.
    """
    texts = dict(_declared(_tree(path)))
    alone = {name for name, text in texts.items() if re.search(r"skipif\(not (nightly\.)?NIGHTLY", text)}
    alone |= {name for name, text in texts.items() if alone & {*re.findall(r"^@(\w+)$", text, re.M)}}
    sampled = {"NIGHTLY", "by_night", "a_third"}
    while more := {name for name, text in texts.items() if sampled & {*re.findall(r"\w+", text)}} - sampled:
        sampled |= more
    return frozenset(alone), frozenset(sampled - alone)


def _declared(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The names that a file declares, with their sources; `MODULE` has the marks of all tests."""
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.Assign(targets=[ast.Name(id=name)]):
                yield name, ast.unparse(node)


def _cited(article: Article, section: str) -> str:
    """The declarations that cite the section, or a part of it that has no item."""
    found: dict[str, None] = {}
    for (name, cited), its in citations().items():
        if name == article.name and article.home(cited) == section:
            found |= dict.fromkeys(its)
    links = [*found]
    more = f" and {len(links) - LISTED_MAX} more" if len(links) > LISTED_MAX else ""
    return f"\nCited by {', '.join(links[:LISTED_MAX])}{more}.\n" if links else ""


if __name__ == "__main__":
    sys.stdout.write(page())
