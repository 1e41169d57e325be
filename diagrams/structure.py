"""Classes of the runtime and the references between them, read from their source; nothing is imported.

Theory of operation. A declaration names classes and the files that have them. The source of each is parsed. An
attribute is a field of a dataclass, a slot, or what `__init__` sets. Its type is its annotation, the parameter's
annotation, or the class that is called. torch's classes are declared (`structures.toml`). A solid arrow goes from an
attribute to the class that its type names. A hollow arrow goes from a class to its base, or to a protocol if the class
has all its methods. A dashed arrow goes to a class that is only mentioned, if no other arrow leads there. A thick arrow
is a flow, which is declared: it goes from a class or attribute to the one that its decision or value leads to. A class,
attribute or file that does not exist is refused: a picture cannot outlive its code.
"""

from __future__ import annotations

import ast
import enum
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from trystate.model.errors import DeclarationError

from .markdown import code, prose, table_of
from .style import BODY, FONT, HEAD, INK, LOOKS, MUTED, PAPER, RULE, font, left, quote, slug, title

ROOT = Path(__file__).parents[1] / "impl"
LINE_MAX = 38  # characters of an attribute and its type; a longer type is on the next line, and is cut there
SOLID, MESSAGE = (look.colour for look in [*LOOKS.values()][::2])


@dataclass(frozen=True, slots=True)
class Structure:
    """Classes to draw: the classes of files below `impl` with the `others` that they use of torch, or torch's classes.

    With `hosts`, all of them are on each host, and `ends` names the two classes that are the ends of a message.
    """

    name: str
    title: str
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    torch: tuple[Shape, ...] = ()
    others: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    ends: tuple[str, str] | None = None
    joined: tuple[str, ...] = ()  # the attributes that both ends have
    message: str = ""  # the name of the id of a message, if no attribute of an end has it
    flows: tuple[tuple[str, str], ...] = ()  # (from, to), each `Class` or `Class.attribute`, drawn from left to right


@dataclass(slots=True)
class Shape:
    """A class as its source has it."""

    name: str
    file: str
    doc: str
    bases: tuple[str, ...] = ()
    methods: frozenset[str] = frozenset()
    mentions: frozenset[str] = frozenset()
    attributes: dict[str, str] = field(default_factory=dict)

    @property
    def is_protocol(self) -> bool:
        return "Protocol" in self.bases


class Link(enum.Enum):
    """The kinds of arrows between classes, with their styles."""

    HOLDS = f'color="{SOLID}"'
    IS_ONE = f'color="{INK}", dir=back, arrowtail=onormal'  # drawn from the other end: the base class is above
    MENTIONS = f'color="{MUTED}", style=dashed'
    FLOWS = f'color="{MESSAGE}", penwidth=2'


