"""Which line of a test an error has to blame: the one that ends in `# blamed: <marker>`."""

from __future__ import annotations

import sys


def blamed(marker: str) -> str:
    """`file:line: ` of the marked line in the module that asks, with which a DeclarationError begins."""
    path = sys._getframe(1).f_code.co_filename
    with open(path, encoding="utf-8") as file:
        lines = [number for number, text in enumerate(file, 1) if text.rstrip().endswith(f"# blamed: {marker}")]
    assert len(lines) == 1, f"{marker!r} marks {len(lines)} lines of {path}"
    return f"{path}:{lines[0]}: "
