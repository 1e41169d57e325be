"""Mutants of whole folders: a sample of the mutants that cosmic-ray generates, and the tests that fail with each.

    pip install cosmic-ray
    python tools/mutation.py impl/store --sample 40 [--commit 0123abcd] [--ledger docs/ledger.json]

A mutant has one changed operator, constant, condition, loop, decorator or exception. Of each place one mutant is drawn.
It is planted in a clone of a commit, and tests of its folder run until one fails: first the quick tests whose files are
nearest to the module by imports; if none of them fails, all tests of the folder, the nearest first.
A test that fails is run once more alone, and counts if it fails again. A mutant with which no test fails survives.
The results of a folder are one entry of the ledger. A larger sample of the same commit continues it. A person adds
the judgement of a survivor to docs/ledger.toml: the test that kills it now, or why it is equivalent.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import date
from difflib import unified_diff
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from cosmic_ray.mutating import mutate_and_test, use_mutation
from cosmic_ray.plugins import get_operator
from cosmic_ray.work_item import MutationSpec, TestOutcome

from trystate.property_tests.adapters.campaigns.notebook import write_ledger
from trystate.property_tests.support.quick import QUICK

HERE = Path(__file__).resolve().parents[1]
FOLDERS = ("impl/rendezvous", "impl/agent", "impl/store", "impl/rpc", "impl/autograd", "model/checker", "model/prover")
SEED = 1
QUICK_FILES = 3  # the files of quick tests that run: the nearest
QUICK_SECONDS, ALL_SECONDS = 300.0, 900.0  # limits for the tests of one mutant
TEST_SECONDS = 120  # limit for one test: beyond it the test waits for ever
MEMORY_BYTES = 6 << 30  # limit for one process: a loop that does not end may also fill a list

INIT = import_module("cosmic_ray.commands.init")
NODES = INIT.ast_nodes
INIT.ast_nodes = cache(lambda tree: list(NODES(tree)))  # a hundred operators go through the nodes of a module


def mutants(folder: Path) -> list[MutationSpec]:
    """One mutant of each place of a folder, in random order."""
    rng = random.Random(SEED)
    places: dict[tuple[str, tuple[int, int], str], list[MutationSpec]] = {}
    for item in INIT._all_work_items(sorted(folder.rglob("*.py")), {}):
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


@cache
def imports(clone: Path) -> dict[Path, set[Path]]:
    """The files of a clone that each file imports, also within functions."""
    files, found = set(clone.rglob("*.py")), dict[Path, set[Path]]()
    for file in files:
        paths: set[Path] = set()
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                paths |= {clone / one.name.replace(".", "/") for one in node.names}
            elif isinstance(node, ast.ImportFrom):
                base = (file.parents[node.level - 1] if node.level else clone) / (node.module or "").replace(".", "/")
                paths |= {base, *(base / one.name for one in node.names)}
        paths = {path.resolve() for path in paths}
        found[file] = files & {one for path in paths for one in (path.with_suffix(".py"), path / "__init__.py")}
    return found


def distances(clone: Path, module: Path) -> dict[Path, int]:
    """The number of imports from each file of a clone to a module; a file from which none lead there is not in it."""
    found = {module: 0}
    while news := {file for file, imported in imports(clone).items() if file not in found and imported & found.keys()}:
        found |= dict.fromkeys(news, 1 + max(found.values()))
    return found


def tests(clone: Path, folder: str, module: Path) -> tuple[list[str], list[str]]:
    """Files of the folder's tests, the nearest to the module first: some of the quick ones, and all."""
    root, words, near = clone / "property_tests/tests", set(module.stem.split("_")), distances(clone, module)
    files = sorted(
        (root / folder.split("/")[1]).rglob("test_*.py"),
        key=lambda file: (near.get(file, 99), -len(words & set(file.stem.split("_"))), file),
    )
    quick = [file for file in files if file in near and file.relative_to(root).as_posix() in QUICK]
    return [str(file) for file in quick[:QUICK_FILES]], [str(file) for file in files]


