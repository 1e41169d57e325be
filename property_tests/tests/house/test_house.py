"""The house keeps its own rules: what is packaged, who may import whom, what is pure, how long anything is.

Rule: no list here repeats what can be read off the tree.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from trystate.property_tests.support.quick import QUICK

CHECKOUT = Path(__file__).resolve().parents[3]
FOLDERS = ("diagrams", "impl", "model", "monitor", "page", "property_tests")  # each is trystate.<name>
PARTS = (*FOLDERS, "search")  # the last is in trystate/ itself
ROOMS = ("harness", "adapters", "replays", "support", "tests")  # of property_tests: each may import those before it
INSTALLED = ROOMS[:3]

LINES_MAX = 800  # of a file. Aim at 500, and do not cut a class in two for it
FUNCTION_LINES_MAX = 60  # aim at 45, a screen
MAY_IMPORT = {
    "model": (),
    "impl": (),  # and vocabularies
    "diagrams": ("model",),
    "monitor": ("model", "impl"),
    "page": ("model", "diagrams"),
    "search": ("model", "impl"),
    "property_tests": ("model", "impl", "monitor", "page", "search"),
    "trystate": ("model", "impl", "diagrams", "monitor", "page", "search", "property_tests"),
}
IMPURE = {
    "asyncio", "concurrent", "datetime", "io", "logging", "multiprocessing", "pathlib", "random", "secrets", "select",
    "shutil", "signal", "socket", "subprocess", "tempfile", "threading", "time", "torch", "urllib", "uuid",
}  # fmt: skip
CLOCK = "model/checker/engine.py"  # its Clock decides when to stop a search, never what is true
NOT_OURS = {".git", ".venv", "build", "dist", "generated", "node_modules", "__pycache__", "trystate-report"}
CLAUSE = re.compile(r"\b(?:What|Who|Whoever|Whatever|Whose)\s+\w(?:[^.?!\n]|\n(?!\s*\n)|[.?!](?=\w))*\??")
REMARK = re.compile(r"(?:^|\s)#:? *(?:what|who|whoever|whatever|whose) .*")
WORKPLACE = re.compile("(?<![\\w}])/" + "work(?![\\w-])|" + "\\.\\./" + "shared|/tmp/" + "venv")


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@dataclass(frozen=True)
class Module:
    """One file of a package: `folder` is the part of the house, `name` its full name when installed."""

    folder: str
    name: str
    path: Path

    @property
    def shown(self) -> str:
        return self.path.relative_to(CHECKOUT).as_posix()

    @property
    def is_test(self) -> bool:
        return room(self.name) == "tests"

    @property
    def tree(self) -> ast.Module:
        return parsed(self.path)


def named(folder: str, root: Path, path: Path, base: str) -> Module:
    parts = path.relative_to(root).with_suffix("").parts
    return Module(folder, ".".join([base, *parts]).removesuffix(".__init__"), path)


def modules() -> Iterator[Module]:
    for folder in FOLDERS:
        for path in sorted((CHECKOUT / folder).rglob("*.py")):
            yield named(folder, CHECKOUT / folder, path, f"trystate.{folder}")
    for path in sorted((CHECKOUT / "trystate").rglob("*.py")):
        of_search = path.relative_to(CHECKOUT / "trystate").parts[0] == "search"
        yield named("search" if of_search else "trystate", CHECKOUT / "trystate", path, "trystate")


MODULES = tuple(modules())
NAMES = {m.name for m in MODULES}
PUBLIC = {m.name for m in MODULES if m.folder == "trystate" and "lazily(__name__" in m.path.read_text(encoding="utf-8")}


def files(*suffixes: str) -> Iterator[Path]:
    """The project's own text files, whether or not Git has heard of them yet."""
    for path in sorted(CHECKOUT.rglob("*")):
        parts = path.relative_to(CHECKOUT).parts
        hidden = any(p in NOT_OURS or (p.startswith(".") and p != ".ci") for p in parts[:-1])
        built = any(p.endswith(".egg-info") for p in parts)
        if path.is_file() and not hidden and not built and (not suffixes or path.suffix in suffixes):
            yield path


@dataclass(frozen=True)
class Import:
    """One imported module, or name of a module, in full."""

    target: str
    relative: bool
    line: int


def imports(module: Module) -> Iterator[Import]:
    package = module.name.split(".")
    if module.path.name != "__init__.py":
        package = package[:-1]
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, False, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                full = f"{origin}.{alias.name}"
                yield Import(full if full in NAMES else origin, node.level > 0, node.lineno)


def folder_of(target: str) -> str | None:
    """The part of the house that an imported name lies in; None if it is not ours."""
    parts = target.split(".")
    if parts[0] != "trystate":
        return None
    return parts[1] if len(parts) > 1 and parts[1] in PARTS else "trystate"


