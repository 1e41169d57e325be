"""Kinds of wording that no text may have: comments, docstrings, texts that are shown, Markdown, and names of tests.

Rule: a kind has a pattern and a cure. A place that is right nevertheless is in
wording.toml, with its reason. Names in backquotes and generated pages, which quote other texts, are not searched.
"""

from __future__ import annotations

import ast
import io
import re
import runpy
import tokenize
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from .test_house import CHECKOUT, files, parsed

# fmt: off
KINDS = {  # a kind of wording -> its pattern, and its cure
    "genitive": (r"\b(that|those|the ones?) of\b|\bof (which|whom)\b", "repeat the noun"),
    "negation": (r"(?<!there )\b(is|are|was|were) (no|(?-i:none))\b(?! (more|longer|less))", "is not a"),
    "speech": (
        r"\b(told|tells?|said|hears?|heard|ask(s|ed)?(?!\()|knows?)\b|"
        r"\bsays?\b(?! (that|so|how|why|when|which|what|where)\b)",
        "data is sent, received, returned or recorded"),
    "comment": (r"^#:? *(of|in|by|for|as|at)\s", "begin with a noun or a verb"),
    "quantity": (r"\b(so many|so long|at most so)\b", "name the quantity"),
    "result": (r"\bso that\b", "so"),
    "motion": (
        r"\b(goes on|go on|going on|beside|anew|in vain|all the same|(is|are) gone|stands(?! (by|for))|lies)\b",
        "continues, next to, again, without success, exists, is"),
    "person": (
        r"\b(nobody|somebody|everybody|whoever|anybody|no one|someone)\b", "name the node, the worker or the thread"),
    "failures": (r"\bthings (can )?go wrong\b", "a list: Failures:"),
    "order": (
        r"\ban? \w+ of (its|their) own\b|\b(in the place of|from begin to end|to the last byte)\b",
        "its own, instead of, from start to end"),
    "test": (r"^test_(what|who|whoever)_|^test_.{66}", "a subject, and at most 70 characters"),
}
# fmt: on
GENERATED = re.compile(
    r"docs/(findings|verdicts|articles|releases|conformance|editions|store-editions|store-deviations|autograd-upstream|"
    r"rpc-upstream|messages|protocols|ledger)\.md$|diagrams/generated/|CHANGELOG|docs/upstream/|tests/house/test_wording.py"
)
EXCEPTIONS_MAX = 12
shown: Any = cache(lambda: runpy.run_path(str(CHECKOUT / "tools" / "texts.py"))["texts"])


class Text(NamedTuple):
    """A text without line breaks, and its place."""

    path: str
    number: int
    text: str


def of_markdown(path: str, source: str) -> Iterator[Text]:
    code = False
    for number, line in enumerate(source.splitlines(), 1):
        fence = line.lstrip().startswith("```")
        code ^= fence
        if not (code or fence):
            yield Text(path, number, line.lstrip("# "))


def of_python(path: str, source: str, tree: ast.Module) -> Iterator[Text]:
    last = -1
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            continues = token.start[0] == last + 1 and not source.splitlines()[last - 1].strip().startswith("#:")
            yield Text(path, token.start[0], token.string.lstrip("#: ") if continues else token.string)
            last = token.start[0]
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node, clean=False) or ""
            yield from (Text(path, node.body[0].lineno + k, line) for k, line in enumerate(text.splitlines()))
        if isinstance(node, (ast.FunctionDef, ast.Assign)):
            name = node.name if isinstance(node, ast.FunctionDef) else ast.unparse(node.targets[0])
            yield from [Text(path, node.lineno, name)] * name.startswith("test_")


def of_file(path: Path) -> Iterator[Text]:
    name = path.relative_to(CHECKOUT).as_posix()
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return of_markdown(name, source)
    return iter([*of_python(name, source, parsed(path)), *(Text(name, *found) for found in shown()(path))])


@cache
def texts() -> list[Text]:
    paths = [p for p in files(".py", ".md") if not p.is_symlink() and not GENERATED.search(p.as_posix())]
    return [text for path in paths for text in of_file(path)]


def places(pattern: str, found: list[Text]) -> Iterator[Text]:
    """The texts in which a place of this pattern begins; it may end on the next line."""
    plain = [re.sub(r"`[^`]*`|\b[A-Z]{3,}\b", "", text.text).strip() for text in found]
    for k, text in enumerate(found):
        continues = found[k + 1 : k + 2] and found[k + 1][:2] == (text.path, text.number + 1)
        whole = f"{plain[k]} {plain[k + 1]}" if continues else plain[k]
        if any(at.start() < len(plain[k]) for at in re.finditer(pattern, whole, re.IGNORECASE)):
            yield text


@pytest.mark.parametrize("kind", KINDS)
def test_no_text_has_a_kind_of_wording_but_the_exceptions(kind: str) -> None:
    listed = tomllib.loads(Path(__file__).with_name("wording.toml").read_text(encoding="utf-8"))
    assert sum(map(len, listed.values())) < EXCEPTIONS_MAX and all(e["why"] for es in listed.values() for e in es)
    assert listed.keys() <= KINDS.keys()
    allowed = listed.get(kind, [])
    pattern, cure = KINDS[kind]
    refused = places(pattern, texts())
    found = {t: [e for e in allowed if e["file"] == t.path and e["text"] in t.text] for t in refused}
    assert [f"{t.path}:{t.number}: {t.text}" for t, by in found.items() if not by] == [], cure
    assert [e for e in allowed if all(e not in by for by in found.values())] == [], "no text has these any more"
