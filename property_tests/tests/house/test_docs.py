"""Every command and every program in the documentation runs, and prints what is shown.

Rule: a fenced block in console, bash or python is executed, unless the line above it says
`<!-- not run: <reason> -->`. Python blocks of one document are each a program of their own. Console blocks of
one document share an empty folder; what follows a `$ ` line, if anything, is its output, in which `...`
stands for any text.
"""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
from trystate.impl.autograd import errors as autograd_errors
from trystate.impl.store import errors
from trystate.impl.store.limits import Limits

CHECKOUT = Path(__file__).resolve().parents[3]
DOCUMENTS = [p for p in (CHECKOUT / "README.md", CHECKOUT / "ARCHITECTURE.md") if p.is_file()]
DOCUMENTS += sorted(p for p in (CHECKOUT / "docs").glob("*.md"))
SECONDS_MAX = 120.0

FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<body>.*?)^(?P=indent)```[ \t]*$", re.M | re.S)
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([\w-]+))?\)")
MARKER = re.compile(r"<!-- not run:(?P<reason>.*?)-->\s*\Z", re.S)


@dataclass(frozen=True)
class Block:
    """One fenced block that is meant to be run; `reason` says why it is not, None if it is."""

    language: str
    body: str
    line: int
    reason: str | None


class Broken(AssertionError):
    """A block does not do what the document says."""


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
    done = subprocess.run(
        argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    if done.returncode:
        raise Broken(f"{said}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def run_block(block: Block, folder: Path) -> None:
    if block.language == "python":
        program = folder / f"line_{block.line}.py"  # a file: a declaration names the line that is wrong
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


def run_document(text: str, folder: Path) -> int:
    """Run every block that is not exempt; returns how many did.

    Raises:
        Broken: a block fails, prints something else, or is exempt without a reason.
    """
    ran = 0
    for block in blocks(text):
        if block.reason == "":
            raise Broken(f"the block in line {block.line} is not run, and no reason is given")
        if block.reason is None:
            run_block(block, folder)
            ran += 1
    return ran


@pytest.mark.parametrize("path", DOCUMENTS, ids=[p.name for p in DOCUMENTS])
def test_the_blocks_of_a_document_run_and_print_what_is_shown(path: Path, tmp_path: Path) -> None:
    (tmp_path / "docs").symlink_to(CHECKOUT / "docs")  # the programs are named as from the checkout
    run_document(path.read_text(encoding="utf-8"), tmp_path)


def test_every_link_of_a_page_leads_to_a_file_and_a_heading() -> None:
    def anchors(page: Path) -> set[str]:
        headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M)
        return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}

    broken = []
    for page in (*CHECKOUT.glob("*.md"), *(CHECKOUT / "docs").glob("*.md")):
        for name, anchor in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
            target = page.parent / name if name else page
            if not target.exists() or (anchor and anchor not in anchors(target)):
                broken.append(f"{page.name}: {name}#{anchor}")
    assert broken == []


@pytest.mark.skipif(not (CHECKOUT / "docs").is_dir(), reason="needs a clone: a wheel holds packages only")
def test_the_limits_that_are_shown_are_the_servers() -> None:
    text = (CHECKOUT / "docs" / "stores.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| ([\d,]+)(?: (KiB|MiB|GiB))? \|", text, re.M)
    units = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
    shown = {name: float(number.replace(",", "")) * units[unit] for name, number, unit in rows}
    assert shown == dataclasses.asdict(Limits())


@pytest.mark.skipif(not (CHECKOUT / "docs").is_dir(), reason="needs a clone: a wheel holds packages only")
@pytest.mark.parametrize(("page", "module"), [("stores.md", errors), ("autograd.md", autograd_errors)])
def test_every_error_is_explained(page: str, module: ModuleType) -> None:
    text = (CHECKOUT / "docs" / page).read_text(encoding="utf-8")
    names = [
        name for name, kind in vars(module).items() if isinstance(kind, type) and kind.__module__ == module.__name__
    ]
    assert names
    assert [name for name in names if f"`{name}`" not in text] == []


@pytest.mark.skipif(not (CHECKOUT / "docs").is_dir(), reason="needs a clone: a wheel holds packages only")
@pytest.mark.parametrize("package", ["agent", "autograd", "host", "rendezvous", "rpc", "store"])
def test_every_module_of_the_runtime_has_its_place_in_the_architecture(package: str) -> None:
    text = (CHECKOUT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    table = text.partition(f"| modules of `impl/{package}` |")[2].partition("\n\n")[0]
    named = re.findall(r"`([\w/]+)`", " ".join(re.findall(r"^\| (`.*?) \|", table, re.M)))
    folder = CHECKOUT / "impl" / package
    modules = [str(path.relative_to(folder).with_suffix("")) for path in folder.rglob("[!_]*.py")]
    assert sorted(named) == sorted(modules)


@pytest.mark.skipif(not (CHECKOUT / "docs").is_dir(), reason="needs a clone: a wheel holds packages only")
def test_the_tables_of_steps_are_what_the_model_declares() -> None:
    tool = CHECKOUT / "docs" / "steps.py"
    done = subprocess.run([sys.executable, str(tool), "--check"], capture_output=True, text=True, check=False)
    assert done.stdout.count("fresh: ") == 3, f"run python docs/steps.py: {done.stdout}{done.stderr}"


def fenced(language: str, body: str, above: str = "") -> str:
    return f"Text.\n\n{above}\n```{language}\n{body}\n```\n\nMore text.\n"


@pytest.mark.parametrize(
    ("text", "ran"),
    [
        ("No block at all.", 0),
        (fenced("text", "$ false"), 0),
        (fenced("console", "$ echo one two\none ...\n$ true"), 1),
        (fenced("console", "$ echo one \\\n  two\none two"), 1),
        (fenced("console", "$ touch a") + fenced("bash", "test -f a"), 2),
        (fenced("python", "import trystate\nassert trystate.check.Status"), 1),
        (fenced("console", "$ trystate --version\ntrystate ..."), 1),
        (fenced("bash", "exit 1", "<!-- not run: it would fail -->"), 0),
        ("- A list:\n\n  ```bash\n  cat <<X\n  y\n  X\n  ```\n", 1),
    ],
)
def test_a_sound_document_passes(text: str, ran: int, tmp_path: Path) -> None:
    assert run_document(text, tmp_path) == ran


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (fenced("python", "assert 1 == 2"), "exit code 1"),
        (fenced("python", "import warnings\nwarnings.warn('old')"), "UserWarning: old"),
        (fenced("bash", "false\ntrue"), "exit code 1"),
        (fenced("bash", "false | true"), "exit code 1"),
        (fenced("console", "$ false"), "exit code 1"),
        (fenced("console", "$ trystate no-such-command"), "exit code 2"),
        (fenced("console", "$ echo one\ntwo"), "not what is shown"),
        (fenced("console", "$ printf 'one\\ntwo\\n'\none"), "not what is shown"),
        (fenced("console", "echo one"), "does not begin with a command"),
        (fenced("bash", "false", "<!-- not run: -->"), "no reason is given"),
        (fenced("bash", "false", "<!-- not run: a reason -->\n\nA word between."), "exit code 1"),
    ],
)
def test_a_broken_document_fails(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(Broken, match=re.escape(said)):
        run_document(text, tmp_path)