def room(name: str) -> str | None:
    """The room of property_tests that a module lies in; None outside of the rooms."""
    parts = name.split(".")
    return parts[2] if parts[:2] == ["trystate", "property_tests"] and len(parts) > 2 else None


def out_of_its_room(module: Module, found: Import) -> str:
    there, here = room(found.target), room(module.name)
    if there is None or there not in ROOMS:
        return ""
    if here is None:
        return "" if there in INSTALLED else f"is of the tests' {there}, which is not installed"
    return "" if ROOMS.index(there) <= ROOMS.index(here) else f"is of {there}, and {here} comes before it"


def forbidden(module: Module, found: Import) -> str:
    """Why this module may not import this; empty if it may."""
    if reason := out_of_its_room(module, found):
        return reason
    folder = folder_of(found.target)
    if found.relative and folder != module.folder:
        return "leaves its folder with a relative import"
    if folder is None:
        unseen = found.target.split(".")[0] == "pytest" and room(module.name) in (None, *INSTALLED)
        return "is not there where trystate is installed for use" if unseen else ""
    if found.target == "trystate" and module.folder in ("trystate", "search"):
        return ""  # the package's own name, for its version
    if folder == module.folder:
        # A test sees a package as its users do, and must then not mix that with a second copy of it.
        return "" if found.relative or module.is_test else "names its own folder: import relatively"
    if module.is_test or folder in MAY_IMPORT[module.folder]:
        return ""
    if room(module.name) == "support" and found.target in PUBLIC:
        return ""  # a process that a test starts sees the package as users do, too
    if module.folder == "impl" and folder == "model":
        if found.target.endswith((".vocabulary", "model.errors")):
            return ""
        return "is of the runtime, which shares nothing but vocabularies and errors with the model"
    return f"is in {module.folder}, which may import {', '.join(MAY_IMPORT[module.folder]) or 'nothing of ours'}"


def breaches(all_modules: Iterable[Module]) -> list[str]:
    return [
        f"{m.shown}:{i.line} imports {i.target}: {reason}"
        for m in all_modules
        for i in imports(m)
        if (reason := forbidden(m, i))
    ]


def test_every_import_stays_within_what_its_folder_may_see() -> None:
    assert {m.folder for m in MODULES} == {*PARTS, "trystate"}
    assert breaches(MODULES) == []