def failing(mutant: MutationSpec, which: list[str], limit: float) -> str | None:
    """The test that fails with a mutant, "" if all pass, None if they are not done within the limit."""
    options = ("-x", "-q", "-n0", "-p", "no:cacheprovider", "-o", f"faulthandler_timeout={TEST_SECONDS}")
    argv, refuted = (sys.executable, "-m", "pytest", *options), list[str]()
    while True:
        result = mutate_and_test([mutant], shlex.join([*argv, *which, *refuted]), limit)
        if result.test_outcome is TestOutcome.SURVIVED or result.output == "timeout":
            return None if result.output == "timeout" else ""
        found = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", result.output or "", re.MULTILINE)
        if found is None:
            return f"a test does not end in {TEST_SECONDS} s"
        failed = found[1]
        if mutate_and_test([mutant], shlex.join([*argv, failed]), limit).test_outcome is not TestOutcome.SURVIVED:
            return failed.removeprefix("property_tests/tests/")
        refuted.append(f"--deselect={failed}")


def change(mutant: MutationSpec) -> list[str]:
    """The lines that a mutant changes, as a diff."""
    with use_mutation(mutant.module_path, get_operator(mutant.operator_name)(), mutant.occurrence) as texts:
        diff = list(unified_diff(*(text.splitlines() for text in texts), n=0))[2:]
    return [line[0] + " " + line[1:].strip() for line in diff if line[0] in "+-"]


def examine(clone: Path, folder: str, sample: list[MutationSpec], entry: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Run the quick tests with the mutants of a sample that the entry lacks, and then all tests with survivors.

    Yields each result; the entry has it then.
    """
    results: list[dict[str, Any]] = entry["mutants"]
    for mutant in sample[len(results) :]:
        quick, _ = tests(clone, folder, Path(mutant.module_path))
        caught = failing(mutant, ["--quick", *quick], QUICK_SECONDS) if quick else ""
        place = ":".join(map(str, (Path(mutant.module_path).relative_to(clone), *mutant.start_pos)))
        results.append({"place": place, "change": change(mutant), "quick": caught, "all": caught or None})
        entry.update(seeds=len(results), done=[[0, len(results)]])
        yield results[-1]
    for mutant, result in zip(sample, results, strict=False):
        if result["all"] is None:
            _, files = tests(clone, folder, Path(mutant.module_path))
            result["all"] = failing(mutant, files, ALL_SECONDS)
            yield result


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folders", nargs="+", choices=FOLDERS)
    parser.add_argument("--sample", type=int, default=10, help="mutants of each folder (default %(default)s)")
    parser.add_argument("--commit", default="HEAD", help="default %(default)s")
    parser.add_argument("--ledger", type=Path, default=HERE / "docs/ledger.json")
    args = parser.parse_args()
    ledger = args.ledger.resolve()
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    entries = json.loads(ledger.read_text()) if ledger.is_file() else []
    with tempfile.TemporaryDirectory() as temporary:
        clone = Path(temporary, "clone").resolve()
        subprocess.run(["git", "clone", "-q", str(HERE), str(clone)], check=True)
        os.environ["PYTHONPATH"] = str(clone)
        os.chdir(clone)
        subprocess.run(["git", "checkout", "-q", args.commit], check=True)
        subprocess.run([sys.executable, "-m", "compileall", "-q", "."], check=False)
        head = subprocess.run(["git", "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True, check=True)
        for folder in args.folders:
            found = mutants(clone / folder)
            entry = {"kind": f"mutants of {folder}", "date": date.today().isoformat(), "commit": head.stdout.strip(),
                     "generated": len(found), "seeds": 0, "done": [[0, 0]], "mutants": []}  # fmt: skip
            entry = next((one for one in entries if all(one[key] == entry[key] for key in ("kind", "commit"))), entry)
            for result in examine(clone, folder, found[: args.sample], entry):
                write_ledger(ledger, [entry])
                print(time.strftime("%X"), json.dumps(result), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
