"""From DOT to SVG or PNG, with whichever Graphviz is at hand. The only module here that runs a program."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shutil
from pathlib import Path
from typing import Literal

import graphviz  # type: ignore[import-untyped]

from trystate.model.errors import UnavailableError, UsageError

Format = Literal["svg", "png"]
FORMATS: tuple[Format, ...] = ("svg", "png")
PYGRAPHVIZ_MAJOR_MIN = 2  # the first whose wheel carries Graphviz itself


def render(dot: str, path: str | Path, format: Format = "svg") -> None:
    """Draw DOT text into a file.

    Raises:
        UnavailableError: neither `dot` nor pygraphviz is installed; nothing is written.
        UsageError: no such format.
    """
    if format not in FORMATS:
        raise UsageError(f"no format {format!r}: choose {' or '.join(FORMATS)}")
    program = _program()
    picture = _with_dot(dot, format) if program == "dot" else _with_pygraphviz(dot, format)
    Path(path).write_bytes(picture)


def plain(dot: str) -> str:
    """The layout of DOT text in Graphviz's form `plain`: places of nodes and edges, in inches.

    Raises:
        UnavailableError: neither `dot` nor pygraphviz is installed.
    """
    return (_with_dot(dot, "plain") if _program() == "dot" else _with_pygraphviz(dot, "plain")).decode()


def renderer_name() -> str:
    """The program or package that `render` would draw with, and its version.

    Raises:
        UnavailableError: nothing that draws is installed.
    """
    if _program() == "dot":
        return f"dot {'.'.join(map(str, graphviz.version()))}"
    return f"pygraphviz {importlib.metadata.version('pygraphviz')}"


def _program() -> Literal["dot", "pygraphviz"]:
    if shutil.which("dot") is not None:
        return "dot"
    old = ""
    if importlib.util.find_spec("pygraphviz") is not None:
        version = importlib.metadata.version("pygraphviz")
        if int(version.split(".")[0]) >= PYGRAPHVIZ_MAJOR_MIN:
            return "pygraphviz"
        old = f" (pygraphviz {version} is too old: it does not carry Graphviz)"
    raise UnavailableError(
        f"no Graphviz to draw with{old}: pip install 'trystate[diagrams]', "
        "or put the program dot on the PATH (apt-get install graphviz, brew install graphviz)"
    )


def _with_dot(dot: str, format: str) -> bytes:
    picture: bytes = graphviz.pipe("dot", format, dot.encode())
    return picture


def _with_pygraphviz(dot: str, format: str) -> bytes:
    import pygraphviz  # type: ignore[import-untyped]

    graph = pygraphviz.AGraph(string=dot)
    try:
        picture: bytes = graph.draw(format=format, prog="dot")
    finally:
        graph.close()
    return picture
