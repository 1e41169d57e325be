"""The hooks of mkdocs.yml: the pages that docs/ does not hold itself.

Theory of operation. A page of docs/ can be read in the repository too: its links are relative paths in the
repository. `on_files` adds to the site the pages at the top of the repository (`TOP`), all that
`trystate diagram` draws, and each other file that a page links to, as text below source/. `on_page_markdown` then
rewrites each link that leaves docs/ to the place in the site, and makes a link of each `trystate diagram NAME`. A link
to a file that does not exist stays as it is, and the strict build fails on it.

Graphviz draws the Mermaid charts while the site is built, so a reader's browser fetches no script. The charts on the
pictures' pages stay text, which may be copied: their pictures are above them.

Generated pages are `command_line` from the parser, `bibliography` from the citations of the models, the page of the
articles, and a report below upstream/ from each script of a replay, to which a link to the script leads. The pictures
are drawn into build/pictures, which takes a minute, unless the environment variable TRYSTATE_PICTURES names the folder
of a `trystate diagram --out`. The file that `trystate page` has written becomes a part of the site, where
TRYSTATE_PAGE names it.

mkdocs calls each function `on_...` by its name.
"""

from __future__ import annotations

import argparse
import ast
import base64
import contextlib
import os
import posixpath
import re
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Container, Iterator
from functools import cache
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from trystate import registry
from trystate.cli import parser
from trystate.diagrams import render
from trystate.property_tests import replays

ROOT = Path(__file__).resolve().parents[1]
TOP = {"ARCHITECTURE.md": "architecture.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md",
       "SECURITY.md": "security.md"}  # fmt: skip
ARTICLES = runpy.run_path(str(ROOT / "docs" / "articles.py"))
PICTURES = "diagrams/generated"
DRAWN = os.environ.get("TRYSTATE_PICTURES", "")  # a folder of `trystate diagram --out`
MODELS = os.environ.get("TRYSTATE_PAGE", "")  # a file of `trystate page`
SCRIPTS = "property_tests/replays"
EMBEDDED = "page/models.html"  # its place in the site
FRAME = """\
[The page of all systems, on its own](page/models.html)

<iframe src="models.html" title="models, runs and findings" width="100%" height="800" loading="lazy"></iframe>
"""
PLACE_OF_MODELS = "<!-- the page itself, in the site -->\n"
FENCE = re.compile(r"^ *```.*?^ *```[ \t]*$", re.M | re.S)
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")
MERMAID = re.compile(r"^```mermaid\n(.*?)^```[ \t]*$", re.M | re.S)
NODE = re.compile(r'(\w+)\[\(?("[^"]*")\)?\]')
SHAPES = {  # lines of a chart -> DOT: lines of a flowchart, then of a state chart
    r"subgraph (\w+)\[(.*)\]": 'subgraph "cluster_{0}" {{ label={1}; "{0}" [shape=point style=invis width=0]',
    r"end": "}}",
    r'(\w+) -[-.] ("[^"]*") [-.]-*> (\w+)': '"{0}" -> "{2}" [label={1}]',
    r'state ("[^"]*") as (\w+)': '"{1}" [label={0}]',
    r"\[\*\] --> (\w+)": '"start" [shape=point]; "start" -> "{0}"',
    r"(\w+) --> (\w+) : (.*)": '"{0}" -> "{1}" [label="{2}"]',
    r"(\w+(?: --> \w+)*)": "{0}",
    r"(?:flowchart \w+|stateDiagram-v2)": "",
}
DRAWS = re.compile(r"`trystate diagram ([\w-]+)`")
OPTION = re.compile(r"(?<![\w`-])(--\w[\w-]*)(?=[^`\n]*(?:`[^`\n]*`[^`\n]*)*$)", re.M)  # outside of `code`
NOT_SEARCHED = re.compile("(upstream|diagrams|source)/|(verdicts|changelog)[.]md")  # a search is for pages that explain


