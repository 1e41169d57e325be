"""The project keeps its own rules: packaged files, allowed imports, pure modules, lengths of files and functions.

Rule: no list here repeats facts that can be read off the tree.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from trystate.property_tests.support.nightly import NUMBERS
from trystate.property_tests.support.quick import QUICK

CHECKOUT = Path(__file__).resolve().parents[3]
FOLDERS = ("diagrams", "impl", "model", "monitor", "page", "property_tests")  # each is trystate.<name>
PARTS = (*FOLDERS, "search")  # the last is in trystate/ itself
ROOMS = ("harness", "adapters", "replays", "support", "tests")  # of property_tests; each may import those before it
INSTALLED = ROOMS[:3]
VERSION = ("trystate", "trystate.version")  # the package's own name, for its version
# These run the tests, or the mistaken systems, of other test files.
OF_OTHER_TESTS = (
    "house.test_wording",
    "prover.test_proofs",
    "prover.test_systems",
    "rendezvous.test_mutants",
)

LINES_MAX = 800  # a file's lines. Aim at 500, but do not cut a class in two for it
FUNCTION_LINES_MAX = 60  # aim at 45, a screen
# Imports of types, and in functions, that would close a circle: a module, and the modules that import it nevertheless.
BACKWARD = {
    "cli": ("completion",),  # an option of the parser prints all options of the parser
    "impl.autograd.local_pass": ("contexts", "effects", "runner"),  # all three belong to one pass
    "impl.rpc.agent": ("inquiries", "requests"),  # the agent's tables, whose entries refer to the agent
    "impl.rpc.inquiries": ("requests",),  # a request has the key of its inquiry
    "impl.rpc.invocations": ("futures",),  # an abandoned call is removed from the table of calls
    "impl.store.server.session": ("unread",),  # a session has its replies, and `Replies` has all sessions
    "impl.store.server.service": ("extended", "fast_path", "promises", "requests", "rooms"),  # handlers get the service
    "model.checker.explicit.engine": ("saving",),  # a search writes its own checkpoints
    "model.checker.explicit.symmetry": ("paths",),  # the trails of a reduced search lead to concrete runs
    "model.checker.story": ("verdicts",),  # a report is printed with its counterexamples
    "model.language.arithmetic": ("expressions",),  # the operators of Python on trees
    "model.language.state": ("records",),  # a record writes into its state
    "model.language.systems": (
        "derived",
        "machines",
        "properties",
        "scenarios",
        "state",
        "transitions",
    ),  # all of these belong to a system
    "model.language.text": ("expressions",),  # a tree is printed as text
    "model.prover.counting": ("sums",),  # a part of a sum is named as counts are
    "model.prover.formulas": ("counting",),  # the laws of counting are instances of formulas
    "monitor.rendezvous.follower": ("judging", "waiting"),  # both read the follower's state at each line
    "property_tests.adapters.rooms.servers": ("hosts",),  # a process sends its requests to the server
    "property_tests.adapters.simulator.outcomes": ("agents",),  # an agent reports its events to them
    "property_tests.support.autograd.running": ("programs",),  # tensors do the steps of a program
}
TYPESCRIPT_FUNCTION = re.compile(
    r"^( *)(?:export )?(?:async )?(?:function (\w+)|const (\w+)\b.*=> \{$|"
    r"(?:private |static )*(?!(?:if|for|while|switch|catch)\b)(\w+)\(.*\)(?:: .+)? \{$)",
    re.MULTILINE,
)
MAY_IMPORT = {
    "model": (),
    "impl": (),  # and the vocabularies and errors of the model
    "diagrams": ("model",),
    "monitor": ("model", "impl"),
    "page": ("model", "diagrams"),
    "search": ("model", "impl"),
    "property_tests": ("model", "impl", "monitor", "page", "search"),
    "trystate": ("model", "impl", "diagrams", "monitor", "page", "search", "property_tests"),
}
IMPURE = {
    "asyncio", "concurrent", "datetime", "io", "logging", "multiprocessing", "pathlib", "pkgutil", "random", "secrets",
    "select", "shutil", "signal", "socket", "subprocess", "tempfile", "threading", "time", "torch", "urllib", "uuid",
}  # fmt: skip
# The engines' clock decides when a search stops, never its verdict. Messages and findings are in data files.
ALLOWED = {
    ("model/checker/engine.py", "time"),
    *((f"model/{name}.py", "pkgutil") for name in ("messages", "checker/expectations")),
}
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
    """The project's own text files, whether or not Git tracks them yet."""
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
    """The top-level part of the package that contains an imported name; None if the name is not ours."""
    parts = target.split(".")
    if parts[0] != "trystate":
        return None
    return parts[1] if len(parts) > 1 and parts[1] in PARTS else "trystate"