def test_no_script_imports_a_test_module() -> None:
    paths = [path for folder in ("docs", "tools", "benchmarks") for path in (CHECKOUT / folder).rglob("*.py")]
    scripts = [named("", CHECKOUT, path, "") for path in paths]
    assert scripts and [f"{m.shown}:{i.line}" for m in scripts for i in imports(m) if room(i.target) == "tests"] == []


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("model.x", "import trystate.impl", "nothing of ours"),
        ("model.x", "from trystate import diagrams", "nothing of ours"),
        ("model.checker.x", "from trystate.model.errors import UsageError", "names its own folder"),
        ("model.checker.x", "from ...impl import store", "leaves its folder"),
        ("impl.store.x", "from trystate.model.rendezvous.operators import OPERATORS", "nothing but vocabularies"),
        ("impl.store.x", "def f():\n    import trystate.model.checker.check", "nothing but vocabularies"),
        ("diagrams.x", "from trystate.impl import store", "which may import model"),
        ("property_tests.harness.x", "from trystate.diagrams import render", "which may import model, impl, monitor"),
        ("property_tests.harness.x", "from ..adapters.simulator import swarm", "harness comes before it"),
        ("property_tests.adapters.x", "from ..support.pinned import violated", "adapters comes before it"),
        ("cli", "from trystate.property_tests.support.pinned import violated", "which is not installed"),
        ("property_tests.harness.x", "def f():\n    from pytest import skip", "where trystate is installed for use"),
        ("cli", "import pytest", "where trystate is installed for use"),
        ("property_tests.support.x", "from trystate import registry", "which may import model, impl, monitor"),
        ("property_tests.adapters.x", "from trystate.store import TCPStore", "which may import model, impl, monitor"),
        ("model.checker.x", "from trystate.search.cores import Cores", "nothing of ours"),
        ("search.x", "from trystate.registry import plan", "which may import model, impl"),
        ("search.x", "from trystate.property_tests.harness.checks import Check", "which may import model, impl"),
        ("cli", "from .search.machine import check", "leaves its folder"),
    ],
)
def test_a_breach_of_the_import_rules_is_found(tmp_path: Path, name: str, text: str, why: str) -> None:
    path = tmp_path / "x.py"
    path.write_text(text, encoding="utf-8")
    folder = name.split(".")[0]
    module = Module(folder if folder in PARTS else "trystate", f"trystate.{name}", path)
    assert why in next(forbidden(module, i) for i in imports(module))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("impl.rendezvous.x", "from trystate.model.rendezvous.vocabulary import Action"),
        ("model.checker.x", "from ..errors import UsageError"),
        ("cli", "from trystate.diagrams import render"),
        ("search.x", "from trystate import __version__"),
        ("property_tests.adapters.x", "from trystate.search.cluster import Cluster"),
        ("property_tests.support.x", "from trystate.store import TCPStore"),
    ],
)
def test_what_a_folder_may_see_is_allowed(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / "x.py"
    path.write_text(text, encoding="utf-8")
    folder = name.split(".")[0]
    module = Module(folder if folder in PARTS else "trystate", f"trystate.{name}", path)
    assert [forbidden(module, i) for i in imports(module)] == [""]


def model_arrows() -> set[tuple[str, str]]:
    """Which part of the model imports which, errors aside."""
    found = set()
    for module in MODULES:
        here = module.name.split(".")[2:3] if module.folder == "model" else []
        for imported in imports(module) if here else ():
            there = imported.target.split(".")[2:3] if folder_of(imported.target) == "model" else []
            if there and there[0] not in (here[0], "errors"):
                found.add((here[0], there[0]))
    return found


def test_the_picture_of_the_model_is_what_it_imports() -> None:
    text = (CHECKOUT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    (picture,) = re.findall(r"subgraph model\[.*?\n    end", text, re.DOTALL)
    titles = dict(re.findall(r'^ +(\w+)\["(\w+)<br/>', picture, re.MULTILINE))
    drawn = {(titles[a], titles[b]) for a, b in re.findall(r'^ +(\w+) --(?: ".*" --)?> (\w+)$', picture, re.MULTILINE)}
    assert drawn == model_arrows()
    assert {there for here, there in drawn if here == "language"} == set()
    assert {there for here, there in drawn if here == "checker"} == {"language"}


def impurities(module: Module) -> Iterator[str]:
    """The imports and calls that a pure module may not have: files, the environment, clocks, chance, threads, torch."""
    for found in imports(module):
        top = found.target.split(".")[0]
        if top in IMPURE and not (top == "time" and module.shown == CLOCK):
            yield f"{module.shown}:{found.line} imports {found.target}"
    for node in ast.walk(module.tree):
        match node:
            case ast.Call(func=ast.Name(id=("open" | "print" | "input") as name)):
                yield f"{module.shown}:{node.lineno} calls {name}()"
            case ast.Attribute(value=ast.Name(id=owner), attr=("environ" | "getenv" | "random") as attr):
                yield f"{module.shown}:{node.lineno} uses {owner}.{attr}"


def test_the_model_is_pure() -> None:
    assert [line for m in MODULES if m.folder == "model" for line in impurities(m)] == []


@pytest.mark.parametrize(
    "text", ["import torch.distributed", "import os\nos.environ['A']", "open('a')", "from time import sleep"]
)
def test_an_impurity_is_found(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.py"
    path.write_text(text, encoding="utf-8")
    monkeypatch.setattr(sys.modules[__name__], "CHECKOUT", tmp_path)
    assert len(list(impurities(Module("model", "trystate.model.x", path)))) == 1


DECLARATIONS = [m for m in MODULES if re.match(r"trystate\.model\.(?!checker|language|prover|errors)\w+\.", m.name)]


def test_declarations_hold_no_lambda() -> None:
    """A declaration must be printable, and a lambda is not."""
    assert DECLARATIONS
    found = [f"{m.shown}:{n.lineno}" for m in DECLARATIONS for n in ast.walk(m.tree) if isinstance(n, ast.Lambda)]
    assert found == []


def test_no_step_is_declared_outside_the_model() -> None:
    """A system of which the product knows nothing else is in a test, or beside it in `support`."""
    product = [m for m in MODULES if m.folder != "model" and room(m.name) not in ("support", "tests")]
    found = [
        f"{m.shown}:{n.lineno}" for m in product for n in ast.walk(m.tree)
        if isinstance(n, ast.FunctionDef) for decorator in n.decorator_list
        if isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Name)
        and decorator.func.id in ("transition", "environment", "fault")
    ]  # fmt: skip
    assert product and found == []


def test_the_first_sentence_of_a_declaration_ends_on_its_line() -> None:
    """Reports and pictures show the first line alone."""
    declared = [
        (f"{m.shown}:{n.lineno}", (ast.get_docstring(n) or ".").splitlines()[0])
        for m in DECLARATIONS
        for n in ast.walk(m.tree)
        if isinstance(n, ast.FunctionDef) and n.decorator_list
    ]
    assert declared and [at for at, line in declared if not line.endswith((".", ".)"))] == []


def test_the_package_has_a_link_to_each_top_level_folder_of_it() -> None:
    links = {p.name: p.readlink().as_posix() for p in (CHECKOUT / "trystate").iterdir() if p.is_symlink()}
    assert links == {folder: f"../{folder}" for folder in FOLDERS}


def test_every_folder_with_modules_is_a_package() -> None:
    assert [m.shown for m in MODULES if not (m.path.parent / "__init__.py").is_file()] == []


def test_every_part_of_the_house_says_that_it_is_typed() -> None:
    assert [f for f in (CHECKOUT / f for f in ("trystate", *FOLDERS)) if not (f / "py.typed").is_file()] == []


def test_no_file_is_too_long_to_be_read() -> None:
    lengths = {
        p.relative_to(CHECKOUT).as_posix(): len(p.read_text(encoding="utf-8").splitlines())
        for p in files(".py", ".md", ".toml", ".pml")
        if "generated by" not in p.read_text(encoding="utf-8")[:200]
        and p.parent != CHECKOUT / "docs" / "articles"  # lists, in which a reader looks for one item
    }
    assert lengths
    assert {name: n for name, n in lengths.items() if n > LINES_MAX} == {}


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Each function, and how many lines it has."""
    shown = path.relative_to(CHECKOUT).as_posix()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{shown}:{node.name}", (node.end_lineno or node.lineno) - node.lineno + 1


def test_every_function_fits_a_screen() -> None:
    assert {name: n for path in files(".py") for name, n in functions(path) if n > FUNCTION_LINES_MAX} == {}


def test_generated_files_say_so_in_their_first_line() -> None:
    generated = sorted(p for p in CHECKOUT.rglob("generated/*") if p.is_file())
    silent = []
    for path in generated:
        head = path.read_text(encoding="utf-8").splitlines()
        # An SVG begins with what XML demands; what Graphviz says of itself comes next.
        first = " ".join(head[:8] if path.suffix == ".svg" else head[:1])
        if "generated by" not in first.lower():
            silent.append(path.name)
    assert generated
    assert silent == []


def test_the_project_speaks_of_itself_alone() -> None:
    """No path of the machine that something was written on."""
    found = []
    for path in files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [
            f"{path.relative_to(CHECKOUT)}:{n}" for n, line in enumerate(text.splitlines(), 1) if WORKPLACE.search(line)
        ]
    assert found == []


def clauses(text: str) -> Iterator[str]:
    """Each sentence, and each comment, whose subject is a clause with "what" or "who"; questions are none."""
    for found in CLAUSE.finditer(re.sub(r"\n[ \t]*#:? ?", "\n", text)):
        if not found[0].endswith("?"):
            yield found[0]
    lines = text.splitlines()
    for before, line in zip(["", *lines], lines, strict=False):
        if (remark := REMARK.search(line)) and not (line.lstrip().startswith("#") and before.lstrip().startswith("#")):
            yield remark[0]


def test_every_sentence_names_its_subject() -> None:
    found = {
        path.relative_to(CHECKOUT).as_posix(): wrong
        for path in files(".py", ".md")
        if (wrong := list(clauses(path.read_text(encoding="utf-8"))))
    }
    assert found == {}


@pytest.mark.parametrize("word", ["What", "Who", "Whoever", "Whatever"])
def test_a_sentence_without_a_noun_is_found(word: str) -> None:
    for text in (
        f'"""{word} came first is served."""',
        f"# A line.\n# {word} came\n# first is served.",
        f"served = True  # {word.lower()} came first",
        f"Each is served. {word} came first is served at impl/store.py, at once.",
    ):
        assert len(list(clauses(text))) == 1, text
    for text in (f"# {word} came\n# first, and why?", f"Of a client {word.lower()} came first is known."):
        assert list(clauses(text)) == []


def test_the_quick_selection_names_files_and_tests_that_exist() -> None:
    tests = CHECKOUT / "property_tests" / "tests"
    assert [file for file in QUICK if not (tests / file).is_file()] == []
    for file, slow in QUICK.items():
        tree = parsed(tests / file)
        names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert set(slow) < names, f"{file}: {set(slow) - names or 'all of its tests'} must not be left out"


def test_every_hypothesis_test_has_more_examples_by_night() -> None:
    """Each that says how many asks `examples` or `by_night` of property_tests/support/nightly.py."""
    fixed = re.compile(r"^@settings\(.*max_examples=\d|\.settings = settings\(.*max_examples=\d", re.M)
    tests = (CHECKOUT / "property_tests" / "tests").rglob("test_*.py")
    assert [path.name for path in tests if fixed.search(path.read_text(encoding="utf-8"))] == []