@event_priority(100)  # before mkdocstrings reads its options
def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Lead mkdocstrings to the modules."""
    config.plugins["mkdocstrings"].config["handlers"]["python"]["paths"] = [str(ROOT)]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files from outside of docs/."""
    for path, uri in TOP.items():
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / path)))
    for picture in sorted(_pictures().glob("*")):
        if picture.suffix in (".md", ".svg"):
            files.append(File.generated(config, f"diagrams/{picture.name}", abs_src_path=str(picture)))
    files.append(File.generated(config, "command-line.md", content=command_line()))
    files.append(File.generated(config, "bibliography.md", content=bibliography()))
    for finding in registry.findings().values():
        if (script := replays.script(finding)).is_file():
            files.append(File.generated(config, f"upstream/{script.stem}.md", content=replays.report(finding)))
    files.append(File.generated(config, "articles.md", content=ARTICLES["page"]()))
    if MODELS:
        files.append(File.generated(config, EMBEDDED, abs_src_path=str(ROOT / MODELS)))
    for path in sorted({path for file in files.documentation_pages() for path in _targets(file)}):
        uri = _uri(path)
        if uri.startswith("source/") and (ROOT / path).is_file() and uri not in files.src_uris:
            files.append(File.generated(config, uri, abs_src_path=str(ROOT / path)))
    return files


@cache  # the server of mkdocs builds the site again and again
def _pictures() -> Path:
    """The folder with all pictures."""
    if DRAWN:
        return ROOT / DRAWN
    folder = ROOT / "build" / "pictures"
    folder.parent.mkdir(exist_ok=True)
    subprocess.run([sys.executable, "-m", "trystate", "diagram", "--out", folder], check=True, cwd=ROOT)
    return folder


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the links of a page that leave docs/."""
    if NOT_SEARCHED.match(page.file.src_uri):
        page.meta["search"] = {"exclude": True}
    if not page.file.src_uri.startswith("diagrams/"):
        markdown = MERMAID.sub(lambda chart: picture(dot(chart[1])), markdown)
    text = rewritten(_with_pictures(markdown, files.src_uris), page.file.src_uri, files.src_uris)
    return text.replace(PLACE_OF_MODELS, FRAME) if MODELS and page.file.src_uri == "page.md" else text


def dot(chart: str) -> str:
    """A chart in Mermaid as DOT.

    Raises:
        PluginError: it has a line of a kind that `SHAPES` does not have.
    """
    lines = []
    for line in filter(None, map(str.strip, chart.splitlines())):
        lines += [f"{name} [label={label}]" for name, label in NODE.findall(line) if not line.startswith("subgraph")]
        rest = line if line.startswith("subgraph") else NODE.sub(r"\1", line)
        for shape, written in SHAPES.items():
            if found := re.fullmatch(shape, rest):
                lines.append(written.format(*found.groups()))
                break
        else:
            raise PluginError(f"docs/website.py draws no such line of a chart: {line}")
    body = "\n".join(lines).replace("<br/>", "\\n").replace("-->", "->").replace("#35;", "#")
    look = "fontname=sans node [shape=box style=rounded fontname=sans fontsize=11] edge [fontname=sans fontsize=9]"
    return f"digraph {{ rankdir=LR bgcolor=white compound=true {look}\n{body}\n}}"


def picture(graph: str) -> str:
    """DOT text as a picture within the page."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chart.svg"
        render(graph, path)
        data = base64.b64encode(path.read_bytes()).decode()
    return f'<img alt="chart" src="data:image/svg+xml;base64,{data}">'


def _with_pictures(markdown: str, uris: Container[str]) -> str:
    """The text, in which each command that draws a picture is a link to the picture."""

    def linked(command: re.Match[str]) -> str:
        there = f"diagrams/{command[1]}.md" in uris
        return f"[{command[0]}](../{PICTURES}/{command[1]}.md)" if there else command[0]

    return DRAWS.sub(linked, markdown)


def rewritten(markdown: str, uri: str, uris: Container[str]) -> str:
    """The text of a page, with its links changed to the places in the site."""
    folder, home = posixpath.dirname(_path(uri)), posixpath.dirname(uri)

    def site(found: re.Match[str]) -> str:
        there = _uri(posixpath.normpath(posixpath.join(folder, found[1])))
        return posixpath.relpath(there, home or ".") if there in uris else found[1]

    pieces = re.split(f"({FENCE.pattern})", markdown, flags=re.M | re.S)
    return "".join(piece if at % 2 else LINK.sub(site, piece) for at, piece in enumerate(pieces))


def _path(uri: str) -> str:
    """The path in the repository of a page of the site."""
    for path, top in TOP.items():
        if uri == top:
            return path
    return f"{PICTURES}/{uri.removeprefix('diagrams/')}" if uri.startswith("diagrams/") else f"docs/{uri}"


def _uri(path: str) -> str:
    """The place in the site of a file of the repository."""
    if path in TOP:
        return TOP[path]
    if path == "README.md":
        return "index.md"
    if (ROOT / path).is_dir():
        return TOP["ARCHITECTURE.md"]  # describes the folders
    if path.startswith(f"{SCRIPTS}/"):
        return f"upstream/{path.removeprefix(f'{SCRIPTS}/').removesuffix('.py')}.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"diagrams/{path.removeprefix(PICTURES + '/')}" if path.startswith(PICTURES) else f"source/{path}.txt"


