"""Prints the texts that users see, by file and line, to be read from top to bottom: python tools/texts.py [FOLDER...].

A text is an argument of an exception, of a logger or of a function that prints, the help of an option, or a constant of
a module. `{...}` stands for a value.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
FOLDERS = ("impl", "monitor", "model", "trystate", "diagrams", "page", "property_tests/harness")
SHOWN = {"print", "warn", "warning", "info", "error", "exception", "critical", "debug", "write", "exit", "say", "log"}


def text_of(node: ast.expr) -> str:
    """The text of a literal or of an f-string; empty for anything else."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(text_of(v) if isinstance(v, ast.Constant) else "{...}" for v in values)
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return text_of(left) + text_of(right)
        case ast.IfExp(body=body, orelse=other):
            return " | ".join(filter(None, (text_of(body), text_of(other))))
    return ""


def is_shown(call: ast.Call) -> bool:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in SHOWN or name.endswith(("Error", "Exception", "Warning")) or name[0].isupper()
    return False


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """The texts of a file with their lines, in order."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and " " in (text := text_of(node.value)) and "\n" not in text.strip():
            yield node.lineno, text
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            shown = [*node.args, *(k.value for k in node.keywords)] if is_shown(node) else ()
            helps = [k.value for k in node.keywords if k.arg in ("help", "epilog", "description")]
            for argument in {*shown, *helps}:
                if " " in (text := text_of(argument)):
                    yield argument.lineno, text


def main() -> None:
    for folder in sys.argv[1:] or FOLDERS:
        for path in sorted((CHECKOUT / folder).rglob("*.py")):
            if found := sorted(set(texts(path))):
                print(f"\n## {path.relative_to(CHECKOUT)}\n")
                for line, text in found:
                    print(f"- {line}: {' '.join(text.split())}")


if __name__ == "__main__":
    main()