CAPTIONS = {
    Link.HOLDS: "attribute → class", Link.IS_ONE: "hollow: is one", Link.MENTIONS: "dashed: mentions it",
    Link.FLOWS: "thick: leads to",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Arrow:
    """From a class, or an attribute of it, to a class, or an attribute of it."""

    source: str
    attribute: str
    dest: str
    link: Link
    to: str = ""


def shapes(structure: Structure) -> dict[str, Shape]:
    """The classes of the structure, in its order.

    Raises:
        DeclarationError: a file, a class or an attribute that it names is not there.
    """
    found = {name: _shape(structure, file, name) for file, names in structure.files.items() for name in names}
    found |= {shape.name: shape for shape in structure.torch}
    for name in structure.ends or ():
        missing = {*structure.joined} - {*found[name].attributes}
        if missing:
            raise DeclarationError(f"{structure.name}: {name} has no {' and no '.join(sorted(missing))}")
    mentioned = frozenset[str]().union(*(shape.mentions for shape in found.values()))
    for name in structure.others:
        if name not in mentioned:
            raise DeclarationError(f"{structure.name}: no class mentions {name}")
        found[name] = Shape(name, "torch", "")
    for end in {end for flow in structure.flows for end in flow}:
        name, _, attribute = end.partition(".")
        if name not in found or (attribute and attribute not in found[name].attributes):
            raise DeclarationError(f"{structure.name}: a flow begins or ends at {end}, which is not there")
    return found


@cache
def _parsed(file: str) -> ast.Module:
    return ast.parse((ROOT / file).read_text(encoding="utf-8"))


def _shape(structure: Structure, file: str, name: str) -> Shape:
    if not (ROOT / file).is_file():
        raise DeclarationError(f"{structure.name}: there is no impl/{file}")
    node = next((n for n in _parsed(file).body if isinstance(n, ast.ClassDef) and n.name == name), None)
    if node is None:
        raise DeclarationError(f"{structure.name}: impl/{file} has no class {name}")
    methods = [n for n in node.body if isinstance(n, ast.FunctionDef)]
    return Shape(
        name,
        f"impl/{file}",
        (ast.get_docstring(node) or "").partition("\n\n")[0],
        tuple(_last(base) for base in node.bases),
        frozenset(m.name for m in methods if not m.name.startswith("_")),
        frozenset(_last(n) for n in ast.walk(node) if isinstance(n, ast.Name | ast.Attribute)),
        dict(_attributes(node, next((m for m in methods if m.name == "__init__"), None))),
    )  # fmt: skip


def _attributes(node: ast.ClassDef, begins: ast.FunctionDef | None) -> Iterator[tuple[str, str]]:
    """Each attribute with a type in the source."""
    for line in node.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            yield line.target.id, ast.unparse(line.annotation)
        elif isinstance(line, ast.Assign) and _last(line.targets[0]) == "__slots__":
            yield from ((name, "") for name in ast.literal_eval(line.value))
    if begins is None:
        return
    given = {a.arg: ast.unparse(a.annotation) for a in (*begins.args.args, *begins.args.kwonlyargs) if a.annotation}
    for part in ast.walk(begins):
        if isinstance(part, ast.AnnAssign) and _is_own(part.target):
            yield _last(part.target), ast.unparse(part.annotation)
        elif isinstance(part, ast.Assign):
            for target, value in _pairs(part):
                kind = _type(value, given)
                if isinstance(target, ast.Name):
                    given[target.id] = kind
                elif kind and _is_own(target):
                    yield _last(target), kind


def _pairs(line: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Each target with its value, of `a, b = c, d` and `a = b = c` too."""
    for target in line.targets:
        if isinstance(target, ast.Tuple) and isinstance(line.value, ast.Tuple):
            yield from zip(target.elts, line.value.elts, strict=False)
        else:
            yield target, line.value


def _is_own(target: ast.expr) -> bool:
    return isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"


def _type(value: ast.expr, given: Mapping[str, str]) -> str:
    """The type of an assigned value: of a parameter, the class that is called, or the enum of a member."""
    if isinstance(value, ast.Name):
        return given.get(value.id, "")
    if isinstance(value, ast.Call) and _last(value.func).lstrip("_")[:1].isupper():
        return _last(value.func)
    if isinstance(value, ast.ListComp):
        return f"list[{kind}]" if (kind := _type(value.elt, given)) else ""
    if isinstance(value, ast.Attribute) and _last(value.value)[:1].isupper() and value.attr.isupper():
        return _last(value.value)  # a member of an enum
    return ""


def _last(expr: ast.expr) -> str:
    """`Finalize` of `multiprocessing.util.Finalize[Any]`."""
    if isinstance(expr, ast.Subscript):
        return _last(expr.value)
    return expr.attr if isinstance(expr, ast.Attribute) else expr.id if isinstance(expr, ast.Name) else ""


def arrows(found: Mapping[str, Shape], flows: Iterable[tuple[str, str]] = ()) -> list[Arrow]:
    """The arrows between the classes."""
    drawn: list[Arrow] = []
    for begin, end in flows:
        (source, _, attribute), (dest, _, to) = begin.partition("."), end.partition(".")
        drawn.append(Arrow(source, attribute, dest, Link.FLOWS, to))
    for shape in found.values():
        for attribute, text in shape.attributes.items():
            names = set(_held(ast.parse(text, mode="eval").body)) if text else set[str]()
            drawn += [Arrow(shape.name, attribute, other, Link.HOLDS) for other in found if other in names]
        for other in found.values():
            implements = other.is_protocol and other is not shape and other.methods <= shape.methods
            if other.name in shape.bases or implements:
                drawn.append(Arrow(shape.name, "", other.name, Link.IS_ONE))
    for shape in found.values():
        there = _reached(shape.name, drawn)
        # Classes that lead to the most others come first.
        wanted = sorted(shape.mentions & {*found} - there, key=lambda name: (-len(_reached(name, drawn)), name))
        for name in wanted:
            if name not in there:
                drawn.append(Arrow(shape.name, "", name, Link.MENTIONS))
                there = _reached(shape.name, drawn)
    return drawn


def _held(kind: ast.expr) -> Iterator[str]:
    """The names in a type; a function holds none of the types that it takes and returns."""
    if isinstance(kind, ast.Subscript) and _last(kind) == "Callable":
        return
    if isinstance(kind, ast.Name | ast.Attribute):
        yield _last(kind)
    for part in ast.iter_child_nodes(kind):
        if isinstance(part, ast.expr):
            yield from _held(part)


def _reached(name: str, drawn: Iterable[Arrow]) -> set[str]:
    there, more = set[str](), {name}
    while more - there:
        there |= more
        more = {arrow.dest for arrow in drawn if arrow.source in there}
    return there


def structure_name(structure: Structure) -> str:
    """The name of the structure's files."""
    return f"structure-{slug(structure.name)}"


def structure_dot(structure: Structure) -> str:
    """The classes as boxes with their attributes, and arrows between them; with hosts, on each of them."""
    found = shapes(structure)
    drawn = arrows(found, structure.flows)
    towards = "LR" if structure.flows else "TB"
    caption = " · ".join(words for link, words in CAPTIONS.items() if any(arrow.link is link for arrow in drawn))
    lines = [
        f"digraph {quote(structure.name)} {{",
        f'  graph [rankdir={towards}, nodesep=0.25, ranksep=0.6, bgcolor=white, pad=0.25, fontname="{FONT}", '
        f"labelloc=t, newrank=true, label={title(structure.title, font(caption, colour=MUTED))}];",
        f'  node [shape=plain, fontname="{FONT}", fontsize=11, fontcolor="{INK}"];',
        f'  edge [fontname="{FONT}", fontsize=10, arrowsize=0.8, penwidth=1.3];',
    ]
    for k, host in enumerate(structure.hosts or ("",)):
        boxes = [f'  "{name} {k}" [label=<{_box(shape, drawn)}>];' for name, shape in found.items()]
        inner = [_arrow(a, k) for a in drawn]
        if host:
            lines += [
                f"  subgraph cluster_{k} {{",
                f'    graph [style="rounded,filled", color="{RULE}", fillcolor="{BODY}", margin=16, '
                f"label=<{font(host, size=13, bold=True)}>];",
                *(f"  {line}" for line in (*boxes, *inner)),
                "  }",
            ]
        else:
            lines += [*boxes, *inner]
    if structure.ends is not None:
        lines += _messages(structure, *structure.ends)
    return "\n".join([*lines, "}"]) + "\n"


def _arrow(arrow: Arrow, host: int) -> str:
    side = "e" if arrow.link is Link.FLOWS else "_"
    port = f":{quote(arrow.attribute)}:{side}" if arrow.attribute else ""
    to = f":{quote(arrow.to)}:w" if arrow.to else ""
    ends = [f'"{arrow.source} {host}"{port}', f'"{arrow.dest} {host}"{to}']
    return f"  {' -> '.join(reversed(ends) if arrow.link is Link.IS_ONE else ends)} [{arrow.link.value}];"


def _messages(structure: Structure, one: str, other: str) -> Iterator[str]:
    """Between two hosts, a message has one end on each."""
    label = font(f"one {structure.message or ' and '.join(structure.joined)}", colour=MESSAGE)
    for k in range(len(structure.hosts)):
        there = (k + 1) % len(structure.hosts)
        yield (
            f'  "{one} {k}" -> "{other} {there}" [color="{MESSAGE}", penwidth=2.2, dir=none, constraint=false, '
            f"label=<{label}>];"
        )


def _box(shape: Shape, drawn: Iterable[Arrow]) -> str:
    where = shape.file if shape.file.startswith("impl/") else shape.file.rpartition("/")[2]
    heads = left([font(shape.name, size=12, bold=True), font(where, size=9, colour=MUTED)])
    rows = [f'<tr><td bgcolor="{HEAD}">{heads}</td></tr>']
    held = {arrow.attribute for arrow in drawn if arrow.source == shape.name}
    held |= {arrow.to for arrow in drawn if arrow.dest == shape.name}
    for name, text in shape.attributes.items():
        lines = [f"{name}: {text}" if text else name]
        if len(lines[0]) > LINE_MAX:
            kind = text if len(text) < LINE_MAX else text[: LINE_MAX - 2] + "…"
            lines = [f"{name}:", f"\N{NO-BREAK SPACE}\N{NO-BREAK SPACE}{kind}"]
        port = f" port={quote(name)}" if name in held else ""
        rows.append(f'<tr><td align="left"{port}>{left((font(x, bold=name in held) for x in lines), 0)}</td></tr>')
    return (
        f'<table border="1" cellborder="0" cellspacing="0" cellpadding="3" bgcolor="{PAPER}" color="{RULE}">'
        f"{''.join(rows)}</table>"
    )


def structure_page(structure: Structure) -> str:
    """A page for one structure: the picture, its classes, and each arrow in words."""
    found = shapes(structure)
    source = "As torch 2.13 has them." if structure.torch else "Read from the source of the classes."
    words = {Link.HOLDS: "holds", Link.IS_ONE: "is one", Link.MENTIONS: "mentions it", Link.FLOWS: "leads to"}
    classes = ((code(s.name), code(s.file), prose(s.doc) or "torch's") for s in found.values())
    lines = (
        (code(a.source), code(a.attribute) if a.attribute else "", words[a.link],
         code(f"{a.dest}.{a.to}" if a.to else a.dest))
        for a in arrows(found, structure.flows)
    )  # fmt: skip
    return (
        f"# {prose(structure.title)}\n\n{source}\n\n"
        f"![structure]({structure_name(structure)}.svg)\n\n## Classes\n\n"
        f"{table_of(['class', 'file', 'what it is'], classes)}\n## Arrows\n\n"
        f"{table_of(['class', 'attribute', '', 'class'], lines)}"
    )