def room(name: str) -> str | None:
    """The room of property_tests that contains a module; None outside of the rooms."""
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
    if room(found.target) == "tests" and ".test_" in found.target and not module.name.endswith(OF_OTHER_TESTS):
        return "is a test file: move what is shared to property_tests/support"
    folder = folder_of(found.target)
    if found.relative and folder != module.folder:
        return "leaves its folder with a relative import"
    if folder is None:
        unseen = found.target.split(".")[0] == "pytest" and room(module.name) in (None, *INSTALLED)
        return "is not there where trystate is installed for use" if unseen else ""
    if found.target in VERSION and module.folder in ("trystate", "search"):
        return ""
    if folder == module.folder:
        # A test imports a package as its users do: a relative import would load a second copy of it.
        return "" if found.relative or module.is_test else "names its own folder: import relatively"
    if module.is_test or folder in MAY_IMPORT[module.folder]:
        return ""
    if room(module.name) == "support" and found.target in PUBLIC:
        return ""  # a process that a test starts imports the package as users do
    if module.folder == "impl" and folder == "model":
        if found.target.endswith((".vocabulary", "model.errors")):
            return ""
        return "is of the runtime, which shares nothing but vocabularies and errors with the model"
    return f"is in {module.folder}, which may import {', '.join(MAY_IMPORT[module.folder]) or 'nothing of ours'}"


def test_every_import_stays_within_what_its_folder_may_see() -> None:
    assert {m.folder for m in MODULES} == {*PARTS, "trystate"}
    judged = [(f"{m.shown}:{i.line} imports {i.target}", forbidden(m, i)) for m in MODULES for i in imports(m)]
    assert [found for found in judged if found[1]] == []


def circle(arrows: Mapping[str, Iterable[str]]) -> list[str]:
    """A circle of modules; empty without one."""
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_imports_of_types_and_in_functions_have_no_new_circle() -> None:
    backward = [
        (f"trystate.{there.rpartition('.')[0]}.{here}".replace("..", "."), f"trystate.{there}")
        for there, importers in BACKWARD.items()
        for here in importers
    ]
    arrows = {m.name: {i.target for i in imports(m)} - {m.name, "trystate"} for m in MODULES}
    forward = {here: {there for there in all_ if (here, there) not in backward} for here, all_ in arrows.items()}
    assert circle(forward) == []
    closing = [(here, there) for here, there in backward if circle({**forward, here: {*forward[here], there}})]
    assert backward == closing


def test_no_script_imports_a_test_module() -> None:
    paths = [path for folder in ("docs", "tools", "benchmarks") for path in (CHECKOUT / folder).rglob("*.py")]
    scripts = [named("", CHECKOUT, path, "") for path in paths]
    assert scripts and [f"{m.shown}:{i.line}" for m in scripts for i in imports(m) if room(i.target) == "tests"] == []


def model_arrows() -> set[tuple[str, str]]:
    """Pairs of a part of the model and a part that it imports, without the errors."""
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


def test_the_picture_of_the_house_is_what_its_folders_import() -> None:
    picture = (
        (CHECKOUT / "ARCHITECTURE.md").read_text(encoding="utf-8").partition("```mermaid\n")[2].partition("```")[0]
    )
    edges = re.findall(r'^    (\w+)(?:\[".*?"\])? --(?: ".*" --)?> (\w+)$', picture, re.MULTILINE)
    installed = [m for m in MODULES if room(m.name) in (None, *INSTALLED)]
    found = {(m.folder, folder_of(i.target)) for m in installed for i in imports(m) if i.target not in VERSION}
    assert {*edges} == {(here, there) for here, there in found if there not in (here, None)}


def impurities(module: Module) -> Iterator[str]:
    """The imports and calls that a pure module may not have: files, the environment, clocks, chance, threads, torch."""
    for found in imports(module):
        top = found.target.split(".")[0]
        if top in IMPURE and (module.shown, top) not in ALLOWED:
            yield f"{module.shown}:{found.line} imports {found.target}"
    for node in ast.walk(module.tree):
        match node:
            case ast.Call(func=ast.Name(id=("open" | "print" | "input") as name)):
                yield f"{module.shown}:{node.lineno} calls {name}()"
            case ast.Attribute(value=ast.Name(id=owner), attr=("environ" | "getenv" | "random") as attr):
                yield f"{module.shown}:{node.lineno} uses {owner}.{attr}"


