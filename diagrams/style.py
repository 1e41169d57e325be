"""The style of every picture, and the escaping of its texts. Colour never carries a meaning alone."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

from trystate.model.language import Kind

FONT = "Arial"
INK, MUTED, PAPER = "#1b1f24", "#57606a", "#ffffff"
HEAD, BODY, RULE = "#dfe7ef", "#f6f8fa", "#afb8c1"
BLUE, SAND = "#0072B2", "#f0e0b0"


@dataclass(frozen=True, slots=True)
class Look:
    """The style of a kind of step; `sample` is its line as text, for a legend."""

    colour: str
    line: str
    sample: str


# Blue and vermilion are from Okabe and Ito's colour-blind safe palette; the line style repeats the meaning.
LOOKS = {
    Kind.PROTOCOL:    Look("#0072B2", "solid",  "———"),
    Kind.ENVIRONMENT: Look("#7a4a00", "dashed", "– – –"),
    Kind.FAULT:       Look("#D55E00", "dotted", "· · · ·"),
}  # fmt: skip
KINDS = tuple(Kind)

HEADING_WIDTH = 72  # characters a line
# Widths in units of the font size; a capital has 0.72, other letters have 0.56.
WIDTHS = (("→mw%@MW", 0.9), ("ijlI .,:;|![]/\N{NO-BREAK SPACE}", 0.28), ("frt()-", 0.34), ("cksvxyz", 0.5))

VERMILION_TINT = "#f4c7ab"
TINTS = ("#b7e1cd", "#fbe3a6", "#cfe3f3", "#e9d3e4", "#e6e6e6", "#d9ecf7", "#f7f3b0")


def wrap(text: str, width: int) -> list[str]:
    """Lines of at most `width` characters; a longer word stays whole."""
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


def clip(lines: list[str], limit: int) -> list[str]:
    """At most `limit` lines, the last one ending in an ellipsis if any were left out."""
    return lines if len(lines) <= limit else [*lines[: limit - 1], lines[limit - 1] + " …"]


def quote(text: str) -> str:
    """A DOT identifier."""
    return '"' + " ".join(text.split()).replace("\\", "\\\\").replace('"', '\\"') + '"'


CONTROL = dict.fromkeys({*range(32)} - {*b"\t\n\r"}, "\ufffd")


def font(text: str, *, size: int = 10, colour: str = INK, bold: bool = False, italic: bool = False) -> str:
    """Text for an HTML-like label, escaped."""
    # Graphviz refuses an empty text with markup, and control characters.
    inner = escape(text.translate(CONTROL)) or " "
    if italic:
        inner = f"<i>{inner}</i>"
    if bold:
        inner = f"<b>{inner}</b>"
    return f'<font point-size="{size}" color="{colour}">{inner}</font>'


def left(lines: Iterable[str], padding: int = 1) -> str:
    """A borderless table of left-aligned lines, each already HTML."""
    rows = "".join(f'<tr><td align="left">{line}</td></tr>' for line in lines)
    return f'<table border="0" cellborder="0" cellspacing="0" cellpadding="{padding}">{rows}</table>'


def title(heading: str, *below: str) -> str:
    """A graph's label: a bold heading and small lines below, these already HTML."""
    head = "<br/>".join(font(line, size=15, bold=True) for line in _even(heading, HEADING_WIDTH))
    lines = "".join(f"<br/>{line}" for line in below if line)
    return f"<{head}{lines}<br/> >"


def _even(text: str, width: int) -> list[str]:
    """As few lines as `wrap` makes, and of about the same length."""
    lines = wrap(text, width)
    narrower = (wrap(text, k) for k in range(max(len(text) // max(len(lines), 1), 1), width))
    return next((even for even in narrower if len(even) <= len(lines)), lines)


def points(text: str, size: int = 10, *, bold: bool = False) -> float:
    """The approximate width of a text in Arial, in points: the widths of its letters, a tenth more if it is bold."""
    em = sum(next((w for letters, w in WIDTHS if c in letters), 0.72 if c.isupper() else 0.56) for c in text)
    return em * size * (1.1 if bold else 1.0)


def legend(kinds: Iterable[Kind]) -> str:
    """One line that explains the line styles; empty if there is only one."""
    used = set(kinds)
    if len(used) < 2:
        return ""
    samples = (font(f"{LOOKS[k].sample} {k.value}", colour=LOOKS[k].colour, bold=True) for k in KINDS if k in used)
    return " &#160; &#160; ".join(samples)


def slug(text: str) -> str:
    """A file name without its ending: `TwoPhase` becomes `two-phase`."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", text)
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-") or "unnamed"
