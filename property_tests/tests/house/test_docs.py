"""Every command and every program in the documentation runs, and prints the output that is shown.

Rule: a fenced block in console, bash or python is executed, unless the line above it is
`<!-- not run: <reason> -->`. Each Python block of a document is a separate program. A block that begins with
`# NAME.py` is that file, and a command below it runs the file by name. Console blocks of one document share a folder,
which is empty at first. The lines after a `$ ` line are its output, in which `...` stands for any text.

The pages have every error and every module of the code, and the results of larger searches are of the present model.
"""

from __future__ import annotations

import dataclasses
import faulthandler
import json
import os
import re
import runpy
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from trystate import registry
from trystate.impl.agent import launch as agent_launch
from trystate.impl.agent import local as agent_local
from trystate.impl.agent import watchdog_client as agent_watchdog
from trystate.impl.autograd import errors as autograd_errors
from trystate.impl.rendezvous import errors as rendezvous_errors
from trystate.impl.store import errors
from trystate.impl.store.limits import Limits
from trystate.model.errors import TrystateError
from trystate.model.rendezvous.findings import LARGER
from trystate.property_tests.support.nightly import NIGHTLY

CHECKOUT = Path(__file__).resolve().parents[3]
DOCUMENTS = [p for p in (CHECKOUT / "README.md", CHECKOUT / "ARCHITECTURE.md") if p.is_file()]
DOCUMENTS += sorted(p for p in (CHECKOUT / "docs").glob("*.md"))
SECONDS_MAX = 300.0
needs_clone = pytest.mark.skipif(not (CHECKOUT / "docs").is_dir(), reason="needs a clone: a wheel holds packages only")

FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<body>.*?)^(?P=indent)```[ \t]*$", re.M | re.S)
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([\w-]+))?\)")
FILE = re.compile(r"# (\w+)\.py\n")
MARKER = re.compile(r"<!-- not run:(?P<reason>.*?)-->\s*\Z", re.S)


@dataclass(frozen=True)
class Block:
    """One fenced block in a language that can be run; `reason` is why it is not run, None if it is."""

    language: str
    body: str
    line: int
    reason: str | None


class Broken(AssertionError):
    """A block does not do what the document shows."""


def blocks(text: str) -> Iterator[Block]:
    for found in FENCE.finditer(text):
        if found["language"] in ("console", "bash", "sh", "python"):
            marker = MARKER.search(text, 0, found.start())
            width = len(found["indent"])
            body = "".join(line[width:] for line in found["body"].splitlines(keepends=True))
            reason = None if marker is None else marker["reason"].strip()
            yield Block(found["language"], body, text.count("\n", 0, found.start()) + 1, reason)


def run(argv: list[str], folder: Path, said: str) -> str:
    """The output of the program.

    Raises:
        Broken: it fails.
    """
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")])
    environment = {**os.environ, "PATH": path, "PYTHONSAFEPATH": "1", "COLUMNS": "120"}
    with subprocess.Popen(argv, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          start_new_session=True) as process:  # fmt: skip
        try:
            out, err = process.communicate(timeout=SECONDS_MAX)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # kills the servers that a block has started, too
            raise
    if process.returncode:
        raise Broken(f"{said}: exit code {process.returncode}\n{out}{err}")
    return out


def run_block(block: Block, folder: Path) -> None:
    if file := FILE.match(block.body):
        (folder / f"{file[1]}.py").write_text(block.body, encoding="utf-8")
    elif block.language == "python":
        program = folder / f"line_{block.line}.py"  # a file, because a declaration's error names its line
        program.write_text(block.body, encoding="utf-8")
        run([sys.executable, "-W", "error", str(program)], folder, f"the program in line {block.line}")
    elif block.language == "console":
        for command, shown in commands(block):
            printed = run(["bash", "-euo", "pipefail", "-c", command], folder, f"$ {command}")
            if shown.strip() and not matches(shown, printed):
                raise Broken(f"$ {command}\nprinted:\n{printed}\nand not what is shown:\n{shown}")
    else:
        run(["bash", "-euo", "pipefail", "-c", block.body], folder, f"the script in line {block.line}")


def commands(block: Block) -> Iterator[tuple[str, str]]:
    """Each command of a console block, with the output shown below it."""
    parts = re.split(r"^\$ ", block.body, flags=re.M)
    if parts[0].strip() or len(parts) < 2:
        raise Broken(f"the console block in line {block.line} does not begin with a command ($ ...)")
    for part in parts[1:]:
        command, _, shown = re.sub(r"\\\n", " ", part).partition("\n")
        yield command, shown


def matches(shown: str, printed: str) -> bool:
    """Do they agree line by line, blanks at the ends of lines aside?"""
    trimmed, wanted = ("\n".join(line.rstrip() for line in text.strip().splitlines()) for text in (printed, shown))
    return re.fullmatch(".*".join(map(re.escape, wanted.split("..."))), trimmed, re.S) is not None


def run_document(text: str, folder: Path) -> None:
    """Run every block that is not exempt.

    Raises:
        Broken: a block fails, prints something else, is exempt without a reason, or is a file that nothing runs.
    """
    unused: dict[str, int] = {}  # file -> line of its block
    for block in blocks(text):
        if file := FILE.match(block.body):
            unused[file[1]] = block.line
        elif block.language == "console":
            unused = {name: line for name, line in unused.items() if name not in block.body}
        if block.reason == "":
            raise Broken(f"the block in line {block.line} is not run, and no reason is given")
        if block.reason is None:
            run_block(block, folder)
    for name, line in unused.items():
        raise Broken(f"no command runs {name}.py, the file in line {line}")


@pytest.mark.parametrize("path", DOCUMENTS, ids=[p.name for p in DOCUMENTS])
def test_the_blocks_of_a_document_run_and_print_what_is_shown(path: Path, tmp_path: Path) -> None:
    (tmp_path / "docs").symlink_to(CHECKOUT / "docs")  # the programs are named as from the checkout
    run_document(path.read_text(encoding="utf-8"), tmp_path)


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_every_link_of_a_page_leads_to_a_file_and_a_heading() -> None:
    broken = []
    for page in (*CHECKOUT.glob("*.md"), *(CHECKOUT / "docs").glob("*.md")):
        for name, anchor in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
            target = page.parent / name if name else page
            if not target.exists() or (anchor and anchor not in anchors(target)):
                broken.append(f"{page.name}: {name}#{anchor}")
    assert broken == []


def test_a_page_installs_the_package_from_the_checkout() -> None:
    for path in DOCUMENTS:  # extras of the installed package need no index with the package
        extras = set(re.findall(r"pip install '?trystate(?:\[([\w,]+)\])?", path.read_text(encoding="utf-8")))
        assert extras <= {"metrics", "otel", "ray", "fast", "rpc", "nvrx", "torchft"}, path.name


@needs_clone
def test_the_limits_that_are_shown_are_the_servers() -> None:
    text = (CHECKOUT / "docs" / "stores.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| ([\d,]+)(?: (KiB|MiB|GiB))? \|", text, re.M)
    units = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
    shown = {name: float(number.replace(",", "")) * units[unit] for name, number, unit in rows}
    assert shown == dataclasses.asdict(Limits())


def own(module: ModuleType) -> list[Any]:
    """The classes that a module defines."""
    return [kind for kind in vars(module).values() if isinstance(kind, type) and kind.__module__ == module.__name__]


@needs_clone
@pytest.mark.parametrize(("page", "module"), [("store-use.md", errors), ("autograd.md", autograd_errors)])
def test_every_error_is_explained(page: str, module: ModuleType) -> None:
    text = (CHECKOUT / "docs" / page).read_text(encoding="utf-8")
    assert own(module) and [kind for kind in own(module) if f"`{kind.__name__}`" not in text] == []


RAISED = (agent_launch, agent_local, agent_watchdog, rendezvous_errors)
FOR_PROGRAMS = {"RendezvousError", "Interrupted"}  # the base class, and an error that no operator sees


@needs_clone
def test_every_error_of_an_operator_names_its_section_of_the_page() -> None:
    sections = anchors(CHECKOUT / "docs" / "troubleshooting.md")
    raised = {kind for module in RAISED for kind in own(module) if issubclass(kind, TrystateError)}
    assert len(raised) > 8
    for kind in raised:
        if kind.__name__ not in FOR_PROGRAMS:
            assert kind.symptom in sections, kind
            assert kind.symptom in "".join(kind("why").__notes__)


@needs_clone
@pytest.mark.parametrize("package", ["impl/agent", "impl/autograd", "impl/host", "impl/rendezvous", "impl/rpc",
                                     "impl/store", "monitor"])  # fmt: skip
def test_every_module_of_a_package_has_its_place_in_the_architecture(package: str) -> None:
    text = (CHECKOUT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    table = text.partition(f"| modules of `{package}` |")[2].partition("\n\n")[0]
    named = re.findall(r"`([\w/]+)`", " ".join(re.findall(r"^\| (`.*?) \|", table, re.M)))
    folder = CHECKOUT / package
    modules = [str(path.relative_to(folder).with_suffix("")) for path in folder.rglob("[!_]*.py")]
    assert sorted(named) == sorted(modules)


