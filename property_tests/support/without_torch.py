"""The command line in a process without torch: `python -m ...without_torch explain FILE`."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class Hidden(MetaPathFinder):
    """Finds no torch, as if it were not installed."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
        return None


if __name__ == "__main__":
    sys.meta_path.insert(0, Hidden())
    runpy.run_module("trystate", run_name="__main__")
