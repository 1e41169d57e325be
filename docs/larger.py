"""Decide the searches that take minutes, and write larger.json, a source of docs/verdicts.md.

    python docs/larger.py [--check]

With --check it writes nothing and reports whether the results equal the file. An entry is an entry of `trystate verify
--json`, without what a page does not show, and with a digest of what was searched: a test compares the digest with the
present system.
A maintainer's tool: it takes a quarter of an hour on two cores, and 15 GiB of memory.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from trystate.__main__ import main as trystate
from trystate.exits import Exit
from trystate.model.checker.check import watches
from trystate.model.checker.expectations import Run
from trystate.model.checker.explicit.engine import Compiled
from trystate.model.checker.explicit.storage import fingerprint
from trystate.model.checker.kernel import Kernel
from trystate.model.rendezvous.findings import LARGER

FILE = Path(__file__).parent / "larger.json"
KEPT = ("label", "sizes", "states", "edges", "depth", "properties")
OF_A_PROPERTY = ("name", "form", "doc", "status")


def digest(run: Run) -> dict[str, str]:
    """The digests of the declarations that are searched and of the properties that are checked."""
    kernel = Kernel(run.build())
    parts = fingerprint(kernel, Compiled.of(kernel).layout, False, watches(kernel))
    return {name: parts[name] for name in ("declaration", "set of properties")}


def decided(run: Run) -> dict[str, Any]:
    """The entry of one search.

    Raises:
        SystemExit: not everything is decided as expected.
    """
    sizes = [f"--size={name}={size}" for name, size in run.sizes.items()]
    together = [] if run.max_faults is None else ["--max-faults", str(run.max_faults)]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.json"
        args = [
            "verify", run.system.__name__.lower(), "--edition", run.edition.name, *sizes, "--fault", *run.faults,
            *together, "--engine", "explicit", "--out", folder, "--json", str(file),
        ]  # fmt: skip
        if trystate(args) != Exit.OK:
            raise SystemExit(f"{run.label}: not as expected, see above")
        (found,) = json.loads(file.read_text(encoding="utf-8"))["runs"]
    properties = [{key: each[key] for key in OF_A_PROPERTY} for each in found["properties"]]
    return {key: found[key] for key in KEPT} | {"properties": properties, "digest": digest(run)}


def main() -> int:
    from pages import settled  # imported here: a test runs this file from another folder

    return settled(
        argparse.ArgumentParser(description=__doc__),
        lambda _: [(FILE, json.dumps([decided(run) for run in LARGER], indent=1) + "\n")],
    )


if __name__ == "__main__":
    sys.exit(main())
