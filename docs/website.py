"""The hooks of mkdocs.yml: the pages that docs/ does not hold itself.

Theory of operation. A page of docs/ is written to be read in the repository too, so that its links are relative paths
in the repository. `on_files` adds to the site the pages at the top of the repository (`TOP`), the pages and pictures of
diagrams/generated, and each other file that a page links to, as text below source/. `on_page_markdown` then rewrites
each link that leaves docs/ to the place in the site. A link to a file that is not there stays as it is, and the strict
build fails on it.

The modules of the package are read from a folder of symbolic links in which they lie as in the wheel, since
pyproject.toml maps top-level folders to one import name. mkdocs calls each function `on_...` by its name.
"""

from __future__ import annotations

import posixpath
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
TOP = {"ARCHITECTURE.md": "architecture.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md",
       "SECURITY.md": "security.md"}  # fmt: skip
PICTURES = "diagrams/generated"
FENCE = re.compile(r"^ *```.*?^ *```[ \t]*$", re.M | re.S)
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")
NOT_SEARCHED = re.compile("(upstream|diagrams|source)/|(verdicts|changelog)[.]md")  # a search is for pages that explain

_package = tempfile.TemporaryDirectory(prefix="trystate-site-")  # removed when mkdocs ends


@event_priority(100)  # before mkdocstrings reads its options
def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Lay the modules out as the wheel does, for mkdocstrings."""
    package = Path(_package.name) / "trystate"
    if not package.is_dir():
        package.mkdir()
        for source in (*(ROOT / "trystate").iterdir(), *map(ROOT.joinpath, ("model", "impl", "diagrams", "monitor",
                       "property_tests"))):  # fmt: skip
            (package / source.name).symlink_to(source)
    config.plugins["mkdocstrings"].config["handlers"]["python"]["paths"] = [_package.name]  # type: ignore[index]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files from outside of docs/."""
    for path, uri in TOP.items():
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / path)))
    for picture in sorted((ROOT / PICTURES).glob("*")):
        if picture.suffix in (".md", ".svg"):
            files.append(File.generated(config, f"diagrams/{picture.name}", abs_src_path=str(picture)))
    for path in sorted({path for file in files.documentation_pages() for path in _targets(file)}):
        uri = _uri(path)
        if uri.startswith("source/") and (ROOT / path).is_file() and uri not in files.src_uris:
            files.append(File.generated(config, uri, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the links of a page that leave docs/."""
    uri = page.file.src_uri
    if NOT_SEARCHED.match(uri):
        page.meta["search"] = {"exclude": True}
    folder, home = posixpath.dirname(_path(uri)), posixpath.dirname(uri)

    def site(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, found[1]))
        there = _uri(path)
        return posixpath.relpath(there, home or ".") if there in files.src_uris else found[1]

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
        return TOP["ARCHITECTURE.md"]  # says what lies in which folder
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"diagrams/{path.removeprefix(PICTURES + '/')}" if path.startswith(PICTURES) else f"source/{path}.txt"


def _targets(file: File) -> Iterator[str]:
    """The paths in the repository that a page links to."""
    folder = posixpath.dirname(_path(file.src_uri))
    for found in LINK.finditer(FENCE.sub("", file.content_string)):
        yield posixpath.normpath(posixpath.join(folder, found[1]))
