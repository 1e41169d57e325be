"""The documentation site: its navigation, its generated pages, and the mistakes that its strict build catches.

The gate builds the whole site (`.ci/run`), which takes half a minute; here the same settings build a site of two pages.
"""

from __future__ import annotations

import base64
import re
import runpy
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import trystate
from trystate import language
from trystate.diagrams import state_chart_mermaid

mkdocs = pytest.importorskip("mkdocs", reason="the extra docs is not installed")

from mkdocs.config import load_config  # noqa: E402

CHECKOUT = Path(__file__).resolve().parents[3]
DOCS = CHECKOUT / "docs"
pytestmark = pytest.mark.skipif(not (CHECKOUT / "mkdocs.yml").is_file(), reason="needs a clone")


@cache
def website() -> Any:
    return SimpleNamespace(**runpy.run_path(str(DOCS / "website.py")))


def settings(**changed: Any) -> Any:
    return load_config(str(CHECKOUT / "mkdocs.yml"), strict=True, **changed)


def listed(nav: Any) -> Iterator[str]:
    """The pages of a navigation, from the top to the bottom."""
    for each in nav.values() if isinstance(nav, dict) else nav:
        yield from [each] if isinstance(each, str) else listed(each)


def test_every_page_is_in_the_navigation_once() -> None:
    pages = [*listed(settings().nav)]
    assert {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")} <= {*pages}
    assert len({*pages}) == len(pages)


@pytest.mark.parametrize(
    ("page", "link", "there"),
    [
        ("agent.md", "../ARCHITECTURE.md", "architecture.md"),
        ("agent.md", "../diagrams/generated/join.md", "diagrams/join.md"),
        ("agent.md", "../impl", "architecture.md"),
        ("agent.md", "../impl/agent/core.py", "source/impl/agent/core.py.txt"),
        ("upstream/README.md", "../../model/errors.py", "../source/model/errors.py.txt"),
        ("upstream/README.md", "../../property_tests/replays/S03-get-races-delete.py", "S03-get-races-delete.md"),
        ("diagrams/join.md", "join.svg", "join.svg"),
        ("architecture.md", "docs/api.md", "api.md"),
        ("architecture.md", "README.md", "index.md"),
        ("agent.md", "../impl/no_such.py", "../impl/no_such.py"),
    ],
)
def test_a_link_leads_to_the_place_in_the_site(page: str, link: str, there: str) -> None:
    """A link to a missing file stays unchanged, and fails the build."""
    uris = {
        "architecture.md",
        "diagrams/join.md",
        "diagrams/join.svg",
        "api.md",
        "index.md",
        "source/impl/agent/core.py.txt",
        "source/model/errors.py.txt",
        "upstream/S03-get-races-delete.md",
    }
    fence = f"```text\n[a]({link})\n```\n"
    assert website().rewritten(f"[a]({link}#b)\n{fence}", page, uris) == f"[a]({there}#b)\n{fence}"


def test_the_page_of_commands_has_every_command_and_option() -> None:
    page = website().command_line()
    for word in ("## `trystate verify`", "## `trystate store proxy`", "--max-faults N", "--rdzv-endpoint", "examples:"):
        assert word in page, word


def test_the_bibliography_leads_from_each_source_to_the_declarations() -> None:
    page = website().bibliography()
    assert "\n## dynamic_rendezvous.py\n" in page and "\n## elastic-node-change\n" in page
    assert re.search(r"^\| rendezvous-engine 3\.2\.\d.* \| \[\w+/\w+\.\w+\]\(\.\./model/rendezvous/", page, re.M)


@pytest.mark.parametrize(
    ("program", "cited"),
    [
        ("@step(cite='a.py: b')\ndef c(): ...", ["a.py: b"]),
        ("A = 'a.py'\n@step(cite=A + ': b')\ndef c(): ...", ["a.py: b"]),
        ("A = 'a.py'\n@step(cite=f'{A}: b')\ndef c(): ...", ["a.py: b"]),
        ("c = Table(rows=[row(1, 'a.py', x=True), row(2)])", ["a.py"]),
    ],
)
def test_a_citation_is_read_in_each_form(
    program: str, cited: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "some.py").write_text(program, encoding="utf-8")
    read = website().citations.__wrapped__
    monkeypatch.setitem(read.__globals__, "ROOT", tmp_path)
    assert read() == {cite: frozenset({"[model/some.c](../model/some.py)"}) for cite in cited}


def test_the_reference_of_the_language_has_every_name_once() -> None:
    named = re.findall(r"^::: trystate\.language\.(\w+)$", (DOCS / "api" / "language.md").read_text(), re.M)
    assert sorted(named) == sorted(language.__all__)


def test_every_public_module_has_a_page() -> None:
    pages = "".join(path.read_text(encoding="utf-8") for path in (DOCS / "api").glob("*.md"))
    modules = [name for name in trystate.__all__ if name.islower() and not name.startswith("_")]
    assert [name for name in modules if f"::: trystate.{name}" not in pages] == []


CHARTS = sorted(
    path for path in (*CHECKOUT.glob("*.md"), *DOCS.glob("*.md")) if "```mermaid" in path.read_text("utf-8")
)


@pytest.mark.parametrize("path", CHARTS, ids=lambda path: path.name)
def test_a_chart_of_a_page_is_drawn_while_the_site_is_built(path: Path) -> None:
    for chart in website().MERMAID.findall(path.read_text(encoding="utf-8")):
        graph = website().dot(chart)
        labels = re.findall(r'"([^"<#]*)[^"]*"', chart)
        assert labels and [label for label in labels if label not in graph] == []
        data = re.fullmatch(r'<img alt="chart" src="data:image/svg\+xml;base64,(.*)">', website().picture(graph))
        assert data and b"</svg>" in base64.b64decode(data[1])


def test_the_site_has_the_theme_fetch_no_script_for_charts() -> None:
    assert "custom_fences" not in str(settings().mdx_configs.get("pymdownx.superfences"))


def test_the_chart_of_the_tutorial_is_that_of_its_model() -> None:
    text = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    (model,) = re.findall(r"^```python\n(# lease\.py\n.*?)^```", text, re.M | re.S)
    (chart,) = re.findall(r"^```mermaid\n(.*?)^```", text, re.M | re.S)
    names: dict[str, Any] = {"__name__": "lease"}
    exec(compile(model, "lease.py", "exec"), names)
    assert chart == state_chart_mermaid(names["Lease"]().machines["lease"])
