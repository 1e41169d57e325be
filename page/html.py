"""The page as one file: the built skeleton (`page/built.html`, from `page/source`) with the data put in.

The data is JSON. It is deflated and written in base64 where that is shorter; the browser inflates it.
"""

from __future__ import annotations

import base64
import json
import zlib
from functools import cache
from pathlib import Path

from .contents import Contents
from .export import export

SKELETON = Path(__file__).parent / "built.html"
PLACE = "<!--DATA-->"


def build(contents: Contents) -> str:
    """The whole page, which needs no other file.

    contents: what to show.

    Raises:
        UsageError: a walk has too many steps, or begins where its system cannot.
    """
    before, after = _skeleton()
    text = json.dumps(export(contents), separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    packed = base64.b64encode(zlib.compress(text.encode(), 9)).decode()
    form, data = ("deflate", packed) if len(packed) < len(text.encode()) else ("plain", text)
    return f'{before}<script type="application/json" id="data" data-form="{form}">{data}</script>{after}'


@cache
def _skeleton() -> tuple[str, str]:
    before, place, after = SKELETON.read_text(encoding="utf-8").partition(PLACE)
    assert place, f"{SKELETON} has no {PLACE}"
    return before, after