def test_the_model_is_pure() -> None:
    assert [line for m in MODULES if m.folder == "model" for line in impurities(m)] == []


DECLARATIONS = [m for m in MODULES if re.match(r"trystate\.model\.(?!checker|language|prover|errors)\w+\.", m.name)]


def test_declarations_hold_no_lambda() -> None:
    """A declaration must be printable, and a lambda is not. The function `lifelines` serves pictures alone."""
    assert DECLARATIONS
    nodes = [(m.shown, n) for m in DECLARATIONS for n in ast.walk(m.tree)]
    pictured = {id(n) for _, f in nodes if getattr(f, "name", "") == "lifelines" for n in ast.walk(f)}
    lambdas = [(shown, n) for shown, n in nodes if isinstance(n, ast.Lambda)]
    assert [f"{shown}:{n.lineno}" for shown, n in lambdas if id(n) not in pictured] == []


def test_no_step_is_declared_outside_the_model() -> None:
    """A system that the product does not use is in a test, or in `support`."""
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
        # Lists, in which a reader looks up one item.
        and p.parent != CHECKOUT / "docs" / "articles"
        and p.name != "defects.toml"
    }
    assert lengths
    assert {name: n for name, n in lengths.items() if n > LINES_MAX} == {}


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Each function and its number of lines."""
    shown = path.relative_to(CHECKOUT).as_posix()
    if path.suffix == ".ts":
        yield from ((f"{shown}:{name}", n) for name, n in functions_of_typescript(path.read_text(encoding="utf-8")))
        return
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{shown}:{node.name}", (node.end_lineno or node.lineno) - node.lineno + 1


def functions_of_typescript(text: str) -> Iterator[tuple[str, int]]:
    """Each function and method with a body: it ends with the first brace that is indented as its name is."""
    for begin in TYPESCRIPT_FUNCTION.finditer(text):
        end = re.compile(f"^{begin[1]}}}", re.MULTILINE).search(text, begin.end())
        assert end is not None, begin[0]
        yield next(filter(None, begin.groups()[1:])), text.count("\n", begin.start(), end.end()) + 1


def test_every_function_fits_a_screen() -> None:
    long = {name: n for path in files(".py", ".ts") for name, n in functions(path) if n > FUNCTION_LINES_MAX}
    assert long == {}


def test_generated_files_say_so_in_their_first_line() -> None:
    paths = [path for path in CHECKOUT.rglob("generated/*") if path.is_file()]
    # An SVG begins with the lines that XML demands; Graphviz's own comment comes next.
    heads = {p: p.read_text(encoding="utf-8").lower().splitlines()[: 8 if p.suffix == ".svg" else 1] for p in paths}
    assert heads and [path.name for path, head in heads.items() if "generated by" not in " ".join(head)] == []


def test_the_project_speaks_of_itself_alone() -> None:
    """No file has a path of the machine on which it was written."""
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
    """Each sentence, and each comment, whose subject is a clause with "what" or "who"; questions do not count."""
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


def test_the_quick_selection_names_files_and_tests_that_exist() -> None:
    tests = CHECKOUT / "property_tests" / "tests"
    assert [file for file in QUICK if not (tests / file).is_file()] == []
    for file, slow in QUICK.items():
        tree = parsed(tests / file)
        names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        names |= {ast.unparse(node.targets[0]) for node in tree.body if isinstance(node, ast.Assign)}
        assert set(slow) < names, f"{file}: {set(slow) - names or 'all of its tests'} must not be left out"


def test_every_nightly_number_is_of_a_test() -> None:
    named = " ".join(m.path.read_text(encoding="utf-8") for m in MODULES if room(m.name) in ("support", "tests"))
    assert [name for name in NUMBERS if named.count(f'"{name}"') < 2] == []


def test_every_hypothesis_test_has_more_examples_by_night() -> None:
    """A test that sets the number calls `examples` or `by_night` of property_tests/support/nightly.py."""
    fixed = re.compile(r"^@settings\(.*max_examples=\d|\.settings = settings\(.*max_examples=\d", re.M)
    tests = (CHECKOUT / "property_tests" / "tests").rglob("test_*.py")
    assert [path.name for path in tests if fixed.search(path.read_text(encoding="utf-8"))] == []
