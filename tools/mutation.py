"""Mutants of whole folders: a sample of the mutants that cosmic-ray generates, and the tests that fail with each.

    pip install cosmic-ray
    python tools/mutation.py impl/store --sample 40 [--seed 1] [--out docs/mutation.json]

A mutant has one changed operator, constant, condition, loop, decorator or exception. Of each place one mutant is drawn.
It is planted in a clone of the last commit, and the quick tests of its folder run until one fails, first the files
whose names have a word of the module's name. A mutant with which no test fails survives. The results are appended to
the file, and a mutant that is in it is not run again; a larger sample of the same seed contains the smaller one. A
person adds the judgement of a survivor to the file: the test that kills it now, or why it is equivalent.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shlex
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

from cosmic_ray.commands.init import _all_work_items
from cosmic_ray.mutating import mutate_and_test
from cosmic_ray.work_item import MutationSpec, TestOutcome

HERE = Path(__file__).resolve().parents[1]
FOLDERS = ("impl/rendezvous", "impl/agent", "impl/store", "impl/rpc", "impl/autograd", "model/checker", "model/prover")
LIMIT_SECONDS = 900.0  # limit for the tests of one mutant; beyond it a test waits for ever: the mutant is killed


def mutants(folder: Path, seed: int) -> list[MutationSpec]:
    """One mutant of each place of a folder, in random order."""
    rng = random.Random(seed)
    places: dict[tuple[str, tuple[int, int], str], list[MutationSpec]] = {}
    for item in _all_work_items(sorted(folder.rglob("*.py")), {}):
        mutant = item.mutations[0]
        family = mutant.operator_name.split("/")[1].split("_")[0]
        if not any(begin <= mutant.start_pos < end for begin, end in annotations(mutant.module_path)):
            places.setdefault((str(mutant.module_path), mutant.start_pos, family), []).append(mutant)
    drawn = [rng.choice(found) for found in places.values()]
    rng.shuffle(drawn)
    return drawn


@cache
def annotations(module: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Begin and end of each annotation of a module: code that is not executed."""
    found: list[ast.expr | None] = []
    for node in ast.walk(ast.parse(Path(module).read_text())):
        match node:
            case ast.arg() | ast.AnnAssign():
                found.append(node.annotation)
            case ast.FunctionDef():
                found.append(node.returns)
    ends = [(one.lineno, one.col_offset, one.end_lineno or 0, one.end_col_offset or 0) for one in found if one]
    return [((a, b), (c, d)) for a, b, c, d in ends]


def tests(clone: Path, folder: str, module: Path) -> list[str]:
    """The files of the folder's tests; first those whose names share most words with the module's name."""
    words = set(module.stem.split("_")) | {module.parent.name}
    files = sorted((clone / "property_tests/tests" / folder.split("/")[1]).rglob("test_*.py"))
    return [str(file) for file in sorted(files, key=lambda file: -len(words & set(file.stem.split("_"))))]


def run(clone: Path, folder: str, mutant: MutationSpec) -> dict[str, Any]:
    """Plant a mutant, run the tests until one fails, and take the mutant away again."""
    module = Path(mutant.module_path)
    name = str(module.relative_to(clone))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-n0",
        "-p",
        "no:cacheprovider",
        *tests(clone, folder, module),
    ]
    began = time.monotonic()
    result = mutate_and_test([mutant], shlex.join(command), LIMIT_SECONDS)
    failed = [
        line.split(" ")[1] for line in (result.output or "").splitlines() if line.startswith(("FAILED ", "ERROR "))
    ]
    killed = result.test_outcome is not TestOutcome.SURVIVED
    change = [line for line in (result.diff or "").splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    return {
        "folder": folder, "place": f"{name}:{mutant.start_pos[0]}:{mutant.start_pos[1]}",
        "function": mutant.definition_name, "operator": mutant.operator_name.split("/")[1],
        "change": change,
        "killed": killed, "by": failed[0].rpartition("property_tests/tests/")[2] if killed and failed else "",
        "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folders", nargs="+", choices=FOLDERS)
    parser.add_argument("--sample", type=int, default=20, help="mutants of each folder (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=HERE / "docs/mutation.json")
    args = parser.parse_args()
    known = json.loads(args.out.read_text()) if args.out.is_file() else {"places": {}, "mutants": []}
    with tempfile.TemporaryDirectory() as temporary:
        clone = Path(temporary, "clone").resolve()
        subprocess.run(["git", "clone", "-q", str(HERE), str(clone)], check=True)
        os.environ["PYTHONPATH"] = str(clone)
        os.chdir(clone)
        for folder in args.folders:
            found = mutants(clone / folder, args.seed)
            known["places"][folder] = len(found)
            for number, mutant in enumerate(found[: args.sample]):
                place = f"{Path(mutant.module_path).relative_to(clone)}:{mutant.start_pos[0]}:{mutant.start_pos[1]}"
                if any(one["place"] == place for one in known["mutants"]):
                    continue
                result = run(clone, folder, mutant)
                known["mutants"].append(result)
                args.out.write_text(json.dumps(known, indent=1) + "\n")
                verdict = result["by"] or "killed" if result["killed"] else "SURVIVES"
                print(f"{folder} {number + 1} of {args.sample}: {place} {result['operator']}: {verdict}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