PACKAGES = {finding.of for finding in registry.findings().values()}


@needs_clone
@pytest.mark.parametrize(("tool", "pages"), [("steps", 3), ("messages", 1), ("upstream", 1 + len(PACKAGES))])
def test_the_generated_pages_are_what_the_model_says(tool: str, pages: int) -> None:
    argv = [sys.executable, str(CHECKOUT / "docs" / f"{tool}.py"), "--check"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.stdout.count("fresh: ") == pages, f"run python docs/{tool}.py: {done.stdout}{done.stderr}"


# ---- the page of the articles


@needs_clone
def test_the_page_of_the_articles_is_what_their_files_say() -> None:
    page = articles_tool()["page"]()
    assert page.startswith("# The articles, item by item\n") and len(page) > 200_000
    assert {place for place in re.findall(r"\]\(\.\./([^)#]+)\)", page) if not (CHECKOUT / place).is_file()} <= drawn()


def drawn() -> set[str]:
    return {f"diagrams/generated/{name}.svg" for name in articles_tool()["pictures"]()}


def test_the_names_of_the_pictures_are_those_that_are_drawn() -> None:
    kept = {path.relative_to(CHECKOUT).as_posix() for path in (CHECKOUT / "diagrams" / "generated").glob("*.svg")}
    assert kept and kept <= drawn()


@cache
def articles_tool() -> dict[str, Any]:
    return runpy.run_path(str(CHECKOUT / "docs" / "articles.py"))


PLACED = {
    "section": "1.1", "name": "`store`", "model": ["rendezvous/operators.JOIN_SEED"], "picture": ["join-seed-edition"],
    "runtime": ["rendezvous/operators.join", "rendezvous"], "tests": ["house/test_docs"], "compared": "no program",
}  # fmt: skip


def test_a_row_says_which_tests_run_by_night_alone_or_more_by_night() -> None:
    tool = articles_tool()
    said = {
        "rendezvous/test_engine_edges.test_any_three_faults_together": tool["NIGHT"],
        "rendezvous/test_torch_conformance.test_torch_takes_every_edge_under_a_fault": tool["SAMPLE"],
        "rendezvous/test_options.test_an_unknown_option_is_refused_with_the_nearest_one": "",
    }
    assert {place: tool["_night"](place) for place in said} == said


def test_the_workflow_runs_the_nightly_profile_each_night() -> None:
    yaml = pytest.importorskip("yaml", reason="mkdocs reads its settings with it")
    read = yaml.safe_load((CHECKOUT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    nightly = [job for job in read["jobs"].values() if job["env"].get("HYPOTHESIS_PROFILE") == "nightly"]
    assert "schedule" in read[True]  # YAML reads the key `on` as a truth value
    assert [step for job in nightly for step in job["steps"] if step.get("run", "").startswith("pytest")]


@needs_clone
def test_a_citation_without_an_item_is_found(tmp_path: Path) -> None:
    """The code cites 3.2.4 of the first article; the only item of each article is of another section."""
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in PLACED.items())
    for name in articles_tool()["ARTICLES"]:
        (tmp_path / f"{name}.toml").write_text(f'title = "T"\nsource = "S"\n[[item]]\n{lines}', encoding="utf-8")
    said = r"no item stands for .*rendezvous-engine 3\.2\.4, cited by \[\w+/\w+\.\w+\]\("
    with pytest.raises(SystemExit, match=said):
        articles_tool()["page"](tmp_path)


# ---- the searches that take minutes


SECONDS_OF_LARGER = 3_600
TOOL = CHECKOUT / "docs" / "larger.py"


@needs_clone
@pytest.mark.parametrize("number", range(len(LARGER)))
def test_a_larger_search_is_of_the_system_of_today(number: int) -> None:
    run = LARGER[number]
    found = json.loads((TOOL.parent / "larger.json").read_text(encoding="utf-8"))[number]
    assert found["label"] == run.build().label
    digest = runpy.run_path(str(TOOL))["digest"]
    assert found["digest"] == digest(run), "the model has changed: run python docs/larger.py"
    assert {each["status"] for each in found["properties"]} == {"holds"}


@needs_clone
@pytest.mark.skipif(not NIGHTLY, reason="ten minutes of two cores: under HYPOTHESIS_PROFILE=nightly")
def test_the_larger_searches_find_the_same_again() -> None:
    faulthandler.cancel_dump_traceback_later()  # the limit of other tests
    argv = [sys.executable, str(TOOL), "--check"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=SECONDS_OF_LARGER)
    assert done.returncode == 0, done.stdout + done.stderr