def _targets(file: File) -> Iterator[str]:
    """The paths in the repository that a page links to."""
    folder = posixpath.dirname(_path(file.src_uri))
    for found in LINK.finditer(FENCE.sub("", file.content_string)):
        yield posixpath.normpath(posixpath.join(folder, found[1]))


def command_line() -> str:
    """The page of the commands: each with its description, usage and options, as `--help` has them."""
    top = parser()
    text = f"# The command line\n\n{_described(top)}\n"
    for command in _commands(top):
        text += f"\n## `{command.prog}`\n\n{_described(command)}\n"
    return text


def _commands(of: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The commands of a parser, each followed by its own commands."""
    for action in of._actions:  # argparse has no public way to its commands
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield command
                yield from _commands(command)


def _described(command: argparse.ArgumentParser) -> str:
    """The description as Markdown, the rest as it is printed."""
    rest = argparse.ArgumentParser(command.prog, add_help=False, formatter_class=_Wide)
    rest._actions, rest._action_groups = command._actions, command._action_groups
    rest._mutually_exclusive_groups, rest.epilog = command._mutually_exclusive_groups, command.epilog
    words = OPTION.sub(r"`\1`", command.description or "")
    return f"{words}\n```text\n{rest.format_help()}```\n"


class _Wide(argparse.RawDescriptionHelpFormatter):
    """A formatter as wide as a block of a page, independent of the terminal."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28, width=100)


def bibliography() -> str:
    """The page of the citations: each source of docs/sources.md, its cited parts, and the declarations that cite it."""
    cited = citations()
    text = (
        "# Bibliography\n\n"
        "Each citation of a step, a property, a table or a row of the models (`cite=` in the code), with the "
        "declarations that have it. [Sources](sources.md) says what each name stands for; "
        "[The articles, item by item](articles.md) goes the other way, from a section to its declarations. "
        "Papers are named in [the sources](sources.md#papers) and at the head of the module whose "
        "algorithm follows them.\n"
    )
    by_source: dict[str, list[str]] = {}
    for cite in sorted(cited):
        by_source.setdefault(_source(cite), []).append(cite)
    if lost := by_source.pop("", None):
        raise PluginError(f"docs/sources.md explains no name at the beginning of {lost}")
    for name, its in sorted(by_source.items(), key=lambda item: ("." in item[0], item[0].lower())):
        text += f"\n## {name}\n\n| citation | declarations |\n| --- | --- |\n"
        text += "".join(f"| {_cell(cite)} | {', '.join(sorted(cited[cite]))} |\n" for cite in its)
    return text


@cache
def sources() -> frozenset[str]:
    """The names in the first cells of the tables of docs/sources.md."""
    text = (ROOT / "docs" / "sources.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| (`[^|]*) \|", text, re.M)
    return frozenset(name for cell in cells for name in re.findall("`([^`]+)`", cell))


def _source(cite: str) -> str:
    """The longest name of a source that a citation begins with; empty without one."""
    return max((name for name in sources() if re.match(rf"{re.escape(name)}(?![\w.-])", cite)), key=len, default="")


def _cell(text: str) -> str:
    """A citation as it is, in a table of Markdown."""
    return re.sub(r"([\\|*_<>\[\]`~])", r"\\\1", text)


@cache
def citations() -> dict[str, frozenset[str]]:
    """Each citation in model/, and the declarations that have it, as links.

    A citation is a `cite=` or the second argument of a `row`: a text, the name of a text, or an expression of both.
    """
    found: dict[str, set[str]] = {}
    for file in sorted((ROOT / "model").rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        path = file.relative_to(ROOT)
        texts = [node for node in tree.body if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)]
        constants = {name.id: node.value.value for node in texts for name in node.targets if isinstance(name, ast.Name)}
        for node, name in ARTICLES["around"](tree, ""):
            match node:
                case ast.Call(func=ast.Name(id="row"), args=[_, value]) | ast.keyword(arg="cite", value=value):
                    with contextlib.suppress(NameError):  # a parameter
                        if text := eval(ast.unparse(value), {**constants}):
                            found.setdefault(text, set()).add(f"[{path.parent.name}/{path.stem}.{name}](../{path})")
    return {cite: frozenset(links) for cite, links in found.items()}
